//! The closed table of everything that can go wrong between a client and an engine. Owns the
//! classing of each code by what the caller does next. It knows nothing of errno: the one map from
//! status to errno stands in `posix`.

use serde::{Deserialize, Serialize};

/// Why a request was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Status {
    /// The name, object, attribute or container is not there.
    #[error("not found")]
    NotFound,
    /// The name, attribute or container is there already.
    #[error("already exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Something other than a directory was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The object that an id or handle names is gone.
    #[error("the object is gone")]
    Stale,
    /// A directory would be moved into itself or below itself.
    #[error("a directory cannot be moved below itself")]
    IntoItself,
    /// The link count would pass its limit.
    #[error("too many links")]
    TooManyLinks,
    /// A name is longer than 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// A name, argument or combination that no correct client sends or that has no meaning.
    #[error("invalid argument")]
    Invalid,
    /// The offset or length is beyond what a file may have.
    #[error("file too big")]
    FileTooBig,
    /// A value or message is larger than its limit.
    #[error("larger than the limit")]
    TooLarge,
    /// The target's disk is full.
    #[error("no space left on the target")]
    NoSpace,
    /// The target's disk is read-only, or the engine may not write there.
    #[error("the target cannot be written")]
    ReadOnly,
    /// The target's disk failed, or an earlier fsync of the same data did.
    #[error("input/output error on the target")]
    Io,
    /// Stored data does not have the form that it must have.
    #[error("damaged data on the target")]
    Damaged,
    /// A condition of the update does not hold.
    #[error("the condition of the update does not hold")]
    ConditionFailed,
    /// The lock is held by another owner.
    #[error("locked by another owner")]
    Locked,
    /// Waiting for the lock would never end.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// The bound on locks, open files, sessions or queued work is reached.
    #[error("a limit of the engine is reached")]
    LimitReached,
    /// Another transaction holds what this one needs. Try again soon.
    #[error("busy with another transaction")]
    Busy,
    /// The engine has just started and waits for earlier holders to claim their locks.
    #[error("waiting for earlier lock holders")]
    Grace,
    /// The engine is draining before it stops.
    #[error("the engine is stopping")]
    Stopping,
    /// The session's lease ran out; its locks and unlinked files are gone.
    #[error("the session has expired")]
    SessionExpired,
    /// The request was computed with an old pool map.
    #[error("the pool map has changed")]
    Refresh,
    /// The target does not belong to the engine that was asked.
    #[error("the target is not at this engine")]
    WrongTarget,
    /// The engine does not know this request.
    #[error("not supported by the engine")]
    Unsupported,
    /// Another engine that has to take part could not be reached.
    #[error("another engine of the pool cannot be reached")]
    PeerUnreachable,
}

/// What the caller does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusClass {
    /// Send the same request again after a short wait.
    Retry,
    /// Fetch the pool map, compute the targets anew, send again.
    RefreshMap,
    /// An answer like any other: hand it to the application.
    Caller,
    /// The store or the session is broken: report it, and do not try again.
    Fatal,
}

impl Status {
    /// What the caller does next.
    pub const fn class(self) -> StatusClass {
        match self {
            Self::Busy | Self::Grace | Self::Stopping | Self::PeerUnreachable => StatusClass::Retry,
            Self::Refresh | Self::WrongTarget => StatusClass::RefreshMap,
            Self::Io | Self::Damaged | Self::SessionExpired => StatusClass::Fatal,
            Self::NotFound
            | Self::Exists
            | Self::NotDirectory
            | Self::IsDirectory
            | Self::NotEmpty
            | Self::Stale
            | Self::IntoItself
            | Self::TooManyLinks
            | Self::NameTooLong
            | Self::Invalid
            | Self::FileTooBig
            | Self::TooLarge
            | Self::NoSpace
            | Self::ReadOnly
            | Self::ConditionFailed
            | Self::Locked
            | Self::Deadlock
            | Self::LimitReached
            | Self::Unsupported => StatusClass::Caller,
        }
    }
}
