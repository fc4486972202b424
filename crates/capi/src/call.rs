//! How a call runs and ends. Owns the negative errno that C sees, the message that a failure leaves for
//! its thread, and the rule that no panic leaves the library.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::AssertUnwindSafe;

use azekura_posix::{Errno, errno};

use crate::failure::{self, Failure, Outcome};
use crate::fork;

thread_local! {
    /// Text of the last failure, ended by a zero byte; empty before there was one.
    static MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static WORDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a text in the thread's slot and gives a pointer that is good until the next text.
fn keep(slot: &'static std::thread::LocalKey<RefCell<Vec<u8>>>, text: &str) -> *const c_char {
    slot.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        kept.extend(text.bytes().filter(|byte| *byte != 0));
        kept.push(0);
        kept.as_ptr().cast()
    })
    // The thread is ending.
    .unwrap_or(c"".as_ptr())
}

/// `azekura_error_message`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_error_message() -> *const c_char {
    let none = c"".as_ptr();
    MESSAGE
        .try_with(|kept| match kept.borrow().as_slice() {
            [] => none,
            text => text.as_ptr().cast(),
        })
        .unwrap_or(none)
}

/// `azekura_strerror`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_strerror(error: c_int) -> *const c_char {
    let words = match i32::try_from(error.unsigned_abs()) {
        Ok(0) => "Success".to_owned(),
        Ok(code) => failure::words(code),
        Err(_) => "Unknown error".to_owned(),
    };
    keep(&WORDS, &words)
}

/// Runs the body of an exported function: gives its result, or the negative errno.
fn run<T>(name: &'static str, body: impl FnOnce() -> Outcome<T>) -> Result<T, c_int> {
    let _inside = fork::enter();
    let failure = match std::panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::with(
            Errno::IO,
            format!("a defect in libazekura: {}; please report it", said(&*panic)),
        ),
    };
    // A cause that nobody took must not turn up in a later message.
    drop(errno::take_cause());
    let (errno, text) = failure.told();
    keep(&MESSAGE, &format!("{name}: {text}"));
    Err(-errno.raw_os_error())
}

fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// A function that gives 0.
pub(crate) fn status(name: &'static str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    run(name, body).map_or_else(|code| code, |()| 0)
}

/// A function that gives 1 for yes and 0 for no.
pub(crate) fn answer(name: &'static str, body: impl FnOnce() -> Outcome<bool>) -> c_int {
    run(name, body).map_or_else(|code| code, c_int::from)
}

/// A function that gives a number of bytes in memory (`ssize_t`).
pub(crate) fn count(name: &'static str, body: impl FnOnce() -> Outcome<usize>) -> isize {
    run(name, body).map_or_else(|code| code as isize, |count| count as isize)
}

/// A function that gives an offset or a number of bytes in the pool (`int64_t`).
pub(crate) fn offset(name: &'static str, body: impl FnOnce() -> Outcome<u64>) -> i64 {
    run(name, body).map_or_else(i64::from, |offset| offset as i64)
}

/// Keeps panics from printing: what they say goes into the message of the call. The library has a
/// panic hook of its own, which no other part of the program shares.
pub(crate) fn be_quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use azekura_client::ClientError;
    use azekura_proto::Status;

    use super::*;
    use crate::failure::{About as _, Subject};

    fn message() -> String {
        // SAFETY: the pointer is good until the next failure of this thread.
        unsafe { CStr::from_ptr(azekura_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_errno_and_a_message() {
        be_quiet();
        let code = status("azekura_test", || panic!("what went {}", "wrong"));
        assert_eq!(code, -Errno::IO.raw_os_error());
        assert_eq!(
            message(),
            "azekura_test: a defect in libazekura: what went wrong; please report it"
        );
    }

    #[test]
    fn a_message_says_what_failed_on_what() {
        let code = offset("azekura_test", || Err(Errno::STALE).about(Subject::Path(b"/a")));
        assert_eq!(code, -116);
        assert!(message().starts_with("azekura_test: '/a': Stale file handle; it was removed"));
        let code = count("azekura_test", || {
            Err(ClientError::Status(Status::ConditionFailed)).about(Subject::Pool("p"))
        });
        assert_eq!(code, -125);
        assert!(message().contains("pool 'p': the condition"), "{}", message());
    }

    #[test]
    fn errors_are_named_with_either_sign() {
        for code in [2, -2] {
            // SAFETY: the pointer is good until the next call on this thread.
            let words = unsafe { CStr::from_ptr(azekura_strerror(code)) };
            assert_eq!(words.to_str().unwrap(), "No such file or directory");
        }
    }
}
