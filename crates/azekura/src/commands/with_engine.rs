//! `azekura mount --with-engine` and `azekura nfs --with-engine`: the process of an engine of the pool on this host is
//! asked to serve. Owns whom to ask, and that a pool that is down is started first; how a process mounts stands in
//! `own_mount`, how it is a gateway in `own_gateway`.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::{Context as _, Result, bail};
use azekura_proto::PoolId;
use signal_hook::consts::SIGHUP;

use super::mount::{self, MountArgs};
use super::nfs::{self, NfsArgs};
use super::own_gateway::{self, FromCommand, FromGateway, Line};
use super::up;
use crate::host::daemon::Starting;
use crate::host::engines;
use crate::host::records::PoolLock;
use crate::names::{ContainerName, check_name};
use crate::{connect, report};

/// Runs `azekura mount`.
///
/// # Errors
/// If no engine of the pool is this user's and on this host, or it cannot mount.
pub(crate) fn mount(args: &MountArgs) -> Result<()> {
    let name = args.name();
    let (words, dir) = mount::words_for_server(args)?;
    let pool = connect::pool_file(&name.pool)?.map.pool;
    up::start_again(&name.pool, pool)?;
    let pid = ask(name, || engines::ask_to_mount(pool, words))?;
    report::say(format_args!("{name} mounted at {} by its engine (process {pid})", dir.display()));
    Ok(())
}

/// Asks, but not while another command stops the pool.
fn ask(name: &ContainerName, ask: impl FnOnce() -> Result<Option<u32>>) -> Result<u32> {
    let _lock = check_name(&name.pool).ok().map(|name| PoolLock::take(&name)).transpose()?;
    let Some(pid) = ask()? else { bail!("pool '{}': {}", name.pool, engines::NONE_HERE) };
    Ok(pid)
}

/// Runs `azekura nfs`. This process stays as long as the gateway, and ends it.
///
/// # Errors
/// If no engine of the pool is this user's and on this host, it cannot serve, or ends while it does.
pub(crate) fn gateway(args: &NfsArgs) -> Result<()> {
    let name = args.name();
    let pool = connect::pool_file(&name.pool)?.map.pool;
    if !args.is_in_background() {
        up::start_again(&name.pool, pool)?;
    }
    if !args.stays() {
        return nfs::launch(args);
    }
    let starting = Starting::begin(args.is_in_background())?;
    let mut signals = nfs::signals()?;
    let (pid, socket, mut line, ready) = match begin_gateway(args, pool) {
        Ok(begun) => begun,
        Err(error) => return Err(starting.failed(error)),
    };
    tracing::info!(container = %name, "{ready}, by its engine (process {pid})");
    nfs::say_ready(args, starting, &ready)?;
    let handle = signals.handle();
    let tell = thread::spawn(move || {
        for signal in &mut signals {
            if signal == SIGHUP {
                // Whoever is gone is heard of below.
                let _ = Line::say(&socket, &FromCommand::Reload);
                continue;
            }
            own_gateway::hang_up(&socket);
            return true;
        }
        false
    });
    let said = line.hear()?;
    handle.close();
    // It has nothing left to wait for.
    let is_told = tell.join().unwrap_or_default();
    match said {
        Some(FromGateway::Ended) if is_told => Ok(()),
        Some(FromGateway::Ended) => {
            bail!("the engine (process {pid}) was stopped, and the gateway with it")
        }
        _ => bail!("the engine (process {pid}) has ended without a word, and the gateway with it"),
    }
}

/// Has an engine's process serve. Gives its number, both sides of the line to it, and where it serves.
fn begin_gateway(args: &NfsArgs, pool: PoolId) -> Result<(u32, UnixStream, Line, String)> {
    let words = args.words_for_server()?;
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
    let pid = ask(args.name(), || engines::ask_to_serve(pool, words, theirs.as_fd()))?;
    drop(theirs);
    let mut line = Line::of(ours.try_clone().context("no descriptors are left")?);
    let ready = own_gateway::hear_ready(&mut line)?;
    Ok((pid, ours, line, ready))
}
