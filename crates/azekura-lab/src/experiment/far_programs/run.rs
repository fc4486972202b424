//! Commands that are run to their end, or ended with all that they have started when their time is
//! over. Knows no hosts.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::load::last_line;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::experiment::frame::Settings;

/// A program is ended after so long.
pub(super) const LIMIT_S: f64 = 120.0;
const QUICK_LIMIT_S: f64 = 30.0;

/// How long a program may run.
pub(super) fn limit(settings: &Settings) -> Duration {
    let seconds = if settings.quick { QUICK_LIMIT_S } else { settings.point_s };
    Duration::from_secs_f64(seconds)
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// By itself, after so many seconds.
    Done(f64),
    /// It was ended.
    CutShort,
}

impl End {
    /// Seconds of a run; those after which it was ended, if it was.
    pub(super) fn seconds(self, limit: Duration) -> f64 {
        match self {
            Self::Done(seconds) => seconds,
            Self::CutShort => limit.as_secs_f64(),
        }
    }
}

/// Runs a command of this machine to its end.
///
/// # Errors
/// If it cannot be started or fails: what it said last.
pub(super) fn to_end(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("cannot run {name}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        bail!("{name} ended with {}, and said: {last}", done.status);
    }
    Ok(())
}

/// Runs a command by way of `spawn`, for so long at most; what it says goes to a file. When its
/// time is over it is killed, and `release` is to let go what it may hang on.
///
/// # Errors
/// If it cannot be started or fails: what it said last.
pub(super) fn within_limit(
    command: &mut Command,
    limit: Duration,
    log: &Path,
    spawn: impl FnOnce(&mut Command) -> Result<Child>,
    release: impl FnOnce(),
) -> Result<End> {
    let name = command.get_program().to_string_lossy().into_owned();
    let said = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    // A group of its own, so that all of it can be ended.
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).process_group(0);
    let begun = Instant::now();
    let mut child = spawn(command)?;
    let in_time = wait(&child, begun + limit);
    if !matches!(in_time, Ok(true)) {
        // It may have ended in this very moment.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        release();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
    if !in_time? {
        return Ok(End::CutShort);
    }
    if !status.success() {
        bail!("{name} ended with {status}, and said: {}", last_line(log));
    }
    Ok(End::Done(seconds))
}

/// Waits for the end of a process, until then: whether it came.
///
/// # Errors
/// If the process cannot be watched.
pub(super) fn wait(child: &Child, deadline: Instant) -> Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .context("cannot watch a process")?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            // A signal to this process ends it after the point at hand.
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done.context("cannot watch a process")? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit_ms: u64) -> Result<End> {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let limit = Duration::from_millis(limit_ms);
        within_limit(&mut command, limit, &dir.path().join("log"), |it| Ok(it.spawn()?), || ())
    }

    #[test]
    fn a_command_ends_by_itself_or_is_ended_with_all_it_started() {
        assert!(matches!(run("true", 20_000), Ok(End::Done(seconds)) if seconds < 20.0));
        let begun = Instant::now();
        assert_eq!(run("sleep 60 | cat", 50).unwrap(), End::CutShort);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_failure_is_told_with_what_was_said() {
        let error = run("echo before; echo the reason >&2; exit 3", 20_000).unwrap_err();
        assert!(error.to_string().contains("the reason"), "{error}");
        let error = to_end(Command::new("sh").args(["-c", "echo why >&2; false"])).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
        assert!(to_end(Command::new("sh").args(["-c", "true"])).is_ok());
    }
}
