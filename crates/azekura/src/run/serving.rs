//! `--via fuse`, the process that serves the command's mount. It stays as long as anybody uses that, also when
//! `azekura run` has ended with the command and something that the command has left in the background goes on.
//! Owns that whoever waits for a terminal, a pipe or a directory never waits for it.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_fuse::{ServeConfig, Server, Transport, View};
use azekura_posix::{Credentials, FileSystem, FsConfig};
use clap::{Args, ValueEnum as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::args::Cache;
use super::descriptors;
use super::environment::LD_PRELOAD;
use super::handover::{self, FromServer, MountedDevice};
use super::launch;
use super::mounted::MountedCommand;
use super::namespace::Users;
use crate::connect;
use crate::outcome::Verdict;
use crate::reading::{ReadArgs, WriteArgs};
use crate::report;

/// Name of the hidden command. Its standard input is the socket to `azekura run`.
pub(crate) const SERVE_COMMAND: &str = "run-serve";
/// After the command has ended, its mount goes within moments, unless something that it has left
/// in the background still uses it; that is not waited for.
const LINGER: Duration = Duration::from_millis(500);

/// `azekura run-serve`.
#[derive(Debug, Args)]
pub(crate) struct ServingArgs {
    #[arg(long)]
    pool: String,
    #[arg(long)]
    container: String,
    #[arg(long, value_enum)]
    cache: Cache,
    /// What the command is likely to look at first, from the root on
    #[arg(long)]
    towards: Option<OsString>,
    /// The library reads and writes data, past the mount
    #[arg(long)]
    beside_library: bool,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// Serves the mount.
///
/// # Errors
/// Only if this process cannot be what it should. Whatever else goes wrong is told to `azekura run`.
pub(crate) fn run(args: &ServingArgs) -> Result<Verdict> {
    // Before anything is opened.
    descriptors::close_all(&descriptors::inherited());
    // What a terminal sends is meant for the command.
    rustix::process::setsid().context("cannot leave the terminal")?;
    rustix::process::chdir("/").context("cannot change to /")?;
    let socket = rustix::stdio::stdin();
    let (fs, server) = match serve(args, socket) {
        Ok(Some(serving)) => serving,
        Ok(None) => return Ok(Verdict::Good),
        Err(error) => {
            handover::send_refused(socket, &report::explain(&error))?;
            return Ok(Verdict::Bad);
        }
    };
    if handover::send_as_server(socket, &FromServer::Serving).is_err() {
        // It was ended, and the command with it.
        return Ok(Verdict::Bad);
    }
    hang_up_with_front(socket)?;
    // What is still read ahead, nobody waits for.
    server.wait_gone();
    // Nobody hears it where the command's end was not to wait for this one.
    let _ = handover::send_as_server(socket, &FromServer::Gone);
    let arrived = match server.settle() {
        Ok(()) => FromServer::Arrived,
        Err(errno) => FromServer::Lost(errno.to_string()),
    };
    let _ = handover::send_as_server(socket, &arrived);
    // The front does not wait for that.
    fs.pool().leave();
    Ok(Verdict::Good)
}

/// Serves the mount that `azekura run` hands over. `None` if it goes without.
fn serve(args: &ServingArgs, socket: impl AsFd) -> Result<Option<(Arc<FileSystem>, Server)>> {
    let pool = connect::pool(&args.pool)?;
    let Some((device, users)) = handover::receive_as_server(socket)? else { return Ok(None) };
    // Either the kernel checks permissions, or it knows nobody but this user.
    let view = match users {
        Users::Everybody => View::Everybody,
        Users::OneUser => View::OneUser(Credentials::of_process()),
    };
    let usual = connect::behind_kernel();
    let config = FsConfig {
        cache: args.cache.policy(),
        check_permissions: users == Users::OneUser,
        // The library is a client of its own, and would not see what has not arrived.
        changes_in_flight: usual.changes_in_flight && !args.beside_library,
        ..usual
    };
    let config = args.reading.writing(&args.write).apply_to_mount(config)?;
    let towards = args.towards.as_deref().unwrap_or_default().as_bytes();
    let fs = FileSystem::mount_towards(pool, &args.container, config, towards)?;
    let config = ServeConfig {
        cache: args.cache.of_mount(),
        threads: None,
        transport: Transport::Auto,
        view,
        passthrough: true,
    };
    let server = azekura_fuse::serve(device, Arc::clone(&fs), config)
        .map_err(|error| anyhow!("cannot serve the mount: {error}"))?;
    Ok(Some((fs, server)))
}

/// Lets go of standard error when `azekura run` has ended: from then on nobody expects to hear of this process, and
/// whoever reads to the end of what the command says waits for nobody else.
fn hang_up_with_front(socket: impl AsFd) -> Result<()> {
    let socket = socket.as_fd().try_clone_to_owned().context("cannot watch 'azekura run'")?;
    let watch = move || {
        // The front says no more: what comes is its end.
        let _ = handover::receive_as_server(&socket);
        if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stderr(&nowhere);
        }
    };
    let thread = std::thread::Builder::new().name("front".to_owned()).spawn(watch);
    thread.map(drop).context("cannot start a thread")
}

/// The process that serves a mount, as `azekura run` has it.
#[derive(Debug)]
pub(super) struct Serving {
    process: Child,
    socket: OwnedFd,
}

/// What has become of a mount when its command has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All that was written has arrived.
    Nothing,
    /// Something that the command has left in the background uses it.
    InUse,
    /// Not all has arrived, for this reason.
    Lost(String),
}

impl Serving {
    /// Starts the process.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(mounted: &MountedCommand) -> Result<Self> {
        let (ours, theirs) = handover::pair()?;
        let mut command = launch::this_program(SERVE_COMMAND);
        // As much of a log as this process would write.
        command.args((1..mounted.verbose).map(|_| "-v"));
        command.arg("--pool").arg(&mounted.name.pool);
        command.arg("--container").arg(mounted.name.container());
        if let Some(cache) = mounted.cache.to_possible_value() {
            command.arg("--cache").arg(cache.get_name());
        }
        if mounted.beside_library {
            command.arg("--beside-library");
        }
        if let Some(path) = mounted.first_path() {
            command.arg("--towards").arg(path);
        }
        let options: Vec<OsString> = mounted.reading.options()?;
        command.args(options).env_remove(LD_PRELOAD);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let process = command.spawn().context("cannot start a child process")?;
        Ok(Self { process, socket: ours })
    }

    /// Has it serve a mount; that is ready for use when this returns.
    ///
    /// # Errors
    /// Why it cannot be served.
    pub(super) fn begin(&self, (device, users): MountedDevice) -> Result<()> {
        // Where it is gone already it has said why.
        let sent = handover::send_mounted(&self.socket, device.as_fd(), users);
        drop(device);
        match handover::receive_from_server(&self.socket)? {
            Some(FromServer::Serving) => sent,
            Some(FromServer::Refused(reason)) => Err(anyhow!(reason)),
            _ => bail!("the process that was to serve the mount has ended"),
        }
    }

    /// There is no command, and nothing to serve: leaves no child behind to whatever this process becomes.
    pub(super) fn give_up(mut self) {
        drop(self.socket);
        // It was not to be heard of.
        let _ = self.process.wait();
    }

    /// The command has ended: waits until all has arrived that was written, unless the mount is still in use.
    ///
    /// # Errors
    /// If the process cannot be heard.
    pub(super) fn end(self) -> Result<Left> {
        let deadline = Instant::now() + LINGER;
        let mut is_gone = false;
        loop {
            if !is_gone && !self.says_something(deadline)? {
                return Ok(Left::InUse);
            }
            match handover::receive_from_server(&self.socket)? {
                Some(FromServer::Gone) => is_gone = true,
                Some(FromServer::Arrived) => return Ok(Left::Nothing),
                Some(FromServer::Lost(reason)) => return Ok(Left::Lost(reason)),
                _ => {
                    let reason = "the process that served the mount has ended".to_owned();
                    return Ok(Left::Lost(reason));
                }
            }
        }
    }

    fn says_something(&self, deadline: Instant) -> Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Err(rustix::io::Errno::INTR) => {}
                ready => return Ok(ready.context("cannot wait for the mount to go")? > 0),
            }
        }
    }
}
