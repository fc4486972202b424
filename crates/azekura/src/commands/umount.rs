//! `azekura umount`: takes a mount away and waits until its process has ended, or, if that is an engine's, has
//! let go of it. Also cleans up after
//! a process that was killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use rustix::process::Pid;

use crate::host::records::{self, LocalMount};
use crate::host::{mounts, process};
use crate::report;

/// How long the process of a mount may take to finish.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// `azekura umount`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura umount ./mnt\n  \
    azekura umount --lazy ./mnt     also if it is in use: it goes when the last user has gone")]
pub(crate) struct UmountArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Also if it is in use: it goes when its last user has gone
    #[arg(long, short)]
    lazy: bool,
}

/// Runs the command.
///
/// # Errors
/// If nothing of Azekura is mounted there, or it is in use.
pub(crate) fn run(args: &UmountArgs) -> Result<()> {
    let dir = mounts::canonical_mount_point(&args.dir)?;
    let Some(mount) = mounts::at(&dir)? else {
        bail!("{} is not a mount of Azekura: see 'azekura status'", dir.display());
    };
    let was_dead = mounts::is_dead(&dir);
    take_away(&dir, args.lazy)?;
    let dead = if was_dead { " (its process had died)" } else { "" };
    report::say(format_args!("pool '{}' unmounted from {}{dead}", mount.pool, dir.display()));
    Ok(())
}

/// Takes the mount at `dir` away and, unless `lazy`, waits until nobody serves it any more.
///
/// # Errors
/// If it is in use (and `lazy` is not set) or another user's, or its process does not end.
pub(crate) fn take_away(dir: &Path, lazy: bool) -> Result<()> {
    let key = records::mount_key(dir);
    let record: Option<LocalMount> = records::load(&key)?;
    mounts::detach(dir, lazy)?;
    if lazy {
        return Ok(());
    }
    if let Some(record) = record
        && let Some(pid) = mounts::process_of(&record)
    {
        wait_for(dir, &record, pid)?;
    }
    records::remove::<LocalMount>(&key)
}

/// Waits until the process that has served a mount is done with it.
fn wait_for(dir: &Path, record: &LocalMount, pid: Pid) -> Result<()> {
    let (shown, number, limit_s) = (dir.display(), pid.as_raw_pid(), END_TIMEOUT.as_secs());
    if record.by_engine {
        if mounts::wait_until_left(dir, END_TIMEOUT) {
            return Ok(());
        }
        bail!(
            "{shown} is unmounted, but the engine's process {number} has not let go of it after {limit_s} s: \
             look at its log with 'azekura logs'"
        );
    }
    let what = format!("waiting for process {number} to end");
    if process::wait_until_gone(pid, END_TIMEOUT, &what) {
        return Ok(());
    }
    bail!(
        "{shown} is unmounted, but its process {number} has not ended after {limit_s} s: 'kill {number}' \
         ends it"
    )
}
