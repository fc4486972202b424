//! The only map from what the pool answers to what POSIX calls it. No other module makes an errno
//! out of a status.

use std::cell::Cell;

use azekura_client::ClientError;
use azekura_proto::Status;
pub use rustix::io::Errno;

/// What every operation of the file system gives back.
pub type Result<T> = std::result::Result<T, Errno>;

thread_local! {
    /// What the last `EIO` of this thread came from.
    static CAUSE: Cell<Option<ClientError>> = const { Cell::new(None) };
}

/// What stood behind the last `EIO` of the calling thread, for a front end that can tell its user more
/// than an errno does. Given once; then `None`.
pub fn take_cause() -> Option<ClientError> {
    CAUSE.try_with(Cell::take).ok().flatten()
}

/// The errno of a request about a name: in a directory that is gone none can be made, nor found.
pub(crate) fn of_entry(error: &ClientError) -> Errno {
    match of_client(error) {
        Errno::STALE => Errno::NOENT,
        other => other,
    }
}

/// The errno of a status.
pub fn of_status(status: Status) -> Errno {
    match status {
        Status::NotFound => Errno::NOENT,
        Status::Exists => Errno::EXIST,
        Status::NotDirectory => Errno::NOTDIR,
        Status::IsDirectory => Errno::ISDIR,
        Status::NotEmpty => Errno::NOTEMPTY,
        Status::Stale => Errno::STALE,
        Status::IntoItself | Status::Invalid => Errno::INVAL,
        Status::TooManyLinks => Errno::MLINK,
        Status::NameTooLong => Errno::NAMETOOLONG,
        Status::FileTooBig => Errno::FBIG,
        Status::TooLarge => Errno::TOOBIG,
        Status::NoSpace => Errno::NOSPC,
        Status::ReadOnly => Errno::ROFS,
        Status::Locked => Errno::AGAIN,
        Status::Deadlock => Errno::DEADLK,
        Status::LimitReached => Errno::NFILE,
        Status::Busy => Errno::BUSY,
        Status::Unsupported => Errno::OPNOTSUPP,
        Status::Io
        | Status::Damaged
        | Status::ConditionFailed
        | Status::Grace
        | Status::Stopping
        | Status::SessionExpired
        | Status::Refresh
        | Status::WrongTarget
        | Status::PeerUnreachable => Errno::IO,
    }
}

/// The errno of a failed request. What the application cannot be told in an errno is logged, and
/// kept for [`take_cause`].
pub fn of_client(error: &ClientError) -> Errno {
    let errno = logged(error);
    if errno == Errno::IO {
        // Where the thread is ending there is nobody left to ask for it.
        let _ = CAUSE.try_with(|cause| cause.set(Some(error.clone())));
    }
    errno
}

fn logged(error: &ClientError) -> Errno {
    match error {
        ClientError::Status(status) => {
            let errno = of_status(*status);
            if errno == Errno::IO {
                tracing::warn!("an engine answered: {status}");
            }
            errno
        }
        // The pool has logged the engine and its address.
        ClientError::Unreachable { .. } => Errno::IO,
        ClientError::TooLarge => Errno::TOOBIG,
        ClientError::Protocol { .. } | ClientError::NoSuchTarget(_) => {
            tracing::error!("{error}");
            Errno::IO
        }
    }
}
