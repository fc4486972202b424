//! Why a call failed. Owns which errno each error of the layers below becomes, and its words.

use std::fmt;

use azekura_client::{ClientError, PoolFileError};
use azekura_posix::{Errno, MountError, errno};
use azekura_proto::{Oid, Status};

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

    /// The errno that C sees, and the words for it.
    pub(crate) fn told(self) -> (Errno, String) {
        (self.errno, self.text.unwrap_or_else(|| described(self.errno)))
    }

    /// The same with what it was about in front.
    pub(crate) fn about(self, subject: Subject<'_>) -> Self {
        let (errno, what) = self.told();
        Self::with(errno, format!("{subject}: {what}"))
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
    let words = words(errno.raw_os_error());
    match advice(errno) {
        Some(advice) => format!("{words}; {advice}"),
        None => words,
    }
}

/// The system's words for an errno, without the number, which the caller has.
pub(crate) fn words(code: i32) -> String {
    let words = std::io::Error::from_raw_os_error(code).to_string();
    words.split(" (os error").next().unwrap_or_default().to_owned()
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
