//! What all shard files of a target share: their directory, how long they must be, which of their names
//! are synced, and which of them have failed to sync. Owns the rule that a directory is synced once for all files
//! that were created in it before.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura_proto::{Oid, TargetId};
use parking_lot::Mutex;

use super::lengths::Lengths;
use super::path::{DATA_DIRS, ShardKey, dir_index, dir_name, relative_path};
use crate::disk::Directory;
use crate::error::StoreError;
use crate::free_space::FreeSpace;

/// What all shard files of a target share.
pub(crate) struct ShardDir {
    pub(super) dir: Arc<dyn Directory>,
    pub(super) gauge: Arc<FreeSpace>,
    pub(super) lengths: Lengths,
    pub(super) target: TargetId,
    /// By data directory: files created so far, and how many of those names are synced. The first
    /// starts at one, since nothing is known of names from before the target was opened.
    created: Box<[AtomicU64]>,
    synced: Box<[AtomicU64]>,
    has_failed: AtomicBool,
    /// Shards of which a sync has failed.
    failed: Mutex<HashSet<ShardKey>>,
}

impl ShardDir {
    pub(super) fn new(
        dir: Arc<dyn Directory>,
        gauge: Arc<FreeSpace>,
        lengths: Lengths,
        target: TargetId,
    ) -> Self {
        Self {
            dir,
            gauge,
            lengths,
            target,
            created: (0..DATA_DIRS).map(|_| AtomicU64::new(1)).collect(),
            synced: (0..DATA_DIRS).map(|_| AtomicU64::new(0)).collect(),
            has_failed: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    pub(super) fn path_of(&self, key: ShardKey) -> PathBuf {
        self.dir.path().join(relative_path(key))
    }

    /// What is said of a shard that has lost data.
    pub(super) fn lost(&self, key: ShardKey, noted: u64, found: u64) -> StoreError {
        let (oid, shard) = key;
        let (path, target) = (self.path_of(key), self.target);
        StoreError::Lost { path, oid, shard, target, noted, found }
    }

    /// Counts a name that was created just now.
    pub(super) fn note_created(&self, oid: Oid) {
        self.created[dir_index(oid)].fetch_add(1, Ordering::AcqRel);
    }

    /// How many names of the directory of `oid` are synced.
    #[cfg(test)]
    pub(super) fn synced(&self, oid: Oid) -> u64 {
        self.synced[dir_index(oid)].load(Ordering::Acquire)
    }

    /// Number of names that have to be synced so that the newest file of the directory is.
    pub(super) fn names(&self, oid: Oid) -> u64 {
        self.created[dir_index(oid)].load(Ordering::Acquire)
    }

    /// Syncs the directory of `oid` unless its first `names` names are synced already.
    pub(super) fn sync_names(&self, oid: Oid, names: u64) -> Result<(), StoreError> {
        let index = dir_index(oid);
        if self.synced[index].load(Ordering::Acquire) >= names {
            return Ok(());
        }
        let covered = self.created[index].load(Ordering::Acquire);
        assert!(names <= covered, "a file whose name was not counted");
        let name = dir_name(index);
        self.dir.open_dir(&name).and_then(|dir| dir.sync()).map_err(|error| {
            StoreError::system(&self.dir.path().join(name), "sync the directory", error)
        })?;
        self.synced[index].fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a sync of the shard has failed since it was created.
    pub(super) fn has_failed(&self, key: ShardKey) -> bool {
        self.has_failed.load(Ordering::Acquire) && self.failed.lock().contains(&key)
    }

    pub(super) fn set_failed(&self, key: ShardKey) {
        self.failed.lock().insert(key);
        self.has_failed.store(true, Ordering::Release);
    }

    pub(super) fn forget_failure(&self, key: ShardKey) {
        if self.has_failed.load(Ordering::Acquire) {
            self.failed.lock().remove(&key);
        }
    }
}
