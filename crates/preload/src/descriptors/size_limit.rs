//! The limit that a process has on the size of files (`RLIMIT_FSIZE`, `ulimit -f`). The kernel holds
//! processes to it where it writes itself; here it is this library that writes. Sends the signal that
//! belongs to it only where no lock is held, since it may end the process.
//!
//! That there is no limit is remembered for a moment: asking takes a fifth of the time of a small write. Whatever this
//! process does to its limits is heard of ([`forget`]); what another one does (`prlimit --pid`) shows after that moment.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura_posix::{Errno, Result};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// For so long it is believed that there is no limit.
const MOMENT_MS: u64 = 10;
/// The low bits of [`UNLIMITED`].
const TIME_BITS: u32 = 40;

/// Until when there is no limit, in milliseconds of the monotonic clock, and above that how often something was done to
/// limits: who asked before does not note it after.
static UNLIMITED: AtomicU64 = AtomicU64::new(0);

/// The limits of this process may be others now.
pub(crate) fn forget() {
    let next = |known: u64| Some(((known >> TIME_BITS) + 1) << TIME_BITS);
    let _ = UNLIMITED.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}

/// The limit in bytes, if there is one.
fn limit() -> Option<u64> {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let now_ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
    let known = UNLIMITED.load(Ordering::Acquire);
    let mask = (1 << TIME_BITS) - 1;
    if now_ms < known & mask {
        return None;
    }
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_none() {
        let noted = (known & !mask) | ((now_ms + MOMENT_MS) & mask);
        // In vain if something was done to limits meanwhile.
        let _ = UNLIMITED.compare_exchange(known, noted, Ordering::AcqRel, Ordering::Relaxed);
    }
    limit
}

/// How much of `bytes` may be written at the place that `offset` gives, which is asked only if there is
/// a limit; `None` if nothing may be.
pub(super) fn allowed(bytes: usize, offset: impl FnOnce() -> Result<u64>) -> Result<Option<usize>> {
    let Some(limit) = limit().filter(|_| bytes > 0) else {
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
    match limit() {
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
