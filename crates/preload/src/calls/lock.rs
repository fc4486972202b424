//! Record locks, and `flock`. Owns who the owner of a lock is: the process for the old kind,
//! the open file description for the others. A lock does not pass to a forked child.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_client::this_process;
use azekura_posix::{Errno, Lock, LockKind, LockMode, Result};
use libc::off_t;

use super::hooks;
use crate::descriptors::{Backing, Description, table};
use crate::report::counter;
use crate::{handlers, hook, host};

/// The owner of record locks of the process; descriptions own by their address, which is never 1.
pub(crate) const PROCESS: u64 = 1;
/// Pause between two tries for a lock that somebody else has, in nanoseconds.
const PAUSE_NS: i64 = 20_000_000;

/// Whether this process has ever taken a lock: most never do, and then closing need not ask.
static USED: AtomicBool = AtomicBool::new(false);

/// Whether there may be locks to give back.
pub(crate) fn are_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Who is to own a record lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The process (`F_SETLK`).
    Process,
    /// The open file description (`F_OFD_SETLK`).
    Description,
}

fn address(file: &Arc<Description>) -> u64 {
    Arc::as_ptr(file) as u64
}

/// The range of a `struct flock`, first to last byte.
fn range(file: &Description, asked: &libc::flock) -> Result<(u64, u64)> {
    let base = match c_int::from(asked.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => file.position().locked(|place| place.offset() as i64),
        libc::SEEK_END => file.attr()?.size as i64,
        _ => return Err(Errno::INVAL),
    };
    let start = base.checked_add(asked.l_start).ok_or(Errno::OVERFLOW)?;
    let (first, end) = match asked.l_len {
        0 => (start, None),
        len if len > 0 => (start, Some(start.checked_add(len - 1).ok_or(Errno::OVERFLOW)?)),
        len => (start.checked_add(len).ok_or(Errno::INVAL)?, Some(start - 1)),
    };
    let first = u64::try_from(first).map_err(|_| Errno::INVAL)?;
    Ok((first, end.map_or(u64::MAX, |end| end as u64)))
}

fn take(file: &Description, lock: Lock) -> Result<()> {
    USED.store(true, Ordering::Relaxed);
    file.fs()?.lock(file.oid(), lock, false, &|| false)
}

/// Tries again and again while somebody else has the lock. Between two tries the thread is out of our
/// code, so that signals and forks are not held up; a signal with a handler ends the waiting, if one was
/// installed without `SA_RESTART`.
pub(super) fn until_free<T>(
    wait: bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Option<Result<T>> {
    loop {
        match hook::run(&mut attempt)? {
            Err(Errno::AGAIN) if wait => {}
            other => return Some(other),
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
        // SAFETY: a valid structure; the rest is not asked for.
        if unsafe { host::nanosleep(&raw const pause, std::ptr::null_mut()) } != 0
            && handlers::can_interrupt()
        {
            return Some(Err(Errno::INTR));
        }
    }
}

/// A record lock by `fcntl`.
pub(crate) fn record(
    file: &Arc<Description>,
    command: c_int,
    argument: usize,
    owner: Owner,
) -> Result<c_int> {
    let pointer = argument as *mut libc::flock;
    if pointer.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller of `fcntl` says that it points to a lock.
    let asked = unsafe { &mut *pointer };
    if owner == Owner::Description && asked.l_pid != 0 {
        return Err(Errno::INVAL);
    }
    let (start, end) = range(file, asked)?;
    let kind = c_int::from(asked.l_type);
    let lock = Lock {
        kind: LockKind::Range,
        owner: if owner == Owner::Process { PROCESS } else { address(file) },
        pid: this_process(),
        mode: if kind == libc::F_RDLCK { LockMode::Shared } else { LockMode::Exclusive },
        start,
        end,
    };
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        match file.fs()?.test_lock(file.oid(), lock)? {
            None => asked.l_type = libc::F_UNLCK as _,
            Some(other) => {
                asked.l_type = match other.mode {
                    LockMode::Shared => libc::F_RDLCK as _,
                    LockMode::Exclusive => libc::F_WRLCK as _,
                };
                asked.l_whence = libc::SEEK_SET as _;
                asked.l_start = other.start as off_t;
                asked.l_len =
                    if other.end == u64::MAX { 0 } else { (other.end - other.start + 1) as off_t };
                asked.l_pid = other.pid as _;
            }
        }
        return Ok(0);
    }
    match kind {
        libc::F_UNLCK => file.fs()?.unlock(file.oid(), lock)?,
        libc::F_RDLCK if !file.file()?.handle().is_readable() => return Err(Errno::BADF),
        libc::F_WRLCK if !file.file()?.handle().is_writable() => return Err(Errno::BADF),
        libc::F_RDLCK | libc::F_WRLCK => {
            take(file, lock)?;
        }
        _ => return Err(Errno::INVAL),
    }
    Ok(0)
}

fn whole(file: &Arc<Description>, operation: c_int) -> Result<c_int> {
    let lock = |mode| Lock {
        kind: LockKind::Whole,
        owner: address(file),
        pid: this_process(),
        mode,
        start: 0,
        end: u64::MAX,
    };
    match operation & !libc::LOCK_NB {
        libc::LOCK_SH => take(file, lock(LockMode::Shared))?,
        libc::LOCK_EX => take(file, lock(LockMode::Exclusive))?,
        libc::LOCK_UN => file.fs()?.unlock(file.oid(), lock(LockMode::Exclusive))?,
        _ => return Err(Errno::INVAL),
    }
    Ok(0)
}

/// Gives back what an open file description owns, if this was its last number.
pub(crate) fn forget_whole(file: &Arc<Description>) {
    if Arc::strong_count(file) > 1 {
        return;
    }
    if let Some(fs) = file.fs_in_use() {
        for kind in [LockKind::Whole, LockKind::Range] {
            // If the pool does not answer the lock goes with the session.
            let _ = fs.unlock_owner(file.oid(), kind, address(file));
        }
    }
}

hooks! {
    /// `flock`.
    fn [flock](fd: c_int, operation: c_int) -> c_int {
        let counter = counter!("flock");
        // SAFETY: as for the C function.
        let hosts = || unsafe { host::flock(fd, operation) };
        if !table::is_ours(fd) {
            counter.passed();
            return hosts();
        }
        let result = until_free(operation & libc::LOCK_NB == 0, || match table::get(fd) {
            Some(file) if file.backing() == Backing::Reserved => whole(&file, operation).map(Some),
            _ => Ok(None),
        });
        hook::conclude_or(counter, result, hosts)
    }
}
