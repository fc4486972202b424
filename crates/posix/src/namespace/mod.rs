//! The file system by path, for programs that use it as a library: [`Namespace`], [`File`],
//! [`Directory`]. Owns how a path is walked ([`walk`]); everything else is done by the operations
//! of [`crate::FileSystem`].

mod directory;
mod file;
mod paths;
mod walk;

use std::sync::Arc;

use azekura_proto::Oid;

use crate::{Credentials, FileSystem};

pub use directory::{Directory, DirectoryEntry};
pub use file::{File, OpenOptions};

/// A file system by path, for one user. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Namespace {
    fs: Arc<FileSystem>,
    caller: Arc<Credentials>,
    base: Oid,
}

impl Namespace {
    /// The file system as this user sees it; relative paths count from its root.
    pub fn new(fs: Arc<FileSystem>, caller: Credentials) -> Self {
        let base = fs.root();
        Self { fs, caller: Arc::new(caller), base }
    }

    /// The same, with relative paths counted from the directory `base`.
    #[must_use]
    pub fn at(&self, base: Oid) -> Self {
        Self { base, ..self.clone() }
    }

    /// The file system.
    pub fn filesystem(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// The user.
    pub fn caller(&self) -> &Credentials {
        &self.caller
    }
}
