//! Locks of files. The owner of a lock is the handle that it was taken through: it holds between
//! handles of one program as well as between programs, and closing the handle gives it back.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use azekura_posix::{Errno, Lock, LockKind, LockMode};

use crate::call::{answer, status};
use crate::failure::{About as _, Failure, Outcome};
use crate::file::File;
use crate::pointers::{Out, handle, place};

/// `AZEKURA_LOCK_NONE`.
const NONE: c_int = 0;
/// `AZEKURA_LOCK_SHARED`.
const SHARED: c_int = 1;
/// `AZEKURA_LOCK_EXCLUSIVE`.
const EXCLUSIVE: c_int = 2;

/// `struct azekura_lock_info`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LockInfo {
    start: u64,
    bytes: u64,
    mode: c_int,
    pid: u32,
}

fn mode(number: c_int) -> Outcome<Option<LockMode>> {
    match number {
        NONE => Ok(None),
        SHARED => Ok(Some(LockMode::Shared)),
        EXCLUSIVE => Ok(Some(LockMode::Exclusive)),
        _ => {
            let text = "use AZEKURA_LOCK_NONE, AZEKURA_LOCK_SHARED or AZEKURA_LOCK_EXCLUSIVE";
            Err(Failure::with(Errno::INVAL, text))
        }
    }
}

/// A lock of the handle on a range; 0 bytes reach to the end of any file.
fn lock_of(
    file: &File,
    kind: LockKind,
    mode: LockMode,
    (start, bytes): (u64, u64),
) -> Outcome<Lock> {
    let end = match bytes {
        0 => Some(u64::MAX),
        _ => start.checked_add(bytes - 1).filter(|end| i64::try_from(*end).is_ok()),
    };
    let end = end.filter(|_| i64::try_from(start).is_ok());
    let end = end.ok_or_else(|| Failure::with(Errno::INVAL, "a lock ends before 2^63 bytes"))?;
    Ok(Lock { kind, owner: file.owner, pid: std::process::id(), mode, start, end })
}

/// Takes, changes or gives back a lock.
fn apply(
    file: &File,
    kind: LockKind,
    wanted: c_int,
    range: (u64, u64),
    wait_ms: c_int,
) -> Outcome<()> {
    let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
    let Some(mode) = mode(wanted)? else {
        return fs
            .unlock(oid, lock_of(file, kind, LockMode::Exclusive, range)?)
            .about(file.subject());
    };
    let lock = lock_of(file, kind, mode, range)?;
    let open = file.open.handle();
    let fits = match mode {
        LockMode::Shared => open.is_readable(),
        LockMode::Exclusive => open.is_writable(),
    };
    if kind == LockKind::Range && !fits {
        return Err(Errno::BADF).about(file.subject());
    }
    let deadline = u64::try_from(wait_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let taken = fs.lock(oid, lock, wait_ms != 0, &late).map_err(|errno| match errno {
        Errno::INTR => Errno::AGAIN,
        other => other,
    });
    taken
        .map_err(|errno| match errno {
            Errno::AGAIN => Failure::with(errno, "another owner has it locked"),
            other => other.into(),
        })
        .about(file.subject())
}

/// `azekura_lock`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_lock(
    file: Option<&File>,
    mode: c_int,
    start: u64,
    bytes: u64,
    wait_ms: c_int,
) -> c_int {
    status("azekura_lock", || {
        apply(handle(file, "file")?, LockKind::Range, mode, (start, bytes), wait_ms)
    })
}

/// `azekura_lock_file`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_lock_file(
    file: Option<&File>,
    mode: c_int,
    wait_ms: c_int,
) -> c_int {
    status("azekura_lock_file", || {
        apply(handle(file, "file")?, LockKind::Whole, mode, (0, 0), wait_ms)
    })
}

/// `azekura_lock_test`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_lock_test(
    file: Option<&File>,
    wanted: c_int,
    start: u64,
    bytes: u64,
    info: Out<'_, LockInfo>,
) -> c_int {
    answer("azekura_lock_test", || {
        let (file, out) = (handle(file, "file")?, place(info, "info")?);
        let Some(mode) = mode(wanted)? else {
            return Err(Failure::with(Errno::INVAL, "AZEKURA_LOCK_NONE is never in the way"));
        };
        let lock = lock_of(file, LockKind::Range, mode, (start, bytes))?;
        let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
        let Some(other) = fs.test_lock(oid, lock).about(file.subject())? else { return Ok(false) };
        out.write(LockInfo {
            start: other.start,
            // 0 stands for the end of any file.
            bytes: (other.end - other.start)
                .checked_add(1)
                .filter(|_| other.end != u64::MAX)
                .unwrap_or(0),
            mode: match other.mode {
                LockMode::Shared => SHARED,
                LockMode::Exclusive => EXCLUSIVE,
            },
            pid: other.pid,
        });
        Ok(true)
    })
}
