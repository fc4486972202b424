//! Numbers from the kernel. Owns two kinds: those that are reserved for files of the pool, which the
//! kernel sees as an empty file that cannot be written, so that a call which goes past the hooks
//! fails instead of losing data; and our own sockets and descriptors of engines' files, which stay out of the
//! host's way.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use azekura_posix::{Errno, Result};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::process::{Resource, Rlimit};

use crate::scope::RECORDS_ONLY;

/// Our own descriptors lie from here on, or from the host's limit where that is lower: high enough to
/// be in nobody's way, low enough that the kernel's table stays small.
const FLOOR_MAX: c_int = 4096;
/// Our own descriptors at once: sockets to engines, files that these pass, and the reservation itself.
const OWN_MAX: usize = 1024;

/// What all reservations are duplicates of.
static BLANK: AtomicI32 = AtomicI32::new(-1);
static OWN: [AtomicI32; OWN_MAX] = [const { AtomicI32::new(-1) }; OWN_MAX];
/// None of them has ever been lower: most of the host's numbers are, and are told apart by that.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// Whether the number is one of our own, which the host must not see or close.
pub(crate) fn is_own(fd: c_int) -> bool {
    !RECORDS_ONLY
        && fd >= LOWEST.load(Ordering::Relaxed)
        && OWN
            .iter()
            .take_while(|own| own.load(Ordering::Relaxed) != -1)
            .any(|own| own.load(Ordering::Relaxed) == fd)
}

/// All our own numbers, smallest first.
pub(crate) fn own() -> Vec<c_int> {
    let mut own: Vec<c_int> = OWN
        .iter()
        .map(|own| own.load(Ordering::Relaxed))
        .take_while(|fd| *fd != -1)
        .filter(|fd| *fd >= 0)
        .collect();
    own.sort_unstable();
    own
}

/// A slot that was used is marked with this, so that the list has no end before its end.
const FREED: c_int = -2;

fn remember(fd: c_int) {
    debug_assert!(fd >= 0, "no number");
    LOWEST.fetch_min(fd, Ordering::Relaxed);
    for own in &OWN {
        let now = own.load(Ordering::Relaxed);
        if now < 0 && own.compare_exchange(now, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// One of our own numbers has been closed by ourselves.
pub(crate) fn forget(fd: c_int) {
    for own in &OWN {
        let now = own.load(Ordering::Relaxed);
        if now == -1 {
            return;
        }
        if now == fd {
            own.store(FREED, Ordering::Relaxed);
            return;
        }
    }
}

fn set_limit(limit: Rlimit) {
    // If it fails the number is taken from below the limit.
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}

/// A duplicate above the numbers that the host can get, if the hard limit leaves room there.
fn duplicate_above(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX).min(FLOOR_MAX as u64);
    let needed = soft + OWN_MAX as u64;
    let is_low = limit.current.is_some_and(|current| current < needed);
    if is_low && limit.maximum.is_none_or(|maximum| maximum >= needed) {
        set_limit(Rlimit { current: Some(needed), maximum: limit.maximum });
    }
    let mut got = None;
    for floor in [soft, soft.saturating_sub(128), soft / 2] {
        got = rustix::io::fcntl_dupfd_cloexec(fd, floor as RawFd).ok();
        if got.is_some() {
            break;
        }
    }
    if is_low {
        set_limit(limit);
    }
    got
}

/// Moves one of our own descriptors out of the host's way.
pub(crate) fn move_away(fd: OwnedFd) -> OwnedFd {
    use std::os::fd::AsFd as _;
    let moved = match duplicate_above(fd.as_fd()) {
        Some(moved) => moved,
        None => fd,
    };
    remember(moved.as_raw_fd());
    moved
}

/// An empty file that can be neither written nor, with its position at the end, read.
fn blank() -> Result<c_int> {
    let known = BLANK.load(Ordering::Acquire);
    if known >= 0 {
        return Ok(known);
    }
    let file = rustix::fs::memfd_create(c"azekura", MemfdFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let moved = move_away(read_only).into_raw_fd();
    match BLANK.compare_exchange(-1, moved, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(moved),
        Err(other) => {
            forget(moved);
            // SAFETY: it came from `into_raw_fd` above, and nobody has seen it.
            drop(unsafe { OwnedFd::from_raw_fd(moved) });
            Ok(other)
        }
    }
}

/// Reserves the lowest free number from `lowest` on.
///
/// # Errors
/// `EMFILE`, `EINVAL` for a `lowest` above the limit.
pub(crate) fn reserve(lowest: c_int, close_on_exec: bool) -> Result<c_int> {
    let blank = blank()?;
    // SAFETY: the number stays open as long as the process lives.
    let blank = unsafe { BorrowedFd::borrow_raw(blank) };
    if lowest < 0 {
        return Err(Errno::INVAL);
    }
    let got = if close_on_exec {
        rustix::io::fcntl_dupfd_cloexec(blank, lowest)?
    } else {
        // SAFETY: a plain system call on a valid descriptor.
        let fd = unsafe { crate::host::fcntl(blank.as_raw_fd(), libc::F_DUPFD, lowest as usize) };
        if fd < 0 {
            return Err(Errno::from_raw_os_error(crate::host::errno()));
        }
        return Ok(fd);
    };
    Ok(got.into_raw_fd())
}
