//! The file system by path, for programs that use it as a library: [`Namespace`], [`File`],
//! [`Directory`]. Owns how a path is walked ([`walk`]); everything else is done by the operations
//! of [`crate::FileSystem`].

mod directory;
mod far_walk;
mod file;
mod paths;
mod walk;

use std::sync::Arc;

use azekura_proto::Oid;

use crate::{Credentials, FileSystem};

pub use directory::{Directory, DirectoryEntry};
pub use file::{File, OpenOptions};
pub use walk::{LEFT, below_prefix};

/// A file system by path, for one user. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Namespace {
    fs: Arc<FileSystem>,
    caller: Arc<Credentials>,
    base: Oid,
    /// Where it stands in a larger tree, if paths may lead out of it.
    prefix: Option<Arc<[u8]>>,
}

impl Namespace {
    /// The file system as this user sees it; relative paths count from its root.
    pub fn new(fs: Arc<FileSystem>, caller: Credentials) -> Self {
        let base = fs.root();
        Self { fs, caller: Arc::new(caller), base, prefix: None }
    }

    /// The same, with relative paths counted from the directory `base`.
    #[must_use]
    pub fn at(&self, base: Oid) -> Self {
        Self { base, ..self.clone() }
    }

    /// The same, as another user sees it.
    #[must_use]
    pub fn seen_by(&self, caller: Credentials) -> Self {
        Self { caller: Arc::new(caller), ..self.clone() }
    }

    /// The same, standing at the absolute path `prefix` of a larger tree: symlinks with absolute
    /// texts count from that tree's root, and `..` leads out. A call whose path ends up outside
    /// fails with [`LEFT`], and [`Namespace::way_out`] tells where it leads.
    #[must_use]
    pub fn standing_at(&self, prefix: &[u8]) -> Self {
        Self { prefix: Some(Arc::from(prefix)), ..self.clone() }
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
