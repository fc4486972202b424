//! How a hook runs our code and answers its caller. Owns that a panic becomes `EIO`, that `errno` is set,
//! and that a call whose file turns out to be the host's goes on to the C library.

use std::panic::{AssertUnwindSafe, catch_unwind};

use azekura_posix::{Errno, Result};

use crate::guard::Guard;
use crate::host::{self, Failing};
use crate::report::{self, Counter};
use crate::scope::RECORDS_ONLY;

/// Does something in our code, and nothing (`None`) if the thread is there already. A panic becomes
/// `EIO`.
pub(crate) fn run<T>(body: impl FnOnce() -> Result<T>) -> Option<Result<T>> {
    if RECORDS_ONLY {
        return None;
    }
    let guard = Guard::enter()?;
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        report::trouble("a defect of the preload library: an operation was given up with EIO");
        Err(Errno::IO)
    });
    drop(guard);
    Some(result)
}

/// Does something of ours that may wait long, so that signals, forks and other threads go on: it holds no
/// lock, and calls nothing that is hooked. A panic becomes `EIO`.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        inside(|| {
            report::trouble("a defect of the preload library: an operation was given up with EIO");
        });
        Err(Errno::IO)
    })
}

/// As [`run`], for something that cannot fail and gives nothing.
pub(crate) fn inside(body: impl FnOnce()) {
    let _ = run(|| {
        body();
        Ok(())
    });
}

/// What the C caller gets: the value, or the failed one with `errno`.
pub(crate) fn conclude<R: Failing>(counter: &'static Counter, result: Result<R>) -> R {
    counter.served();
    match result {
        Ok(value) => value,
        Err(errno) => {
            if errno == Errno::IO {
                report::failed(counter);
            }
            host::set_errno(errno.raw_os_error());
            R::FAILED
        }
    }
}

/// As [`conclude`]; what was not run, or found that the call is not ours (`Ok(None)`), is left to `hosts`.
pub(crate) fn conclude_or<R: Failing>(
    counter: &'static Counter,
    result: Option<Result<Option<R>>>,
    hosts: impl FnOnce() -> R,
) -> R {
    match result.and_then(Result::transpose) {
        Some(result) => conclude(counter, result),
        None => hosts(),
    }
}
