//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code)]
use std::sync::Arc;
use std::time::Duration;

use azekura_client::{ClientError, Pool};
use azekura_proto::Oid;
use azekura_proto::message::Container;

use crate::Result;

/// How long what an engine said may be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachePolicy {
    /// Every operation asks the engines.
    None,
    /// Attributes and entries are kept for up to this time.
    Auto {
        /// How long.
        ttl: Duration,
    },
}

/// How a file system is used.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// What is cached on the client's side.
    pub cache: CachePolicy,
    /// Check permissions here. Off where the kernel does it (`default_permissions`); ownership and
    /// setgid rules of new entries apply always.
    pub check_permissions: bool,
}

/// Why a file system cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// skeleton
    #[error("pool '{pool}' has no container '{container}': see 'azekura container list {pool}'")]
    NoContainer {
        /// The pool's name.
        pool: String,
        /// The container's name.
        container: String,
    },
    /// The pool did not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// One container seen as a file system. Shared by all threads of a door.
#[derive(Debug)]
pub struct FileSystem {}

impl FileSystem {
    /// Opens the container `name` of the pool (the default container is called `default`).
    pub fn mount(
        pool: Arc<Pool>,
        name: &str,
        config: FsConfig,
    ) -> std::result::Result<Arc<Self>, MountError> {
        todo!()
    }
    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        todo!()
    }
    /// The container as it was at mount.
    pub fn container(&self) -> &Container {
        todo!()
    }
    /// The root directory.
    pub fn root(&self) -> Oid {
        todo!()
    }
    /// The configuration.
    pub fn config(&self) -> &FsConfig {
        todo!()
    }
    /// The object with this inode number; 1 is the root (the number that FUSE gives it).
    ///
    /// # Errors
    /// `ESTALE` for a number that no object can have.
    pub fn object(&self, inode_number: u64) -> Result<Oid> {
        todo!()
    }
}
