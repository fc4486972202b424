//! `--via fuse`, whoever serves the command's mount: a process of its own, or that of an engine. It stays as long as
//! anybody uses the mount, also when `azekura run` has ended with the command and something that the command has
//! left in the background goes on. Owns that whoever waits for a terminal, a pipe or a directory never waits for it.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use azekura_client::Pool;
use azekura_fuse::{ServeConfig, Server, Transport, View};
use azekura_posix::{Credentials, FileSystem, FsConfig};
use clap::{Args, ValueEnum as _};

use super::args::Cache;
use super::descriptors;
use super::handover::{self, FromServer};
use super::mounted::MountedCommand;
use super::namespace::Users;
use crate::connect;
use crate::host::daemon;
use crate::outcome::Verdict;
use crate::reading::{ReadArgs, WriteArgs};
use crate::report;

/// Name of the hidden command. Its standard input is the line to `azekura run`.
pub(crate) const SERVE_COMMAND: &str = "run-serve";

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
    /// The command's groups, the first of which is its own
    #[arg(long, required = true, value_delimiter = ',')]
    groups: Vec<u32>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
}

impl ServingArgs {
    /// The user of the command, where the kernel knows no other.
    fn user(&self) -> Credentials {
        Credentials {
            gid: self.groups[0],
            groups: self.groups[1..].to_vec(),
            ..Credentials::of_process()
        }
    }
}

/// The words by which the mount of a command is served.
///
/// # Errors
/// If a path among them cannot be made absolute.
pub(super) fn words(mounted: &MountedCommand) -> Result<Vec<OsString>> {
    let user = Credentials::of_process();
    let groups: Vec<String> =
        [user.gid].iter().chain(&user.groups).map(ToString::to_string).collect();
    let mut words: Vec<OsString> = vec![SERVE_COMMAND.into()];
    let mut add = |flag: &str, value: OsString| words.extend([OsString::from(flag), value]);
    add("--pool", mounted.name.pool.clone().into());
    add("--container", mounted.name.container().into());
    if let Some(cache) = mounted.cache.to_possible_value() {
        add("--cache", cache.get_name().into());
    }
    if let Some(path) = mounted.first_path() {
        add("--towards", path.into());
    }
    add("--groups", groups.join(",").into());
    if mounted.beside_library {
        words.push("--beside-library".into());
    }
    words.extend(mounted.reading.options()?);
    Ok(words)
}

/// Serves the mount by a process of its own, which this one is.
///
/// # Errors
/// Only if this process cannot be what it should. Whatever else goes wrong is told to `azekura run`.
pub(crate) fn run(args: &ServingArgs) -> Result<Verdict> {
    // Before anything is opened.
    descriptors::close_all(&descriptors::inherited());
    // What a terminal sends is meant for the command.
    daemon::leave_group()?;
    rustix::process::chdir("/").context("cannot change to /")?;
    let line = rustix::stdio::stdin().try_clone_to_owned().context("no descriptors are left")?;
    match ServedMount::begin(args, line, || connect::pool(&args.pool)) {
        Ok(Some(served)) => {
            hang_up_with_front(&served.line)?;
            served.stay();
            // The front does not wait for that, and nobody for what is still read ahead.
            served.fs.pool().leave();
            Ok(Verdict::Good)
        }
        Ok(None) => Ok(Verdict::Good),
        // The front has been told.
        Err(_) => Ok(Verdict::Bad),
    }
}

/// The mount of a command, as it is served.
#[derive(Debug)]
pub(crate) struct ServedMount {
    line: OwnedFd,
    fs: Arc<FileSystem>,
    server: Server,
}

impl ServedMount {
    /// Serves the mount that `azekura run` hands over through the line, of the pool that `connect` reaches, and tells
    /// it so. `None` if it goes without.
    ///
    /// # Errors
    /// Why it is not served, which has been told.
    pub(crate) fn begin(
        args: &ServingArgs,
        line: OwnedFd,
        connect: impl FnOnce() -> Result<Arc<Pool>>,
    ) -> Result<Option<Self>> {
        let begun = serve(args, &line, connect).inspect_err(|error| {
            let _ = handover::send_refused(&line, &report::explain(error));
        });
        let Some((fs, server)) = begun? else { return Ok(None) };
        // It may have been ended, and the command with it.
        handover::send_as_server(&line, &FromServer::Serving)?;
        Ok(Some(Self { line, fs, server }))
    }

    /// The file system of the mount.
    pub(crate) fn file_system(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// Waits until nobody uses the mount any more, and what was written through it has arrived.
    pub(crate) fn stay(&self) {
        self.server.wait_gone();
        // Nobody hears it where the command's end was not to wait for this one.
        let _ = handover::send_as_server(&self.line, &FromServer::Gone);
        let arrived = match self.server.settle() {
            Ok(()) => FromServer::Arrived,
            Err(errno) => FromServer::Lost(errno.to_string()),
        };
        let _ = handover::send_as_server(&self.line, &arrived);
    }

    /// After [`ServedMount::stay`], for a process that goes on: waits until nothing is done for the mount any more.
    pub(crate) fn end(self) {
        // What has not arrived was told of.
        let _ = self.server.wait();
        self.fs.pool().leave();
    }
}

/// Serves the mount that `azekura run` hands over. `None` if it goes without.
fn serve(
    args: &ServingArgs,
    line: impl AsFd,
    connect: impl FnOnce() -> Result<Arc<Pool>>,
) -> Result<Option<(Arc<FileSystem>, Server)>> {
    let pool = connect()?;
    let Some((device, users)) = handover::receive_as_server(line)? else { return Ok(None) };
    // Either the kernel checks permissions, or it knows nobody but this user.
    let view = match users {
        Users::Everybody => View::Everybody,
        Users::OneUser => View::OneUser(args.user()),
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
    fs.open_first_file();
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
