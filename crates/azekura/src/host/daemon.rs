//! Programs in the background. The program starts itself again as a child, which leaves the process
//! group, does its work with standard error in a log file, and says over its standard output
//! when it is ready or why it cannot be. The parent returns only then.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::programs;
use crate::report::{self, Progress};

/// A log file that has grown beyond this is set aside before the next start.
const LOG_BYTES_MAX: u64 = 8 << 20;
const READY: &str = "ready";

/// A program in the background takes longer than anybody wants to wait.
#[derive(Debug)]
pub(crate) struct NotReady {
    /// The process, which goes on.
    pub(crate) pid: u32,
    text: String,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NotReady {}

/// Starts this program in the background with `arguments` and waits until it is ready.
///
/// # Errors
/// What the child says went wrong, or the end of its log if it says nothing.
pub fn launch(arguments: &[OsString], log: &Path, timeout: Duration, what: &str) -> Result<u32> {
    Ok(launch_and_hear(arguments, log, timeout, what)?.0)
}

/// As [`launch`], and gives what the child says of itself when it is ready.
///
/// # Errors
/// Those of [`launch`].
pub(crate) fn launch_and_hear(
    arguments: &[OsString],
    log: &Path,
    timeout: Duration,
    what: &str,
) -> Result<(u32, String)> {
    let log_file = open_log(log)?;
    let program = programs::own()?;
    let mut child = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let pid = child.id();
    let Some(mut words) = child.stdout.take() else { bail!("the child has no standard output") };
    let mut said = Vec::new();
    let mut progress = Progress::waiting(what);
    let started = Instant::now();
    let step = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    while !said.ends_with(b"\n") {
        if started.elapsed() > timeout {
            let text = format!(
                "{what}: not ready after {} s; it goes on in the background as process {pid}; \
                 see {}",
                timeout.as_secs(),
                log.display()
            );
            return Err(NotReady { pid, text }.into());
        }
        progress.tick();
        if !matches!(poll(&mut [PollFd::new(&words, PollFlags::IN)], Some(&step)), Ok(n) if n > 0) {
            continue;
        }
        let mut buffer = [0; 4096];
        match words.read(&mut buffer).context("cannot hear the child")? {
            0 => break,
            bytes => said.extend_from_slice(&buffer[..bytes]),
        }
    }
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match said.strip_prefix(READY) {
        Some("") => return Ok((pid, String::new())),
        Some(rest) if rest.starts_with(' ') => return Ok((pid, rest.trim().to_owned())),
        _ => {}
    }
    // It has said its last word, so this does not take long.
    let _ = child.wait();
    if said.is_empty() {
        return Err(anyhow!("{what}: the process ended at once\n{}", end_of_log(log)));
    }
    Err(anyhow!(said.replace('\u{1f}', "\n")))
}

/// Leaves the process group of whoever has started this process: what a terminal sends, also when it goes, is not meant for
/// it. It stays in the session. Kernels share the processors out among sessions (`sched_autogroup`), and a thread that
/// gives its processor away gives it to its own session: with one of its own, an engine and those who ask it would wait for
/// each other's time to be over.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn leave_group() -> Result<()> {
    match rustix::process::setpgid(None, None) {
        // Who leads a session has a group already.
        Ok(()) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error).context("cannot start a process group of its own"),
    }
}

/// The child's side: tells the parent how the start went.
#[derive(Debug)]
#[must_use]
pub struct Starting {
    in_background: bool,
}

impl Starting {
    /// Leaves the process group of the parent if this is a child in the background.
    pub fn begin(in_background: bool) -> Result<Self> {
        if in_background {
            leave_group()?;
            std::env::set_current_dir("/").context("cannot change to /")?;
        }
        Ok(Self { in_background })
    }

    /// The work is ready: the parent may return.
    pub fn ready(self) -> Result<()> {
        self.ready_as("")
    }

    /// As [`Starting::ready`], with a line that the parent may want to know.
    pub(crate) fn ready_as(self, line: &str) -> Result<()> {
        if self.in_background {
            say(format!("{READY} {line}").trim_end());
            let nowhere = File::options().read(true).write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&nowhere).context("cannot close standard output")?;
        }
        Ok(())
    }

    /// The work cannot start: the parent shows why.
    pub fn failed(self, error: anyhow::Error) -> anyhow::Error {
        if self.in_background {
            // One line on the pipe, whatever the message has.
            say(&report::explain(&error).replace('\n', "\u{1f}"));
        }
        error
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone does not need to know.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

fn open_log(path: &Path) -> Result<File> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".1");
        // An old log that cannot be set aside just grows on.
        let _ = std::fs::rename(path, PathBuf::from(aside));
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot open the log file {}", path.display()))
}

/// The last lines of a log, for an error message.
pub(crate) fn end_of_log(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(5)..].join("\n  ");
    format!("its log, {}, ends with:\n  {end}", path.display())
}
