//! The child of `azekura run`: makes a namespace, mounts in it, hands the device to its parent, and
//! becomes the command. Has one thread, and leaves the command no descriptor of its own.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use azekura_fuse::AttachConfig;
use clap::Args;
use rustix::process::Signal;

use super::args::Cache;
use super::descriptors::Reopen;
use super::handover::{self, ToChild};
use super::launch::{self, Program};
use super::namespace::Users;
use super::{environment, namespace, root};
use crate::outcome::Verdict;
use crate::report;

/// Name of the hidden command. Its standard input is the socket to the parent.
pub(crate) const INSIDE_COMMAND: &str = "run-inside";

/// `azekura run-inside`.
#[derive(Debug, Args)]
pub(crate) struct InsideArgs {
    #[arg(long)]
    prefix: PathBuf,
    #[arg(long)]
    fsname: String,
    #[arg(long, value_enum)]
    cache: Cache,
    #[arg(long)]
    cwd: Option<PathBuf>,
    #[arg(long)]
    argv0: Option<OsString>,
    /// The command's `LD_PRELOAD`; this process itself has none
    #[arg(long)]
    ld_preload: Option<OsString>,
    #[arg(long)]
    reopen: Vec<OsString>,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// Only if the parent cannot be talked to. Whatever else goes wrong is told to the parent, or on
/// standard error.
pub(crate) fn run(args: InsideArgs) -> Result<Verdict> {
    let socket = rustix::stdio::stdin();
    let Some(ToChild::Begin(stdin)) = handover::receive_as_child(socket)? else {
        bail!("this command is for the use of 'azekura run' only");
    };
    match mount(&args) {
        Ok((device, users)) => handover::send_mounted(socket, device.as_fd(), users)?,
        Err(error) => {
            handover::send_refused(socket, &report::explain(&error))?;
            return Ok(Verdict::Bad);
        }
    }
    // The parent serves the mount, and the command is of no use without it. Were the parent gone
    // already, the socket would say so.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot tie the command to 'azekura run'")?;
    if !matches!(handover::receive_as_child(socket)?, Some(ToChild::Go)) {
        return Ok(Verdict::Bad);
    }
    // The kernel has not asked for the attributes of the root yet, takes it for somebody else's until
    // then, and may not ask before it refuses to make something there.
    rustix::fs::stat(&args.prefix)
        .with_context(|| format!("cannot look at {}", args.prefix.display()))?;
    azekura_fuse::raise_readahead(&args.prefix, args.cache.of_mount());
    rustix::stdio::dup2_stdin(&stdin).context("cannot hand over standard input")?;
    drop(stdin);
    if let Some(dir) = &args.cwd {
        enter(dir)?;
    }
    for reopen in &args.reopen {
        Reopen::parse(reopen)?.open()?;
    }
    let variables = match args.ld_preload {
        Some(value) => vec![(environment::LD_PRELOAD, Some(value))],
        None => Vec::new(),
    };
    Ok(launch::become_program(&Program { words: args.command, argv0: args.argv0 }, &variables))
}

/// Mounts at the prefix, where nobody else sees it.
fn mount(args: &InsideArgs) -> Result<(OwnedFd, Users)> {
    let users = namespace::enter()?;
    root::provide(&args.prefix)?;
    let config = AttachConfig {
        mountpoint: args.prefix.clone(),
        read_only: false,
        fsname: args.fsname.clone(),
        kernel_checks: users == Users::Everybody,
    };
    Ok((azekura_fuse::attach(&config)?, users))
}

fn enter(dir: &Path) -> Result<()> {
    rustix::process::chdir(dir).with_context(|| format!("cannot enter {}", dir.display()))
}
