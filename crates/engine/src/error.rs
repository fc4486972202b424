//! Why an engine does not start. What a peer is told instead is a status of the protocol, never one
//! of these.

use std::io;
use std::path::{Path, PathBuf};

use azekura_proto::{Status, TargetId};
use azekura_store::StoreError;

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A target cannot be made or opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or socket of the engine.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The engine's record of its pool does not make sense.
    #[error("{}: {detail}; restore the file, or make the pool anew in an empty directory", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// What a target holds could not be brought into order.
    #[error("target {} in {}: recovery failed: {status}", target.0, path.display())]
    Recovery {
        /// The target.
        target: TargetId,
        /// Its directory.
        path: PathBuf,
        /// Why.
        status: Status,
    },
}

/// Turns an error of the system into one that names what was tried, and on what.
pub(crate) fn io_error(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> EngineError + use<> {
    let path = path.to_owned();
    move |source| EngineError::Io { what, path, source }
}
