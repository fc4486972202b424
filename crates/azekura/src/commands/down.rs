//! `azekura down`: stops the engines of a pool that run on this machine, in good order.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use azekura_client::{PoolFile, PoolFileError};
use azekura_proto::EngineId;
use azekura_proto::pool_map::Address;
use clap::Args;
use rustix::process::Pid;

use super::serve::{self, OWN_FILES, POOL_RECORD, TARGETS_DIR};
use super::umount;
use crate::asking;
use crate::host::gateways::Identity;
use crate::host::records::{self, LocalPool, PoolLock};
use crate::host::{gateways, mounts, places, process};
use crate::names::{DEFAULT_CONTAINER, check_name};
use crate::report;

/// How long an engine may take to drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);

/// `azekura down`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura down default             stop it; 'azekura up' starts it again\n  \
    azekura down fast --destroy      stop it and remove all that is in it, after asking")]
pub(crate) struct DownArgs {
    /// Name of the pool
    #[arg(value_name = "POOL", default_value = "default", value_parser = check_name)]
    name: String,
    /// Remove the pool with all that is in it
    #[arg(long)]
    destroy: bool,
    /// Do not ask before destroying
    #[arg(long, short, requires = "destroy")]
    yes: bool,
}

impl DownArgs {
    /// For a pool that is to go with all that is in it.
    pub(crate) fn destroying(name: String, yes: bool) -> Self {
        Self { name, destroy: true, yes }
    }
}

/// Whether an engine at this address runs on this machine.
fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(host_port) => host_port
            .to_socket_addrs()
            .is_ok_and(|mut found| found.any(|address| is_own(address.ip()))),
    }
}

fn is_own(ip: IpAddr) -> bool {
    // Only a host's own address can be listened at.
    ip.is_loopback() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// Engines of the pool that run here, and a line for each that does not.
fn engines_of(name: &str, record: Option<&LocalPool>) -> Result<(Vec<Pid>, Vec<String>)> {
    let mut pids = Vec::new();
    let mut elsewhere = Vec::new();
    let path = PoolFile::path_of(name);
    let file = match PoolFile::load(&path) {
        // A pool in memory that a reboot has taken, with its secret.
        Err(PoolFileError::Secret(_)) => None,
        Err(PoolFileError::Io { .. }) if !path.exists() => None,
        other => Some(other?),
    };
    if let Some(file) = file {
        let secret = file.secret()?;
        for id in 0..file.map.engines.len() as u16 {
            let Ok((address, report)) = asking::ask_engine(&file.map, EngineId(id), &secret) else {
                continue;
            };
            if is_local(&address) {
                pids.extend(process::running(report.pid));
            } else {
                elsewhere.push(format!(
                    "engine {id} at {address} runs on another host: stop it there \
                     ('kill {}')",
                    report.pid
                ));
            }
        }
    }
    if pids.is_empty() {
        // It may run and not answer.
        pids.extend(record.and_then(|record| serve::running_engine(record.pid)));
    }
    Ok((pids, elsewhere))
}

/// Runs the command.
///
/// # Errors
/// If an engine does not stop, or nothing is known of the pool.
pub(crate) fn run(args: &DownArgs) -> Result<()> {
    let name = &args.name;
    if args.destroy {
        // Before the lock, since a person may take their time.
        allow_destroying(name, args.yes)?;
    }
    let _lock = PoolLock::take(name)?;
    let record = known(name)?;
    let (pids, elsewhere) = engines_of(name, record.as_ref())?;
    take_own_mounts_away(name)?;
    if !args.destroy {
        warn_of_users(name)?;
    }
    for pid in &pids {
        process::ask_to_end(*pid)?;
    }
    for pid in &pids {
        let what = format!("waiting for process {} to drain", pid.as_raw_pid());
        if !process::wait_until_gone(*pid, DRAIN_TIMEOUT, &what) {
            bail!(
                "process {} of pool '{name}' still drains after {} s: look at {}; 'kill -9 {}' \
                 ends it at once and loses nothing that was answered",
                pid.as_raw_pid(),
                DRAIN_TIMEOUT.as_secs(),
                places::log_file(name)?.display(),
                pid.as_raw_pid()
            );
        }
    }
    match (pids.len(), elsewhere.len()) {
        (0, 0) => report::say(format_args!("pool '{name}' does not run")),
        (0, _) => report::say(format_args!("pool '{name}' has no engine on this machine")),
        (_, _) => report::say(format_args!("pool '{name}' stopped")),
    }
    for line in elsewhere {
        report::note(format_args!("azekura: {line}"));
    }
    match record {
        Some(record) if args.destroy => destroy(name, &record),
        Some(record) => {
            tell_how_to_go_on(name, &record);
            Ok(())
        }
        None => Ok(()),
    }
}

/// The record of a pool that is known here; `None` if it was not made by `azekura up`.
fn known(name: &str) -> Result<Option<LocalPool>> {
    let record: Option<LocalPool> = records::load(name)?;
    if record.is_none() && !PoolFile::path_of(name).exists() {
        bail!("no pool '{name}' is known here: see 'azekura status'");
    }
    Ok(record)
}

/// Whether a pool can be destroyed, and is to be: asked before anything is stopped.
fn allow_destroying(name: &str, yes: bool) -> Result<()> {
    let Some(record) = known(name)? else {
        bail!(
            "pool '{name}' was not made by 'azekura up' here, so its directories are not known: \
             stop its engines and remove their directories, then run 'azekura pool forget {name}'"
        )
    };
    refuse_in_use(name, None)?;
    let dir = record.dir.display();
    report::confirm(&format!("destroy pool '{name}' with all that is in {dir}"), yes)
}

/// Refuses what would pull the ground from under a mount or a gateway of the pool, or of one of its
/// containers.
///
/// # Errors
/// If there is one: it is named.
pub(crate) fn refuse_in_use(pool: &str, container: Option<&str>) -> Result<()> {
    let found = mounts::of_named(pool)?.into_iter().find(|mount| {
        let mounted = mount.container.as_deref().unwrap_or(DEFAULT_CONTAINER);
        match container {
            Some(container) => container == mounted,
            // One that the engine serves itself goes with it, in good order.
            None => mounts::engine_of(&mount.dir).is_none(),
        }
    });
    if let Some(mount) = found {
        let dir = mount.dir.display();
        bail!("it is mounted at {dir}: take that away first with 'azekura umount {dir}'");
    }
    let found = gateways::of_named(pool)?
        .into_iter()
        .find(|gateway| container.is_none_or(|name| name == gateway.identity.container));
    if let Some(gateway) = found {
        let Identity { address, pid, .. } = gateway.identity;
        bail!("a gateway serves it by NFS at {address}: end that first with 'kill {pid}'");
    }
    Ok(())
}

/// Takes the mounts away that engines of the pool serve themselves, before those are stopped.
fn take_own_mounts_away(name: &str) -> Result<()> {
    // One may lie in an older one.
    for mount in mounts::of_named(name)?.into_iter().rev() {
        if mounts::engine_of(&mount.dir).is_some() {
            umount::take_away(&mount.dir, false)?;
            report::say(format_args!("pool '{name}' unmounted from {}", mount.dir.display()));
        }
    }
    Ok(())
}

fn warn_of_users(name: &str) -> Result<()> {
    for mount in mounts::of_named(name)? {
        report::note(format_args!(
            "azekura: {} is a mount of pool '{name}': it waits and then fails until the pool is \
             up again; 'azekura umount {}' takes it away",
            mount.dir.display(),
            mount.dir.display()
        ));
    }
    for gateway in gateways::of_named(name)? {
        let Identity { address, pid, by_engine, .. } = gateway.identity;
        if by_engine {
            report::note(format_args!(
                "azekura: pool '{name}' is no longer served by NFS at {address}: its engine did that"
            ));
            continue;
        }
        report::note(format_args!(
            "azekura: process {pid} serves pool '{name}' by NFS at {address}: its clients wait until \
             the pool is up again; 'kill {pid}' ends it"
        ));
    }
    Ok(())
}

fn tell_how_to_go_on(name: &str, record: &LocalPool) {
    let dir = record.dir.display();
    report::say(if !record.dir.exists() {
        format!("{dir} is not there any more: 'azekura pool forget {name}' forgets the pool")
    } else if record.in_memory {
        format!(
            "its data still take memory in {dir}: 'azekura up --name {name}' starts it again, \
             'azekura down {name} --destroy' frees it"
        )
    } else {
        format!("its data stay in {dir}: 'azekura up --name {name}' starts it again")
    });
}

fn destroy(name: &str, record: &LocalPool) -> Result<()> {
    let dir = &record.dir;
    if dir.join(POOL_RECORD).exists() || dir.join(TARGETS_DIR).exists() {
        empty_pool_dir(dir)?;
        // Something of another kind in there is not this program's to remove.
        let _ = std::fs::remove_dir(dir);
    }
    if let Ok(socket) = places::socket_path(name) {
        // The engine has removed it, unless it was killed.
        let _ = std::fs::remove_file(socket);
    }
    forget(name)?;
    report::say(format_args!("pool '{name}' destroyed, {} removed", dir.display()));
    Ok(())
}

/// Removes what an engine keeps in its directory.
///
/// # Errors
/// If it is not this user's to remove.
pub(crate) fn empty_pool_dir(dir: &Path) -> Result<()> {
    let cannot = || format!("cannot remove {}", dir.display());
    // What makes it a pool goes first, so that a half-removed one is never started.
    for name in OWN_FILES {
        match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(cannot);
            }
            _ => {}
        }
    }
    match std::fs::remove_dir_all(dir.join(TARGETS_DIR)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(cannot);
        }
        _ => {}
    }
    Ok(())
}

/// Forgets how to reach a pool.
///
/// # Errors
/// If its files cannot be removed.
pub(crate) fn forget(name: &str) -> Result<()> {
    let path = PoolFile::path_of(name);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", path.display()));
        }
        _ => {}
    }
    records::remove::<LocalPool>(name)
}
