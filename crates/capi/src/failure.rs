//! How a call ends. Owns the negative errno that C sees, the message that a failure leaves for its
//! thread, and the rule that no panic leaves the library.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::panic::AssertUnwindSafe;

use azekura_client::{ClientError, PoolFileError};
use azekura_posix::{Errno, MountError, errno};
use azekura_proto::{Oid, Status};

use crate::fork;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: Errno,
    text: Option<String>,
}

/// What a call gives.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// What a call was about, for its message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    Path(&'a [u8]),
    Paths(&'a [u8], &'a [u8]),
    File(Oid),
    Object(Oid),
    Container(&'a str),
    Pool(&'a str),
    Engine(u16),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "'{}'", String::from_utf8_lossy(path)),
            Self::Paths(one, other) => write!(f, "{} and {}", Self::Path(one), Self::Path(other)),
            Self::File(oid) => write!(f, "file {oid}"),
            Self::Object(oid) => write!(f, "object {oid}"),
            Self::Container(name) => write!(f, "container '{name}'"),
            Self::Pool(name) => write!(f, "pool '{name}'"),
            Self::Engine(number) => write!(f, "engine {number}"),
        }
    }
}

impl Failure {
    /// A failure with its own words.
    pub(crate) fn with(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: Some(text.into()) }
    }

    /// The same with what it was about in front.
    pub(crate) fn about(self, subject: Subject<'_>) -> Self {
        let what = self.text.unwrap_or_else(|| described(self.errno));
        Self { errno: self.errno, text: Some(format!("{subject}: {what}")) }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        match errno::take_cause() {
            Some(cause) if errno == Errno::IO => cause.into(),
            _ => Self { errno, text: None },
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let errno = match &error {
            ClientError::Unreachable { .. }
            | ClientError::Status(Status::PeerUnreachable | Status::Stopping) => Errno::TIMEDOUT,
            ClientError::Status(Status::ConditionFailed) => Errno::CANCELED,
            other => errno::of_client(other),
        };
        // Told here, so it is not the cause of a later failure.
        drop(errno::take_cause());
        let text = match &error {
            ClientError::Status(status) if errno == Errno::IO => {
                format!("an engine answered: {status}; its log says more")
            }
            other => other.to_string(),
        };
        Self::with(errno, text)
    }
}

impl From<PoolFileError> for Failure {
    fn from(error: PoolFileError) -> Self {
        let errno = match &error {
            PoolFileError::Unknown { .. } | PoolFileError::OtherPool { .. } => Errno::NOENT,
            PoolFileError::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            PoolFileError::Damaged { .. } | PoolFileError::Url { .. } => Errno::INVAL,
            PoolFileError::Exposed { .. } | PoolFileError::Secret(_) => Errno::ACCESS,
            PoolFileError::Connect { .. } => Errno::TIMEDOUT,
        };
        Self::with(errno, error.to_string())
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Client(error) => error.into(),
            none @ MountError::NoContainer { .. } => Self::with(Errno::NOENT, none.to_string()),
        }
    }
}

/// Adds what a call was about to its failure.
pub(crate) trait About<T> {
    /// The same, with the subject in the message.
    fn about(self, subject: Subject<'_>) -> Outcome<T>;
}

impl<T, E: Into<Failure>> About<T> for Result<T, E> {
    fn about(self, subject: Subject<'_>) -> Outcome<T> {
        self.map_err(|error| error.into().about(subject))
    }
}

/// The words for an errno, and what to do about it where that is known.
fn described(errno: Errno) -> String {
    let words = std::io::Error::from(errno).to_string();
    // Without the number, which the caller has.
    let words = words.split(" (os error").next().unwrap_or_default();
    match advice(errno) {
        Some(advice) => format!("{words}; {advice}"),
        None => words.to_owned(),
    }
}

fn advice(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::STALE => "it was removed: open it again by its path",
        Errno::NOSPC => "a target of the pool is full: see 'azekura status'",
        Errno::NOLCK | Errno::NFILE => "a limit of the engine is reached: close files or locks",
        Errno::BADF => "the file is not open for this",
        _ => return None,
    })
}

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
        Ok(code) => {
            let words = std::io::Error::from_raw_os_error(code).to_string();
            words.split(" (os error").next().unwrap_or_default().to_owned()
        }
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
    let text = failure.text.unwrap_or_else(|| described(failure.errno));
    keep(&MESSAGE, &format!("{name}: {text}"));
    Err(-failure.errno.raw_os_error())
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

    use super::*;

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
