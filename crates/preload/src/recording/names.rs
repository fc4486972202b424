//! Calls about names. Owns which counter each of them adds to, and what an open adds to a file's.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;

use azekura_proto::recording::layout::{call, file, process as words};
use rustix::fs::{Access, AtFlags};

use super::paths::concerns;
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
    let Some(Kind(which)) = kind.filter(|_| process::is_on() && concerns(dirfd, path)) else {
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
    if !process::is_on() {
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
    // The child of a vfork has descriptors of its own, and its parent's memory.
    if !process::is_own() {
        return result;
    }
    let is_new = may_make && !is_there || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    // SAFETY: the kernel has read it, as a C string.
    let name = pointers::is_plausible(path).then(|| unsafe { CStr::from_ptr(path) });
    let name = name.filter(|name| dirfd == libc::AT_FDCWD || name.to_bytes().starts_with(b"/"));
    if let Some(entry) = slots::opened(number(result), name, is_new, flags) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::Open;

    #[test]
    fn calls_with_a_path_are_of_one_kind_each() {
        let of = |purpose: &Purpose<'_, c_int>| Kind::of(purpose).map(|Kind(which)| which);
        let look = Purpose::Look { follow: true, found: &|_| Ok(0), told_directory: &|| false };
        assert_eq!(of(&look), Some(call::LOOKS));
        assert_eq!(of(&Purpose::Read), Some(call::LOOKS));
        assert_eq!(of(&Purpose::List), Some(call::LISTS));
        assert_eq!(of(&Purpose::Enter), Some(call::LISTS));
        assert_eq!(of(&Purpose::Make), Some(call::MAKES));
        assert_eq!(of(&Purpose::Remove(0)), Some(call::REMOVES));
        assert_eq!(of(&Purpose::Write { follow: false }), Some(call::CHANGES));
        let open = Purpose::Open(Open { flags: libc::O_RDONLY, gives_back: |_| false });
        assert_eq!(of(&open), None);
    }
}
