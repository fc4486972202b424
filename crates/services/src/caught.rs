//! Panics of the library that speaks to services: it has some for answers that it does not expect, such as a name
//! over SFTP that is not UTF-8, and what a server says must not end a job. Owns who may panic: its code, on
//! threads that work for it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use opendal::{Error, ErrorKind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread, at this moment, becomes an error of the service that is being asked. A panic
/// hook that ends the process leaves those alone.
pub fn panics_are_caught() -> bool {
    IS_CAUGHT.get()
}

/// From now on the panics of this thread are, by the runtime that it belongs to.
pub(crate) fn on_this_thread() {
    IS_CAUGHT.set(true);
}

/// Does something of the library's.
///
/// # Errors
/// As that does, and if it panics.
pub(crate) fn caught<T>(work: impl FnOnce() -> opendal::Result<T>) -> opendal::Result<T> {
    let before = IS_CAUGHT.replace(true);
    // What it works on is of one request; what all requests share is behind its own locks.
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    done.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        let why = format!("the library cannot read the answer: {said}");
        Err(Error::new(ErrorKind::Unexpected, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_known_for_one_beforehand() {
        let error = caught::<()>(|| {
            assert!(panics_are_caught());
            panic!("what is {}", "that")
        });
        assert!(error.unwrap_err().to_string().contains("what is that"));
        assert!(!panics_are_caught());
        assert_eq!(caught(|| Ok(1)).unwrap(), 1);
    }
}
