//! A command in another host than the one that its caller is in. No process may enter process ids beside
//! its own (setns(2)), so the lab, which stands above all hosts, starts the command; the caller's streams
//! travel to it as descriptors, signals as bytes. The command dies with its caller.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};

use crate::host::NameSpaces;
use crate::sys;

/// Standard input, output and error.
const STREAMS: usize = 3;

/// A command, and what it is to find.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Errand {
    /// The host that it is to run in.
    pub host: String,
    words: Vec<Vec<u8>>,
    directory: Vec<u8>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Errand {
    /// A command, with the directory and the environment of this process.
    pub fn of_this_process(host: &str, words: &[OsString]) -> Self {
        let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Self {
            host: host.to_owned(),
            words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            directory: directory.into_os_string().into_vec(),
            environment: std::env::vars_os()
                .map(|(name, value)| (name.into_vec(), value.into_vec()))
                .collect(),
        }
    }

    fn command(&self) -> Option<Command> {
        let (program, arguments) = self.words.split_first()?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let mut command = Command::new(text(program));
        command.args(arguments.iter().map(|word| text(word))).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (text(name), text(value))));
        // The caller's terminal is another session's: what it sends goes through the caller.
        command.process_group(0);
        Some(command)
    }
}

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has ended, with this exit code.
    Ended(u8),
    /// It could not be started.
    NotStarted {
        /// Whether there is no such command.
        missing: bool,
        /// Why.
        why: String,
    },
    /// The host cannot be entered, for this reason.
    Failed(String),
}

/// Reads a stream, and keeps the descriptors that come along.
#[derive(Debug)]
pub(crate) struct WithStreams<'a> {
    stream: &'a UnixStream,
    streams: Vec<OwnedFd>,
}

impl<'a> WithStreams<'a> {
    pub(crate) fn new(stream: &'a UnixStream) -> Self {
        Self { stream, streams: Vec::new() }
    }

    /// What came along, if it is three.
    pub(crate) fn into_streams(self) -> Option<[OwnedFd; STREAMS]> {
        self.streams.try_into().ok()
    }
}

impl Read for WithStreams<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(into)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let came = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(self.stream, &mut parts, &mut along, flags)
        })?;
        for message in along.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.streams.extend(descriptors);
            }
        }
        Ok(came.bytes)
    }
}

/// Sends a line, with this process's standard streams.
pub(crate) fn send_with_streams(mut stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    along.push(SendAncillaryMessage::ScmRights(&streams));
    let parts = [IoSlice::new(line)];
    let sent = rustix::net::sendmsg(stream, &parts, &mut along, SendFlags::NOSIGNAL)?;
    stream.write_all(&line[sent..])
}

/// A command that the lab runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Underway {
    stream: UnixStream,
}

impl Underway {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Passes a signal on to the command.
    ///
    /// # Errors
    /// If the lab is gone.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        (&self.stream).write_all(&[number as u8])
    }
}

/// Runs the command in the host to its end. Ends it when the caller goes.
pub(crate) fn carry_out(
    errand: &Errand,
    spaces: &NameSpaces,
    streams: Option<[OwnedFd; STREAMS]>,
    caller: &UnixStream,
) -> Outcome {
    let failed =
        |what: &str| Outcome::Failed(format!("cannot run a command in '{}': {what}", errand.host));
    let (Some(mut command), Some([stdin, stdout, stderr])) = (errand.command(), streams) else {
        return failed("there is none, or its streams have not come");
    };
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let (tell, told) = mpsc::channel::<Pid>();
    let running = Arc::new(Mutex::new(true));
    // Before entering, after which no thread can be started.
    let passes_on =
        caller.set_read_timeout(None).and_then(|()| caller.try_clone()).and_then(|caller| {
            let running = Arc::clone(&running);
            let signals = std::thread::Builder::new().name("netlab signals".to_owned());
            signals.spawn(move || pass_on(caller, &told, &running))
        });
    if let Err(error) = passes_on.map(drop).and_then(|()| spaces.enter()) {
        return failed(&error.to_string());
    }
    // A directory that is not there in the host stays at its root.
    let _ = rustix::process::chdir(std::path::Path::new(std::ffi::OsStr::from_bytes(
        &errand.directory,
    )));
    let mut child = match sys::spawn_bound(&mut command) {
        Ok(child) => child,
        Err(error) => {
            let missing = error.kind() == io::ErrorKind::NotFound;
            return Outcome::NotStarted { missing, why: error.to_string() };
        }
    };
    // The copies here would keep the streams open after their last user.
    drop(command);
    let pid = Pid::from_child(&child);
    let _ = tell.send(pid);
    // Its number stays its own until it is waited for, so signals reach nobody else.
    let _ = rustix::io::retry_on_intr(|| {
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    });
    *running.lock() = false;
    match child.wait() {
        Ok(status) => Outcome::Ended(exit_code(status)),
        Err(error) => failed(&error.to_string()),
    }
}

/// Sends the command the signals that come as bytes, and kills it when the caller goes. Ends with the
/// connection; a command that has ended then needs no more signals.
fn pass_on(mut caller: UnixStream, told: &mpsc::Receiver<Pid>, running: &Mutex<bool>) {
    let Ok(pid) = told.recv() else { return };
    let mut byte = [0];
    loop {
        let came = caller.read(&mut byte);
        let signal = match came {
            Ok(1) => Signal::from_named_raw(i32::from(byte[0])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            _ => Some(Signal::KILL),
        };
        let is_running = running.lock();
        if let Some(signal) = signal.filter(|_| *is_running) {
            let _ = kill_process_group(pid, signal);
        }
        if !matches!(came, Ok(1)) {
            return;
        }
    }
}

/// As a shell says it: 128 and the signal for a command that was killed.
pub fn exit_code(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn streams_travel_with_a_line() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let line = vec![b'x'; 1000];
        send_with_streams(&ours, &line).unwrap();
        drop(ours);
        let mut from = WithStreams::new(&theirs);
        let mut came = Vec::new();
        from.read_to_end(&mut came).unwrap();
        assert_eq!(came, line);
        let streams = from.into_streams().unwrap();
        let same = |a: &OwnedFd, b| {
            let (a, b) = (rustix::fs::fstat(a).unwrap(), rustix::fs::fstat(b).unwrap());
            (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
        };
        assert!(same(&streams[2], rustix::stdio::stderr()));
    }
}
