//! How many objects a target has, by container, so that those of a container that is destroyed are
//! counted no longer while its data still wait for the reclaimer. Counts live in memory; a start counts anew.

use std::collections::HashMap;

use azekura_proto::{ContainerId, Oid};
use parking_lot::Mutex;

/// The counts of one target.
#[derive(Debug, Default)]
pub(crate) struct ObjectCounts {
    by_container: Mutex<HashMap<ContainerId, u64>>,
}

/// Inodes that a batch has removed: the container of each.
pub(crate) type Removed = Vec<ContainerId>;

impl ObjectCounts {
    /// An inode is there that was not.
    pub(crate) fn add(&self, oid: Oid) {
        *self.by_container.lock().entry(oid.container()).or_insert(0) += 1;
    }

    /// Inodes are gone.
    pub(crate) fn remove(&self, removed: &Removed) {
        let mut counts = self.by_container.lock();
        for container in removed {
            // Nothing is counted any more of a container that has been destroyed.
            if let Some(count) = counts.get_mut(container) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// A container is destroyed.
    pub(crate) fn forget(&self, container: ContainerId) {
        self.by_container.lock().remove(&container);
    }

    /// How many there are.
    pub(crate) fn total(&self) -> u64 {
        self.by_container.lock().values().sum()
    }
}
