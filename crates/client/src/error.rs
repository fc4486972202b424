//! What can go wrong on the client's side. Owns [`ClientError`], which has a variant only where a
//! caller acts differently.

use azekura_proto::status::StatusClass;
use azekura_proto::{EngineId, Status};
use azekura_wire::{ConnectError, SecretError};

/// Why a request has no useful answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The engine answered with a status that is the caller's to handle.
    #[error(transparent)]
    Status(#[from] Status),
    /// The engine could not be reached in time. The client goes on trying with later requests.
    #[error("engine {} of pool '{pool}' at {addresses} cannot be reached: {cause}; see 'azekura status {pool}'", engine.0)]
    Unreachable {
        /// The pool's name.
        pool: String,
        /// Which engine.
        engine: EngineId,
        /// Where it should listen.
        addresses: String,
        /// What the last attempt ran into.
        cause: String,
    },
    /// The engine answered something that does not belong to the request.
    #[error("engine {} broke the protocol: {what}; are all programs of the same release?", engine.0)]
    Protocol {
        /// Which engine.
        engine: EngineId,
        /// What was wrong.
        what: &'static str,
    },
    /// The request passes the bounds of a message, so it was not sent.
    #[error("the request is larger than a message may be")]
    TooLarge,
    /// The map names no such target.
    #[error("the pool has no target {0}")]
    NoSuchTarget(u16),
}

impl ClientError {
    /// The status that the engine answered, if it answered.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(*status),
            Self::Unreachable { .. }
            | Self::Protocol { .. }
            | Self::TooLarge
            | Self::NoSuchTarget(_) => None,
        }
    }

    /// Whether the engine has not taken the request in hand, as far as is known: the same request
    /// may succeed later.
    pub fn is_unreached(&self) -> bool {
        match self {
            Self::Status(status) => match status.class() {
                StatusClass::Retry | StatusClass::RefreshMap => true,
                StatusClass::Caller | StatusClass::Fatal => false,
            },
            Self::Unreachable { .. }
            | Self::Protocol { .. }
            | Self::TooLarge
            | Self::NoSuchTarget(_) => true,
        }
    }
}

/// Shorthand for answers of the pool.
pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a pool file or URL cannot be used. Each text names the file and the next step.
#[derive(Debug, thiserror::Error)]
pub enum PoolFileError {
    /// No pool of that name is known on this machine.
    #[error(
        "no pool '{name}' is known here (looked for {path}): start one with 'azekura up --name {name}', or give the path of a pool file or a URL azekura://HOST:PORT/{name}?secret_file=PATH"
    )]
    Unknown {
        /// The name.
        name: String,
        /// The file that was looked for.
        path: String,
    },
    /// The file cannot be read or written.
    #[error("pool file {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What happened.
        source: std::io::Error,
    },
    /// The file does not say what it must.
    #[error("pool file {path} is damaged: {what}; get a new one from whoever runs the pool")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// It holds the secret, and others may read it.
    #[error(
        "pool file {path} holds the pool secret but others can read it (mode {mode:03o}): run 'chmod 600 {path}'"
    )]
    Exposed {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// The secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The URL is not one of a pool.
    #[error("'{url}' is not a pool URL: {what}; write azekura://HOST:PORT/NAME?secret_file=PATH")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// The engine in the URL did not give the map.
    #[error("cannot get the map of pool '{name}' from {address}: {source}")]
    Connect {
        /// The pool's name.
        name: String,
        /// The engine that was asked.
        address: String,
        /// What happened.
        source: ConnectError,
    },
    /// The engine in the URL serves a pool of another name.
    #[error("the engine at {address} serves pool '{found}', not '{name}'")]
    OtherPool {
        /// The name in the URL.
        name: String,
        /// The engine that was asked.
        address: String,
        /// The name that it gave.
        found: String,
    },
}
