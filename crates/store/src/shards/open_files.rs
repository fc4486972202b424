//! The open shard files of one stripe, in a bounded table. Owns which file goes when there are too
//! many: the one that was not used for longest, by second chance. It never closes one in use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::file::ShardFile;
use super::path::ShardKey;

/// Absences remembered by one stripe. When there are more it starts anew.
const ABSENT_MAX: usize = 2048;

struct Slot {
    file: Arc<ShardFile>,
    used: bool,
}

/// Open files of one stripe, evicted by second chance.
#[derive(Default)]
pub(super) struct OpenFiles {
    index: HashMap<ShardKey, usize>,
    slots: Vec<Slot>,
    hand: usize,
    /// Shards known to have no file: a file without data costs no system call.
    pub(super) absent: HashSet<ShardKey>,
}

impl OpenFiles {
    pub(super) fn note_absent(&mut self, key: ShardKey) {
        if self.absent.len() >= ABSENT_MAX {
            self.absent.clear();
        }
        self.absent.insert(key);
    }

    pub(super) fn get(&mut self, key: ShardKey) -> Option<Arc<ShardFile>> {
        let slot = &mut self.slots[*self.index.get(&key)?];
        slot.used = true;
        Some(Arc::clone(&slot.file))
    }

    pub(super) fn remove(&mut self, key: ShardKey) -> Option<Arc<ShardFile>> {
        let at = self.index.remove(&key)?;
        let slot = self.slots.swap_remove(at);
        if let Some(moved) = self.slots.get(at) {
            self.index.insert(moved.file.key(), at);
        }
        assert_eq!(self.index.len(), self.slots.len(), "a slot without a key, or the reverse");
        Some(slot.file)
    }

    /// Adds a file; gives back one that has to go, to be closed without the lock.
    pub(super) fn insert(
        &mut self,
        file: &Arc<ShardFile>,
        capacity: usize,
    ) -> Option<Arc<ShardFile>> {
        let evicted = if self.slots.len() >= capacity { self.evict() } else { None };
        let old = self.index.insert(file.key(), self.slots.len());
        assert!(old.is_none(), "a shard was opened a second time");
        self.slots.push(Slot { file: Arc::clone(file), used: false });
        evicted
    }

    /// Takes out a file that nobody uses. One in use stays, above the bound if need be: opened
    /// a second time, it would be there twice.
    pub(super) fn evict(&mut self) -> Option<Arc<ShardFile>> {
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if Arc::strong_count(&slot.file) > 1 {
                continue;
            }
            if std::mem::take(&mut slot.used) {
                continue;
            }
            let key = slot.file.key();
            return self.remove(key);
        }
        None
    }
}
