//! `azekura umount`: takes a mount away and waits until its process has ended. Also cleans up after
//! a process that was killed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

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
    let key = records::mount_key(&dir);
    let record: Option<LocalMount> = records::load(&key)?;
    mounts::detach(&dir, args.lazy)?;
    if let Some(pid) = record.as_ref().and_then(mounts::process_of).filter(|_| !args.lazy) {
        let what = format!("waiting for process {} to end", pid.as_raw_pid());
        if !process::wait_until_gone(pid, END_TIMEOUT, &what) {
            bail!(
                "{} is unmounted, but its process {} has not ended after {} s: 'kill {}' ends it",
                dir.display(),
                pid.as_raw_pid(),
                END_TIMEOUT.as_secs(),
                pid.as_raw_pid()
            );
        }
    }
    if !args.lazy {
        records::remove::<LocalMount>(&key)?;
    }
    let dead = if was_dead { " (its process had died)" } else { "" };
    report::say(format_args!("pool '{}' unmounted from {}{dead}", mount.pool, dir.display()));
    Ok(())
}
