//! A mount on a host, with the process that serves it. Owns that process: it ends with this value
//! at the latest.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::load::last_line;

use super::run::wait;

/// How often somebody looks whether it is there.
const PAUSE: Duration = Duration::from_millis(5);

/// Something mounted.
pub(super) struct Mounted(Child);

impl Mounted {
    /// Waits until a process has mounted at that path; it says what it says to a file.
    ///
    /// # Errors
    /// If it ends before, or takes longer than that: what it said last.
    pub(super) fn by(process: Child, at: &str, log: &Path, limit: Duration) -> Result<Self> {
        let (mut mounted, deadline) = (Self(process), Instant::now() + limit);
        // The mounts of its host, which this process does not see.
        let mounts = format!("/proc/{}/mounts", mounted.0.id());
        while !is_mounted(&std::fs::read_to_string(&mounts).unwrap_or_default(), at) {
            let has_ended = !matches!(mounted.0.try_wait(), Ok(None));
            if has_ended || Instant::now() > deadline {
                bail!("nothing is mounted at {at}: {}", last_line(log));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(mounted)
    }

    /// Waits for the end of the process, once the mount has been taken away: whether it came by
    /// then.
    ///
    /// # Errors
    /// If the process cannot be watched.
    pub(super) fn has_ended(&mut self, deadline: Instant) -> Result<bool> {
        // One that was seen to end before cannot be watched any more.
        if self.0.try_wait().context("cannot wait for a mount")?.is_some() {
            return Ok(true);
        }
        wait(&self.0, deadline)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing can be done about one that is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether something is mounted at a path, by the text of a table of mounts.
fn is_mounted(mounts: &str, at: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(at))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn mounts_are_found_by_their_whole_path() {
        let mounts = "tmpfs / tmpfs rw 0 0\nroot@far:/x /a/far1 fuse.sshfs rw,nosuid 0 0\n";
        assert!(is_mounted(mounts, "/a/far1") && is_mounted(mounts, "/"));
        assert!(!is_mounted(mounts, "/a/far") && !is_mounted("", "/"));
    }

    #[test]
    fn an_end_is_seen_however_often_one_looks() {
        let mut mounted = Mounted(Command::new("sleep").arg("60").spawn().unwrap());
        assert!(!mounted.has_ended(Instant::now()).unwrap());
        mounted.0.kill().unwrap();
        for _ in 0..3 {
            assert!(mounted.has_ended(Instant::now() + Duration::from_secs(20)).unwrap());
        }
    }

    #[test]
    fn a_process_that_ends_without_a_mount_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "no such server\n").unwrap();
        let process = Command::new("true").spawn().unwrap();
        let failed = Mounted::by(process, "/no/such/path", &log, Duration::from_secs(20));
        assert!(failed.err().unwrap().to_string().contains("no such server"));
    }
}
