//! The coordinator of workers that share a mount: starts them on the access path that it was started on
//! itself. It gives no orders.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use super::worker::WORKER_COMMAND;
use crate::host::programs;

/// The hidden command that a coordinator runs.
pub(crate) const COORDINATOR_COMMAND: &str = "bench-coordinator";
/// Where its workers come to, in a directory of the worker pool.
pub(super) const SOCKET: &str = "workers.sock";

/// The hidden command's arguments.
#[derive(Debug, Args)]
pub(crate) struct CoordinatorArgs {
    workers: usize,
    dir: PathBuf,
}

/// Starts workers that each talk over a connection to the socket in a directory, waits for
/// them, and removes the directory.
///
/// # Errors
/// If a worker cannot be started.
pub(crate) fn coordinate(args: &CoordinatorArgs) -> Result<()> {
    let socket = args.dir.join(SOCKET);
    let program = programs::own()?;
    let mut children = Vec::with_capacity(args.workers);
    for _ in 0..args.workers {
        let stream = UnixStream::connect(&socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        let words = OwnedFd::from(stream.try_clone().context("cannot share a connection")?);
        let child = Command::new(&program)
            .arg(WORKER_COMMAND)
            .stdin(OwnedFd::from(stream))
            .stdout(words)
            .spawn()
            .with_context(|| format!("cannot start a worker ({})", program.display()))?;
        children.push(child);
    }
    for mut child in children {
        // How it ended is known to whoever gave it orders.
        let _ = child.wait();
    }
    // Whoever gave orders may have been killed, and then leaves this to the last one.
    let _ = std::fs::remove_dir_all(&args.dir);
    Ok(())
}
