//! The connection to the agent of this node. Owns one that is kept between questions. A question takes it
//! away and brings it back, and one that finds none makes its own: no lock is held while an answer is
//! waited for, which may be as long as a large file takes, so threads, handlers and forks never wait for
//! each other here. A child of a fork makes a connection of its own: two processes on one would mix answers.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_posix::{Errno, Result};
use azekura_proto::staging::JobId;
use azekura_proto::staging::local::{
    LOCAL_VERSION, LocalMap, LocalReply, LocalRequest, MESSAGE_BYTES_MAX, decode, encode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::thread::nanosleep;

use crate::descriptors::reserve;
use crate::report;

/// How long an agent that listens may take to greet.
const GREETING: Duration = Duration::from_secs(10);
/// Between tries to connect while more programs do so than the agent's queue holds.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Answers but the first are shorter: a path, or a symlink's text, and some numbers.
const ANSWER_BYTES_MAX: usize = 12 * 1024;

/// The connection that is kept: the process that made it, and its number plus 1; 0 for none.
static KEPT: AtomicU64 = AtomicU64::new(0);

fn process() -> u64 {
    rustix::process::getpid().as_raw_nonzero().get() as u64
}

fn close(connection: OwnedFd) {
    reserve::forget(connection.as_raw_fd());
    drop(connection);
}

/// Takes the connection away that is kept.
fn take() -> Option<OwnedFd> {
    let kept = KEPT.swap(0, Ordering::AcqRel);
    if kept == 0 {
        return None;
    }
    // SAFETY: it was put there by `keep`, which gave the number up.
    let connection = unsafe { OwnedFd::from_raw_fd((kept as u32 - 1).cast_signed()) };
    if kept >> 32 == process() {
        return Some(connection);
    }
    close(connection);
    None
}

/// Keeps a connection for the next question.
fn keep(connection: OwnedFd) {
    let number = (connection.into_raw_fd().cast_unsigned() + 1) as u64;
    let before = KEPT.swap(process() << 32 | number, Ordering::AcqRel);
    if before != 0 {
        // SAFETY: as in `take`.
        close(unsafe { OwnedFd::from_raw_fd((before as u32 - 1).cast_signed()) });
    }
}

/// Lets go, in the child of a fork, of what belongs to the parent.
pub(super) fn abandon() {
    KEPT.store(0, Ordering::Release);
    for fd in reserve::own() {
        reserve::forget(fd);
        // SAFETY: while a job is served our own numbers are connections only; the child has no thread
        // that uses one. One that was made while the kernel was copying the parent may not be open here,
        // which is all right.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
}

fn wait(connection: &OwnedFd, until: Option<Instant>) -> Result<()> {
    loop {
        let left = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut [PollFd::new(connection, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            // A handler of the host has run. As on a file server that is slow, the call goes on.
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

fn say(connection: &OwnedFd, request: &LocalRequest) -> Result<()> {
    let packet = encode(request).ok_or(Errno::NAMETOOLONG)?;
    loop {
        match send(connection.as_fd(), &packet, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

fn hear(
    connection: &OwnedFd,
    room: &mut [MaybeUninit<u8>],
    until: Option<Instant>,
) -> Result<LocalReply> {
    loop {
        wait(connection, until)?;
        match recv(connection.as_fd(), &mut *room, RecvFlags::TRUNC) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
            Ok((_, 0)) => return Err(Errno::CONNRESET),
            Ok(((got, _), bytes)) if bytes == got.len() => {
                return decode(got).ok_or(Errno::PROTO);
            }
            Ok(_) => return Err(Errno::MSGSIZE),
        }
    }
}

fn reach(job: JobId, until: Instant) -> Result<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(job.socket_name().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let new = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    loop {
        match connect(&new, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < until => drop(nanosleep(&AGAIN)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::io::ioctl_fionbio(&new, false)?;
    Ok(reserve::move_away(new))
}

/// What an agent says at first.
pub(super) struct Greeting {
    /// The maps that it has.
    pub(super) maps: Vec<LocalMap>,
    /// The device that files are on which are read as they come.
    pub(super) arriving: Option<u64>,
}

/// A new connection, greeted.
fn open(job: JobId) -> Result<(OwnedFd, Greeting)> {
    let until = Instant::now() + GREETING;
    let connection = reach(job, until)?;
    let mut room = Vec::with_capacity(MESSAGE_BYTES_MAX);
    let greeted = say(&connection, &LocalRequest::Greet { version: LOCAL_VERSION })
        .and_then(|()| hear(&connection, room.spare_capacity_mut(), Some(until)));
    match greeted {
        Ok(LocalReply::Welcome { maps, arriving, .. }) => {
            Ok((connection, Greeting { maps, arriving }))
        }
        other => {
            close(connection);
            Err(other.err().unwrap_or(Errno::PROTO))
        }
    }
}

/// Connects for the first time.
///
/// # Errors
/// `ECONNREFUSED` if no agent listens here; whatever else keeps it from answering.
pub(super) fn greet(job: JobId) -> Result<Greeting> {
    let (connection, greeting) = open(job)?;
    keep(connection);
    Ok(greeting)
}

fn exchange(connection: &OwnedFd, request: &LocalRequest) -> Result<LocalReply> {
    let mut room = [MaybeUninit::uninit(); ANSWER_BYTES_MAX];
    say(connection, request)?;
    hear(connection, &mut room, None)
}

/// Asks the agent, and waits for its answer as long as it lives.
///
/// # Errors
/// `EIO` if there is none to be had any more.
pub(super) fn ask(job: JobId, request: &LocalRequest) -> Result<LocalReply> {
    let mut kept = take();
    loop {
        let was_kept = kept.is_some();
        let connection = match kept.take() {
            Some(connection) => Ok(connection),
            None => open(job).map(|(connection, _)| connection),
        };
        let failed = match connection {
            Err(errno) => errno,
            Ok(connection) => match exchange(&connection, request) {
                Ok(reply) => {
                    keep(connection);
                    return Ok(reply);
                }
                Err(Errno::NAMETOOLONG) => {
                    keep(connection);
                    return Err(Errno::NAMETOOLONG);
                }
                Err(errno) => {
                    close(connection);
                    errno
                }
            },
        };
        if !was_kept {
            crate::hook::inside(|| {
                report::trouble(&format!(
                    "the agent of the staging job does not answer ({failed}): files that have not \
                     come fail with EIO; its job has ended, or its log says why"
                ));
            });
            return Err(Errno::IO);
        }
    }
}
