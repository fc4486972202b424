//! Running a command under the recorder, a preload library. Owns the record, a file in memory that has no name in
//! any directory, so that nothing of it stays whoever is killed, and what the library is told: by the environment
//! and the file's header, nothing else.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use azekura_proto::recording::layout::{self, header};
use azekura_proto::recording::{Recording, VARIABLE, decode};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};

use super::usage::Usage;
use crate::outcome::Verdict;
use crate::run::{self, LD_PRELOAD, Program};

/// What a shell adds to the number of the signal that has ended a program.
const SIGNAL_CODE: i32 = 128;

/// What has become of the command.
pub(super) enum Outcome {
    /// It ran and ended with this code.
    Recorded(Usage, u8),
    /// It could not be started, which was said.
    NotStarted(Verdict),
}

/// Runs the command, recording files below `under`, or all.
///
/// # Errors
/// If there is no preload library, or no room for the record.
pub(super) fn run(words: &[OsString], under: &[PathBuf]) -> Result<Outcome> {
    let record = RecordFile::make(&under_text(under)?).context("cannot make the record")?;
    let program = Program { words: words.to_vec(), argv0: None };
    let preloaded = run::recording()?;
    let caught = run::catch_signals()?;
    let started = Command::new(program.name())
        .args(&words[1..])
        .env(LD_PRELOAD, preloaded)
        .env(VARIABLE, record.path())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Ok(Outcome::NotStarted(run::not_started(&program, &error))),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let running = Arc::new(Mutex::new(pid));
    let told = Arc::clone(&running);
    caught.give_to(move |signal, came_to_all| {
        if let Some(pid) = *told.lock().unwrap_or_else(PoisonError::into_inner)
            && !came_to_all
        {
            // It may have ended in the meantime.
            let _ = kill_process(pid, signal);
        }
    })?;
    let status = wait(&mut child, pid, &running)?;
    let mut recording = record.read().context("cannot read the record")?;
    let (suits, _) = run::suits_preload(program.name());
    if !suits {
        recording.unseen_programs += 1;
    }
    let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    Ok(Outcome::Recorded(Usage::of(&recording, shown.join(" ")), code(status)))
}

/// Waits for the command; nobody else's number is sent a signal.
fn wait(child: &mut Child, pid: Option<Pid>, running: &Mutex<Option<Pid>>) -> Result<ExitStatus> {
    if let Some(pid) = pid {
        // Interrupted waits and their like are repeated by the other wait.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }
    *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    child.wait().context("cannot wait for the command")
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNAL_CODE + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(u8::MAX)
}

/// The directories as the record has them: absolute, without symlinks.
fn under_text(under: &[PathBuf]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for dir in under {
        let path = std::fs::canonicalize(dir)
            .with_context(|| format!("cannot record below {}: make it first", dir.display()))?;
        // Everything lies below the root.
        if path != Path::new("/") {
            text.extend_from_slice(path.as_os_str().as_encoded_bytes());
            text.push(0);
        }
    }
    if text.len() > header::UNDER_BYTES_MAX {
        bail!(
            "the directories after --under take {} bytes, and there is room for {}: name fewer",
            text.len(),
            header::UNDER_BYTES_MAX
        );
    }
    Ok(text)
}

/// The record: a file in memory that programs find by this process's number, for as long as that runs.
struct RecordFile(File);

impl RecordFile {
    fn make(under: &[u8]) -> Result<Self> {
        let mut head = vec![0; header::UNDER * 8];
        let words = [
            (header::MAGIC, layout::MAGIC),
            (header::VERSION, layout::VERSION),
            (header::UNDER_BYTES, under.len() as u64),
        ];
        for (word, value) in words {
            head[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        }
        head.extend_from_slice(under);
        let mut file = File::from(memfd_create("azekura-profile", MemfdFlags::CLOEXEC)?);
        file.write_all(&head)?;
        // Holes: room is taken by what is written.
        file.set_len(layout::FILE_BYTES)?;
        Ok(Self(file))
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn read(&self) -> Result<Recording> {
        let mut head = vec![0; layout::HEADER_BYTES];
        self.0.read_exact_at(&mut head, 0)?;
        let length = usize::try_from(Recording::length(&head)?)?;
        // All at once: to grow would copy it again and again.
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(decode(&bytes)?)
    }
}
