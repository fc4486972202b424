//! `close` and closing in bulk. Owns the rule that our own descriptors are not there for the host.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use azekura_posix::{Errno, LockKind, Result};

use super::{hooks, lock};
use crate::descriptors::{Description, reserve, table};
use crate::host;
use crate::report::counter;
use crate::stdio;
use crate::{guard, hook, recording, staging};

/// Lets arrive what was written to the file behind a number; tells what became of it.
fn flush(fd: c_int) -> Result<()> {
    let description = table::get(fd);
    description.map_or(Ok(()), |description| description.flush())
}

/// The number stands for nothing any more; the kernel's part is left to the caller.
pub(crate) fn release(fd: c_int) {
    if let Some(description) = table::take(fd) {
        give_up(&description);
    }
}

/// A number stands for the description no more.
pub(super) fn give_up(description: &Arc<Description>) {
    if !lock::are_used() {
        return;
    }
    // POSIX: the process's record locks on a file go with the first of its descriptors.
    if let Some(fs) = description.fs_in_use() {
        let _ = fs.unlock_owner(description.oid(), LockKind::Range, lock::PROCESS);
    }
    lock::forget_whole(description);
}

/// The kernel has given this number to something else: if it was ours, it was closed by a call that we
/// have not seen.
pub(crate) fn not_ours(fd: c_int) -> c_int {
    staging::renewed(fd);
    recording::renewed(fd);
    if table::is_ours(fd) {
        hook::inside(|| {
            release(fd);
        });
    }
    fd
}

fn release_range(first: c_uint, last: c_uint) {
    for (fd, _) in table::all() {
        if (first..=last).contains(&(fd as c_uint)) {
            release(fd);
        }
    }
}

const CLOSE_RANGE_CLOEXEC: c_int = 4;
/// All that there are (the other is `UNSHARE`); the kernel refuses what is not among them.
const CLOSE_RANGE_FLAGS: c_int = CLOSE_RANGE_CLOEXEC | 2;

hooks! {
    /// `close`.
    fn [close](fd: c_int) -> c_int {
        let counter = counter!("close");
        if guard::is_inside() {
            reserve::forget(fd);
        } else if reserve::is_own(fd) {
            host::set_errno(libc::EBADF);
            return -1;
        } else if table::is_ours(fd) {
            counter.served();
            stdio::before_replacing(fd);
            let flushed = hook::run(|| {
                let flushed = flush(fd);
                release(fd);
                flushed
            });
            stdio::after_replacing(fd);
            // SAFETY: as for the C function.
            let closed = unsafe { host::close(fd) };
            if let Some(Err(errno)) = flushed {
                host::set_errno(errno.raw_os_error());
                return -1;
            }
            return closed;
        } else {
            staging::renewed(fd);
            recording::closing(fd);
            counter.passed();
        }
        // SAFETY: as for the C function.
        unsafe { host::close(fd) }
    }

    /// `close_range`.
    fn [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let counter = counter!("close_range");
        if guard::is_inside() || first > last || flags & !CLOSE_RANGE_FLAGS != 0 {
            // SAFETY: as for the C function.
            return unsafe { host::close_range(first, last, flags) };
        }
        counter.served();
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            recording::closing_range(first, last);
        }
        let standard = first as c_int..=(last.min(2) as c_int);
        standard.clone().for_each(stdio::before_replacing);
        let own = hook::run(|| {
            if flags & CLOSE_RANGE_CLOEXEC == 0 {
                release_range(first, last);
            }
            Ok(reserve::own())
        });
        standard.for_each(stdio::after_replacing);
        let mut from = first;
        for own in own.and_then(Result::ok).unwrap_or_default() {
            let own = own as c_uint;
            if own < from || own > last {
                continue;
            }
            // SAFETY: as for the C function; only the numbers between our own.
            if own > from && unsafe { host::close_range(from, own - 1, flags) } != 0 {
                return -1;
            }
            from = own + 1;
        }
        if from > last {
            return 0;
        }
        // SAFETY: as for the C function.
        unsafe { host::close_range(from, last, flags) }
    }
}

/// `closefrom`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as for the C function, which has no way to fail either.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// What a number that our own descriptor has is answered with where the host wants it.
pub(crate) const TAKEN: Errno = Errno::BUSY;
