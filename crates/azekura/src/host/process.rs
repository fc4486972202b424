//! Processes of this machine by number. Waits on descriptors of processes, so that a number given
//! to a new process in the meantime deceives nobody for long.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::report::Progress;

/// The id of a running process. One that has ended and only waits to be reaped does not count.
pub(crate) fn running(pid: u32) -> Option<Pid> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The state follows the name, which stands in parentheses and may hold anything.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    (state != 'Z' && state != 'X').then_some(pid)
}

/// Whether the process runs this program with `word` among its arguments.
pub(crate) fn is_ours(pid: u32, word: &str) -> bool {
    let Ok(arguments) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut arguments = arguments.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    let program = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let own = std::env::args_os().next().unwrap_or_default();
    let own = Path::new(&own).file_name().unwrap_or_default();
    // Background processes carry the name of the command that started them.
    let is_program = program.starts_with(b"azekura") || program == own.as_encoded_bytes();
    is_program && arguments.any(|argument| argument == word.as_bytes())
}

/// Asks a process to end in good order.
pub(crate) fn ask_to_end(pid: Pid) -> Result<()> {
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| {
            format!("cannot send SIGTERM to process {}: is it another user's?", pid.as_raw_pid())
        }),
    }
}

/// Waits until the process has ended. `false` if it is still there after `timeout`.
pub(crate) fn wait_until_gone(pid: Pid, timeout: Duration, what: &str) -> bool {
    let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => Some(descriptor),
        Err(Errno::SRCH) => return true,
        // Old kernels have none; asking again and again does as well.
        Err(_) => None,
    };
    let started = Instant::now();
    let mut progress = Progress::waiting(what);
    let step = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while started.elapsed() < timeout {
        match &descriptor {
            Some(descriptor) => {
                let ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&step));
                if matches!(ready, Ok(count) if count > 0) {
                    return true;
                }
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
        if running(pid.as_raw_pid().cast_unsigned()).is_none() {
            return true;
        }
        progress.tick();
    }
    false
}

/// Processes, at most three, that work below `dir` or have files open there.
pub(crate) fn users_of(dir: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut users = Vec::new();
    for process in processes.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        if pid == std::process::id() {
            continue;
        }
        let base = process.path();
        let mut links = vec![base.join("cwd"), base.join("root")];
        if let Ok(files) = std::fs::read_dir(base.join("fd")) {
            links.extend(files.flatten().map(|file| file.path()));
        }
        let is_below = |link: &std::path::PathBuf| {
            std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir))
        };
        if links.iter().any(is_below) {
            let name = std::fs::read_to_string(base.join("comm")).unwrap_or_default();
            users.push(format!("{} ({pid})", name.trim()));
            if users.len() == 3 {
                break;
            }
        }
    }
    users
}

/// What keeps new files from having permissions that the user never gives.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok())
        .unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = running(child.id()).expect("it runs");
        assert!(!wait_until_gone(pid, Duration::from_millis(10), "waiting"));
        ask_to_end(pid).unwrap();
        assert!(wait_until_gone(pid, Duration::from_secs(10), "waiting"));
        assert!(running(child.id()).is_none(), "a zombie does not run");
        child.wait().unwrap();
    }

    #[test]
    fn only_this_program_is_ours() {
        assert!(!is_ours(1, "serve"));
    }
}
