//! Calls about names. Owns which paths are recorded: none that the kernel makes up, and none outside of the
//! directories that were named, if any were.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering};

use azekura_proto::recording::layout::{call, file, header, process as words};
use rustix::fs::{Access, AtFlags, CWD, readlinkat_raw};

use super::area;
use super::process::{self, now};
use super::slots;
use crate::host::Failing;
use crate::pointers;
use crate::staging::Purpose;

/// A kind of call, as an index of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(usize);

impl Kind {
    /// A name gets another place.
    pub(crate) const RENAMES: Self = Self(call::RENAMES);

    /// What a call with one path is; none for one that opens, which is recorded apart.
    pub(crate) fn of<R>(purpose: &Purpose<'_, R>) -> Option<Self> {
        match purpose {
            Purpose::Look { .. } | Purpose::Read => Some(Self(call::LOOKS)),
            Purpose::Open(_) => None,
            Purpose::List | Purpose::Enter => Some(Self(call::LISTS)),
            Purpose::Make => Some(Self(call::MAKES)),
            Purpose::Remove(_) => Some(Self(call::REMOVES)),
            Purpose::Write { .. } => Some(Self(call::CHANGES)),
        }
    }
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The directories that were named, each with a zero byte behind it.
fn under() -> &'static [u8] {
    let Some(header) = area::header() else { return b"" };
    let bytes = header[header::UNDER_BYTES].load(Ordering::Relaxed) as usize;
    let room = &header[header::UNDER..];
    // SAFETY: bytes of the mapping, which nobody changes once a process runs.
    unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), bytes.min(header::UNDER_BYTES_MAX)) }
}

/// Whether a file of this absolute path is recorded.
pub(super) fn is_recorded(path: &[u8]) -> bool {
    let is_made_up = [&b"/proc"[..], b"/sys", b"/dev"].iter().any(|dir| is_below(path, dir))
        && !is_below(path, b"/dev/shm")
        || path.starts_with(b"/memfd:")
        || path.first() != Some(&b'/');
    let under = under();
    !is_made_up
        && (under.is_empty()
            || under.split(|byte| *byte == 0).any(|dir| !dir.is_empty() && is_below(path, dir)))
}

const UNKNOWN: u8 = 0;
const RECORDED: u8 = 1;
const OTHER: u8 = 2;
/// Whether relative paths are recorded.
static WORKING_DIRECTORY: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The working directory is another.
pub(crate) fn changed_directory() {
    WORKING_DIRECTORY.store(UNKNOWN, Ordering::Relaxed);
}

fn is_directory_recorded(link: &CStr) -> bool {
    let mut room = [std::mem::MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
    readlinkat_raw(CWD, link, &mut room[..]).is_ok_and(|(path, _)| is_recorded(path))
}

/// Whether a call with this path is recorded, as far as the text tells.
fn concerns(dirfd: c_int, path: *const c_char) -> bool {
    if !pointers::is_plausible(path) {
        return false;
    }
    // SAFETY: a C string, as for every call.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.first() == Some(&b'/') {
        return is_recorded(path);
    }
    if under().is_empty() {
        return true;
    }
    if dirfd != libc::AT_FDCWD {
        return slots::link_of(dirfd, is_directory_recorded).unwrap_or(false);
    }
    match WORKING_DIRECTORY.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = is_directory_recorded(c"/proc/self/cwd");
            WORKING_DIRECTORY.store(if found { RECORDED } else { OTHER }, Ordering::Relaxed);
            found
        }
        state => state == RECORDED,
    }
}

fn count(which: usize, nanos: u64, at: u64) {
    if let Some(entry) = process::entry() {
        entry[words::CALLS + which].fetch_add(1, Ordering::Relaxed);
        entry[words::CALL_NANOS].fetch_add(nanos, Ordering::Relaxed);
        entry[words::LAST].store(at, Ordering::Relaxed);
    }
}

/// A call about a name.
pub(crate) fn named<R>(
    kind: Option<Kind>,
    dirfd: c_int,
    path: *const c_char,
    call: impl FnOnce() -> R,
) -> R {
    let Some(Kind(which)) = kind.filter(|_| process::is_own() && concerns(dirfd, path)) else {
        return call();
    };
    let start = now();
    let result = call();
    let end = now();
    count(which, end - start, end);
    result
}

/// A call that opens; `number` tells the descriptor of what it gives.
pub(crate) fn opening<R: Failing>(
    (dirfd, path): (c_int, *const c_char),
    flags: c_int,
    call: impl FnOnce() -> R,
    number: impl FnOnce(R) -> c_int,
) -> R {
    if !process::is_own() {
        return call();
    }
    let may_make = flags & libc::O_CREAT != 0 && pointers::is_plausible(path);
    let is_there = may_make && flags & libc::O_EXCL == 0 && is_there(dirfd, path);
    let start = now();
    let result = call();
    let end = now();
    if result.is_failed() {
        if concerns(dirfd, path) {
            count(call::FAILED_OPENS, end - start, end);
        }
        return result;
    }
    let is_new = may_make && !is_there || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    if let Some(entry) = slots::opened(number(result), is_new, flags) {
        entry[file::OPENS].fetch_add(1, Ordering::Relaxed);
        count(call::OPENS, end - start, end);
        if is_new {
            entry[file::CREATES].fetch_add(1, Ordering::Relaxed);
            count(call::CREATES, 0, end);
        }
    } else if flags & libc::O_DIRECTORY != 0 && concerns(dirfd, path) {
        count(call::LISTS, end - start, end);
    }
    result
}

fn is_there(dirfd: c_int, path: *const c_char) -> bool {
    // SAFETY: a plausible pointer of a call that takes a C string; a number that is not open fails in the
    // kernel.
    let (at, path) = unsafe {
        let at = if dirfd < 0 { libc::AT_FDCWD } else { dirfd };
        (std::os::fd::BorrowedFd::borrow_raw(at), CStr::from_ptr(path))
    };
    rustix::fs::accessat(at, path, Access::EXISTS, AtFlags::empty()).is_ok()
}
