//! The limit that a process has on the size of files (`RLIMIT_FSIZE`, `ulimit -f`). The kernel holds
//! processes to it where it writes itself; here it is this library that writes. Sends the signal that
//! belongs to it only where no lock is held, since it may end the process.

use azekura_posix::{Errno, Result};
use rustix::process::{Resource, getrlimit};

/// How much of `bytes` may be written at the place that `offset` gives, which is asked only if there is
/// a limit; `None` if nothing may be.
pub(super) fn allowed(bytes: usize, offset: impl FnOnce() -> Result<u64>) -> Result<Option<usize>> {
    // Asked anew each time: the limit may be set at any moment, also from outside.
    let Some(limit) = getrlimit(Resource::Fsize).current.filter(|_| bytes > 0) else {
        return Ok(Some(bytes));
    };
    let left = limit.saturating_sub(offset()?);
    let fits = usize::try_from(left).map_or(bytes, |left| bytes.min(left));
    Ok((fits > 0).then_some(fits))
}

/// What a write came to: `None` for one beyond the limit.
pub(super) fn conclude(written: Option<usize>) -> Result<usize> {
    written.ok_or_else(exceeded)
}

/// Checks a new length, as of `ftruncate`; `before` is asked only if the new one is beyond the limit,
/// since a file may always become shorter.
///
/// # Errors
/// As for writing beyond the limit.
pub(crate) fn check_length(bytes: u64, before: impl FnOnce() -> Result<u64>) -> Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if bytes > limit && bytes > before()? => Err(exceeded()),
        _ => Ok(()),
    }
}

/// The kernel's two ways of saying so: a signal to the thread that writes, and if that survives it, an
/// error.
fn exceeded() -> Errno {
    // SAFETY: sends a signal to the calling thread.
    unsafe { libc::raise(libc::SIGXFSZ) };
    Errno::FBIG
}
