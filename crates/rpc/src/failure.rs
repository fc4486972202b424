//! Why an exchange did not end with an answer. Owns the line between what a new connection may mend
//! and what it cannot.

use std::io;

use azekura_wire::{ConnectError, RecvError};

/// Why an exchange did not end with an answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The connection failed. Whether the request was carried out is not known.
    #[error("{0}")]
    Broken(io::Error),
    /// No answer came within the time-out of the transport.
    #[error("it does not answer")]
    Late,
    /// The request passes the bounds of a message, so it was not sent.
    #[error("the request is larger than a message may be")]
    TooLarge,
    /// What came is no answer to what was asked. Trying again would not help.
    #[error("{0}")]
    Protocol(&'static str),
}

impl Failure {
    /// The reply belongs to another request: the one protocol error of all that is asked.
    pub const OTHER_REPLY: &'static str = "a reply that belongs to another request";

    /// Data came that the answer does not announce, or that nobody has asked for.
    pub(crate) const UNASKED_DATA: Self = Self::Protocol("more or less data than announced");

    /// There is no connection.
    pub fn not_connected() -> Self {
        Self::Broken(io::ErrorKind::NotConnected.into())
    }

    /// Whether what answers never lets this caller in.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Broken(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ConnectError>());
                inner.is_some_and(ConnectError::is_final)
            }
            Self::Late | Self::TooLarge | Self::Protocol(_) => false,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The kernel's own word is about the connection: its keepalive has found it dead.
            io::ErrorKind::TimedOut if error.raw_os_error().is_some() => Self::Broken(error),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Broken(error),
        }
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Broken(io::ErrorKind::ConnectionReset.into()),
            RecvError::Idle => Self::Late,
            RecvError::Io(error) => error.into(),
            RecvError::Protocol(_) => Self::Protocol("bytes that are no message"),
        }
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::message::Refusal;

    use super::*;

    #[test]
    fn a_connection_that_has_died_is_not_an_engine_that_is_silent() {
        const EAGAIN: i32 = 11;
        const ETIMEDOUT: i32 = 110;
        let dead = io::Error::from_raw_os_error(ETIMEDOUT);
        assert!(matches!(Failure::from(dead), Failure::Broken(_)));
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::TimedOut)), Failure::Late));
        let waited = io::Error::from_raw_os_error(EAGAIN);
        assert!(matches!(Failure::from(waited), Failure::Late));
    }

    #[test]
    fn what_the_system_forbids_is_no_refusal_of_the_engine() {
        const EACCES: i32 = 13;
        let said = |error: ConnectError| Failure::Broken(io::Error::other(error));
        assert!(said(Refusal::WrongPool.into()).is_refusal());
        assert!(said(ConnectError::Impostor).is_refusal());
        assert!(!said(Refusal::Stopping.into()).is_refusal());
        assert!(!Failure::Broken(io::Error::from_raw_os_error(EACCES)).is_refusal());
    }
}
