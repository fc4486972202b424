//! What relative paths count from. Owns, for the working directory and for each descriptor number, whether
//! that has been looked at and whether it matters to the job: in one of the agent's directories, or above a
//! map. The kernel is asked once for each (`/proc/self/fd`), at the first call that counts from it, so that
//! what a program inherits and what it opens itself are learned alike; what matters is read again each time.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use azekura_posix::{Errno, Result};
use rustix::fs::{CWD, readlinkat_raw};

use super::maps::Maps;
use super::text::Text;
use crate::scope::RECORDS_ONLY;

/// Numbers from here on are looked at each time.
const NUMBERS_MAX: usize = 1 << 16;
const WORDS: usize = NUMBERS_MAX / 64;

static LOOKED_AT: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static MATTERS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

const UNKNOWN: u8 = 0;
const MATTERLESS: u8 = 1;
const MATTERING: u8 = 2;
static WORKING_DIRECTORY: AtomicU8 = AtomicU8::new(UNKNOWN);

/// What the kernel writes behind the path of a directory that is there no more.
const GONE: &[u8] = b" (deleted)";

fn bit(fd: c_int) -> Option<(usize, u64)> {
    let number = usize::try_from(fd).ok().filter(|number| *number < NUMBERS_MAX)?;
    Some((number / 64, 1 << (number % 64)))
}

/// The number stands for something else from now on.
pub(crate) fn renewed(fd: c_int) {
    if !RECORDS_ONLY
        && let Some((word, bit)) = bit(fd)
        && LOOKED_AT[word].load(Ordering::Relaxed) & bit != 0
    {
        LOOKED_AT[word].fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The working directory is another.
pub(crate) fn moved() {
    WORKING_DIRECTORY.store(UNKNOWN, Ordering::Relaxed);
}

/// Whether a path relative to this could matter, as far as is known without asking the kernel.
pub(super) fn may_matter(dirfd: c_int, path: &[u8]) -> bool {
    if dirfd == libc::AT_FDCWD {
        return WORKING_DIRECTORY.load(Ordering::Relaxed) != MATTERLESS || path.starts_with(b"..");
    }
    match bit(dirfd) {
        Some((word, bit)) => {
            LOOKED_AT[word].load(Ordering::Relaxed) & bit == 0
                || MATTERS[word].load(Ordering::Relaxed) & bit != 0
        }
        None => dirfd >= 0,
    }
}

fn note(dirfd: c_int, matters: bool) {
    if dirfd == libc::AT_FDCWD {
        let state = if matters { MATTERING } else { MATTERLESS };
        WORKING_DIRECTORY.store(state, Ordering::Relaxed);
    } else if let Some((word, bit)) = bit(dirfd) {
        if matters {
            MATTERS[word].fetch_or(bit, Ordering::Relaxed);
        } else {
            MATTERS[word].fetch_and(!bit, Ordering::Relaxed);
        }
        LOOKED_AT[word].fetch_or(bit, Ordering::Relaxed);
    }
}

/// `/proc/self/fd/N`, with its zero byte, at the end of the room.
fn shown_at(fd: c_int, room: &mut [u8; 32]) -> Result<&CStr> {
    const START: &[u8] = b"/proc/self/fd/";
    let mut at = room.len() - 1;
    room[at] = 0;
    let mut left = fd;
    loop {
        at -= 1;
        room[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    at -= START.len();
    room[at..at + START.len()].copy_from_slice(START);
    CStr::from_bytes_with_nul(&room[at..]).map_err(|_| Errno::INVAL)
}

/// The path that the kernel has for the working directory or a descriptor. One of a directory to be listed
/// that was made anew meanwhile is as good as before.
pub(super) fn path_of(maps: &Maps, dirfd: c_int, into: &mut Text) -> Result<()> {
    let mut room = [0; 32];
    let link = match dirfd {
        libc::AT_FDCWD => c"/proc/self/cwd",
        0.. => shown_at(dirfd, &mut room)?,
        _ => return Err(Errno::BADF),
    };
    into.fill(|bytes| readlinkat_raw(CWD, link, bytes))?;
    if let Some(before) = into.as_bytes().strip_suffix(GONE)
        && maps.is_list(before)
    {
        let length = before.len();
        into.truncate(length);
    }
    Ok(())
}

/// The directory that `path` counts from, if that matters to the job; false if not.
pub(super) fn base(maps: &Maps, dirfd: c_int, path: &[u8], into: &mut Text) -> bool {
    if path_of(maps, dirfd, into).is_err() {
        return false;
    }
    let at = into.as_bytes();
    let matters = maps.are_named_by(at) || maps.has_below(at);
    note(dirfd, matters);
    // From beside a map `..` may lead into it.
    matters || path.starts_with(b"..")
}
