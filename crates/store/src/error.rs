//! What can go wrong in a store. A variant stands here only where a caller acts differently; every
//! text names the path and what to do next. Owns the translation of the system's errors.

use std::io;
use std::path::{Path, PathBuf};

use azekura_proto::{Oid, PoolId, Status, TargetId};
use rustix::io::Errno;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk below is full, or so nearly full that only removals may pass.
    #[error("{}: no space left; remove files or enlarge the file system below", path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
    },
    /// The file system below is read-only, or this user may not write there.
    #[error("{}: cannot {what}: {source}; check owner, permissions and mount options", path.display())]
    ReadOnly {
        /// Where.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A condition of a key-value update does not hold; nothing of the update was done.
    #[error("{}: a condition of the update does not hold; read the values and decide again", path.display())]
    Condition {
        /// The key-values of the target.
        path: PathBuf,
    },
    /// What is on disk does not have the form that it must have.
    #[error("{}: damaged: {detail}; restore this target from a copy, or recreate it", path.display())]
    Damaged {
        /// The damaged file or directory.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Data of a shard are gone that were written.
    #[error(
        "{}: object {oid}, shard {shard}, target {}: {found} bytes are there of {noted} that were \
         written; restore the shard from a copy with its engine stopped, or cut or remove the file \
         that it belongs to", path.display(), target.0
    )]
    Lost {
        /// The shard's file.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// Its shard.
        shard: u16,
        /// The target.
        target: TargetId,
        /// How long the file must be at least, in bytes.
        noted: u64,
        /// How long it is, in bytes.
        found: u64,
    },
    /// A newer release wrote this target.
    #[error(
        "{}: format version {found}, and this release knows up to {known}; use the newer release",
        path.display()
    )]
    NewerVersion {
        /// The identity file.
        path: PathBuf,
        /// The version on disk.
        found: u32,
        /// The newest version that this release reads.
        known: u32,
    },
    /// A process has the target open.
    #[error("{}: in use by another process; stop that one first", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is not a target, or holds foreign files.
    #[error("{}: not a target: {detail}", path.display())]
    NotATarget {
        /// The directory.
        path: PathBuf,
        /// What was found, and what to do.
        detail: &'static str,
    },
    /// The directory belongs to another pool or is another target of the pool.
    #[error(
        "{}: belongs to pool {found_pool}, target {}, and not to pool {pool}, target {}; \
         correct the path in the configuration",
        path.display(), found_target.0, target.0
    )]
    WrongIdentity {
        /// The directory.
        path: PathBuf,
        /// The pool that was asked for.
        pool: PoolId,
        /// The target that was asked for.
        target: TargetId,
        /// The pool on disk.
        found_pool: PoolId,
        /// The target on disk.
        found_target: TargetId,
    },
    /// What was committed relies on a commit of another target, which does not answer.
    #[error(
        "{}: waits for target {}, whose commits it relies on; start the engine of that target",
        path.display(), target.0
    )]
    Waits {
        /// The key-values of the target that waits.
        path: PathBuf,
        /// The target that does not answer.
        target: TargetId,
    },
    /// Commits were dropped since another target lost what they relied on with its power.
    #[error("{}: some of the last commits were taken back; open the target anew", path.display())]
    RolledBack {
        /// The key-values of the target.
        path: PathBuf,
    },
    /// The disk failed, or did earlier in a way that cannot be taken back.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl StoreError {
    /// An error of a system call.
    pub(crate) fn system(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let path = path.to_path_buf();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace { path },
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                Self::ReadOnly { path, what, source }
            }
            _ => Self::Io { path, what, source },
        }
    }

    /// The database in directory `path` takes nothing any more.
    pub(crate) fn given_up(path: &Path, what: &'static str) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            what,
            source: io::Error::other(
                "an earlier write failed; correct the disk, then restart this engine",
            ),
        }
    }

    /// An error for an argument that no caller may give.
    pub(crate) fn argument(path: &Path, what: &'static str, detail: &'static str) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            what,
            source: io::Error::new(io::ErrorKind::InvalidInput, detail),
        }
    }

    /// What a client is told.
    pub fn status(&self) -> Status {
        match self {
            Self::NoSpace { .. } => Status::NoSpace,
            Self::ReadOnly { .. } => Status::ReadOnly,
            Self::Condition { .. } => Status::ConditionFailed,
            Self::Damaged { .. } | Self::Lost { .. } | Self::NewerVersion { .. } => Status::Damaged,
            Self::InUse { .. } => Status::Busy,
            Self::NotATarget { .. } | Self::WrongIdentity { .. } => Status::WrongTarget,
            Self::Waits { .. } => Status::PeerUnreachable,
            Self::RolledBack { .. } => Status::Stopping,
            Self::Io { source, .. } => io_status(source),
        }
    }
}

fn io_status(source: &io::Error) -> Status {
    if source.kind() == io::ErrorKind::InvalidInput {
        return Status::Invalid;
    }
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::FBIG) => Status::FileTooBig,
        Some(Errno::OPNOTSUPP) => Status::Unsupported,
        Some(Errno::MFILE | Errno::NFILE) => Status::LimitReached,
        _ => Status::Io,
    }
}

impl From<&StoreError> for Status {
    fn from(error: &StoreError) -> Self {
        error.status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_permission_are_told_apart() {
        let path = Path::new("/t");
        let full = StoreError::system(path, "write", Errno::NOSPC);
        assert_eq!(full.status(), Status::NoSpace);
        let read_only = StoreError::system(path, "write", Errno::ROFS);
        assert_eq!(Status::from(&read_only), Status::ReadOnly);
        let failed = StoreError::system(path, "write", Errno::IO);
        assert_eq!(failed.status(), Status::Io);
        assert!(failed.to_string().starts_with("/t: cannot write: "));
    }
}
