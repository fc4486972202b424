//! `--via fuse`, whoever serves the command's mount as `azekura run` has it: a process of its own, or that of an engine.
//! Owns how it is started and asked, and how long its end is waited for.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_proto::PoolId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::environment::LD_PRELOAD;
use super::handover::{self, FromServer, MountedDevice};
use super::launch;
use super::mounted::MountedCommand;
use super::server;
use crate::host::engines;

/// After the command has ended, its mount goes within moments, unless something that it has left
/// in the background still uses it; that is not waited for.
const LINGER: Duration = Duration::from_millis(500);

/// Whoever serves a mount.
#[derive(Debug)]
pub(super) struct Serving {
    /// A process that serves nothing else, if there is one.
    process: Option<Child>,
    line: OwnedFd,
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
    /// Starts the process, or asks that of an engine of the pool.
    ///
    /// # Errors
    /// If it cannot be started, or no engine is asked that does it.
    pub(super) fn start(mounted: &MountedCommand, pool: PoolId) -> Result<Self> {
        let (line, theirs) = handover::pair()?;
        let words = server::words(mounted)?;
        if mounted.with_engine {
            if engines::ask_to_serve(pool, words, theirs.as_fd())?.is_none() {
                bail!("{}", engines::NONE_HERE);
            }
            return Ok(Self { process: None, line });
        }
        let mut command = launch::this_program(&words[0]);
        // As much of a log as this process would write.
        command.args((1..mounted.verbose).map(|_| "-v"));
        command.args(&words[1..]).env_remove(LD_PRELOAD);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let process = command.spawn().context("cannot start a child process")?;
        Ok(Self { process: Some(process), line })
    }

    /// Has it serve a mount; that is ready for use when this returns.
    ///
    /// # Errors
    /// Why it cannot be served.
    pub(super) fn begin(&self, (device, users): MountedDevice) -> Result<()> {
        // Where it is gone already it has said why.
        let sent = handover::send_mounted(&self.line, device.as_fd(), users);
        drop(device);
        match handover::receive_from_server(&self.line)? {
            Some(FromServer::Serving) => sent,
            Some(FromServer::Refused(reason)) => Err(anyhow!(reason)),
            _ => bail!("the process that was to serve the mount has ended"),
        }
    }

    /// There is no command, and nothing to serve: leaves no child behind to whatever this process becomes.
    pub(super) fn give_up(mut self) {
        drop(self.line);
        if let Some(process) = &mut self.process {
            // It was not to be heard of.
            let _ = process.wait();
        }
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
            match handover::receive_from_server(&self.line)? {
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
            match poll(&mut [PollFd::new(&self.line, PollFlags::IN)], Some(&left)) {
                Err(rustix::io::Errno::INTR) => {}
                ready => return Ok(ready.context("cannot wait for the mount to go")? > 0),
            }
        }
    }
}
