//! What is committed and not in the database yet, found by key. Owns the newest pending change of
//! every key; it is asked before the value cache and the database. Does no I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::Dependences;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use super::change::{Change, Value};
use super::record::{Changes, Slot, hash_key};
use super::space::Space;
use super::value_cache::Known;

const SHARDS: usize = 16;

/// A batch that is in the front journal and not in the database yet.
pub(crate) struct Pending {
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    /// Where its record begins and ends in the front journal.
    pub(crate) at: u64,
    pub(crate) end: u64,
    pub(crate) changes: Changes,
    /// What it relies on, and no batch before it did.
    pub(crate) relies_on: Dependences,
}

impl Pending {
    fn slot(&self, index: u32) -> &Slot {
        &self.changes.slots()[index as usize]
    }
}

/// One change of a pending batch.
struct Newest {
    batch: Arc<Pending>,
    index: u32,
}

impl Newest {
    fn is(&self, hash: u64, key: &[u8]) -> bool {
        let slot = self.batch.slot(self.index);
        slot.hash == hash && self.batch.changes.key(slot) == key
    }
}

/// The newest pending changes.
pub(crate) struct Overlay {
    shards: [Mutex<HashTable<Newest>>; SHARDS],
    /// Pending changes by space. Raised before the changes can be found, and lowered after the
    /// database has them.
    counts: [AtomicU64; Space::ALL.len()],
}

impl Overlay {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashTable::new())),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Whether anything of the space is pending.
    pub(crate) fn holds(&self, space: Space) -> bool {
        self.counts[space as usize].load(Ordering::Acquire) > 0
    }

    /// What is pending for a stored key.
    pub(crate) fn lookup(&self, key: &[u8]) -> Known {
        let hash = hash_key(key);
        let shard = self.shard(hash).lock();
        match shard.find(hash, |newest| newest.is(hash, key)) {
            None => Known::Nothing,
            Some(Newest { batch, index }) => match batch.changes.value(batch.slot(*index)) {
                Some(value) => Known::Value(Value::from(value)),
                None => Known::Absent,
            },
        }
    }

    /// Adds the changes of the newest batch.
    pub(crate) fn insert(&self, batch: &Arc<Pending>) {
        for (index, slot) in
            batch.changes.slots().iter().enumerate().filter(|(_, slot)| is_read(slot))
        {
            self.counts[slot.space as usize].fetch_add(1, Ordering::AcqRel);
            let key = batch.changes.key(slot);
            let newest = Newest { batch: Arc::clone(batch), index: index as u32 };
            let mut shard = self.shard(slot.hash).lock();
            let found = shard.entry(
                slot.hash,
                |newest| newest.is(slot.hash, key),
                |newest| newest.batch.slot(newest.index).hash,
            );
            match found {
                Entry::Occupied(mut old) => *old.get_mut() = newest,
                Entry::Vacant(place) => {
                    place.insert(newest);
                }
            }
        }
    }

    /// Takes out the changes of batches that the database has; those are the oldest ones.
    pub(crate) fn remove(&self, batches: &[Arc<Pending>]) {
        let Some(last) = batches.last() else { return };
        let mut counts = [0u64; Space::ALL.len()];
        for batch in batches {
            for slot in batch.changes.slots().iter().filter(|slot| is_read(slot)) {
                counts[slot.space as usize] += 1;
                let key = batch.changes.key(slot);
                let mut shard = self.shard(slot.hash).lock();
                if let Ok(found) = shard.find_entry(slot.hash, |newest| newest.is(slot.hash, key))
                    && found.get().batch.seq <= last.seq
                {
                    found.remove();
                }
            }
        }
        for (count, removed) in self.counts.iter().zip(counts) {
            if removed > 0 {
                let before = count.fetch_sub(removed, Ordering::AcqRel);
                assert!(before >= removed, "more changes left the overlay than came");
            }
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Newest>> {
        // The table uses the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

/// Whether anybody reads the change: not what a batch says of itself.
fn is_read(slot: &Slot) -> bool {
    slot.space != Space::Reliance
}

/// The last change of every key in `batches`, which are in their order, as the database takes them.
pub(crate) fn newest_changes(batches: &[&Changes]) -> Vec<Change> {
    let count = batches.iter().map(|changes| changes.len()).sum();
    let mut newest: Vec<Change> = Vec::with_capacity(count);
    let mut seen: HashTable<(u64, usize)> = HashTable::with_capacity(count);
    for changes in batches.iter().rev() {
        for slot in changes.slots().iter().rev().filter(|slot| is_read(slot)) {
            let key = changes.key(slot);
            let found = seen.entry(
                slot.hash,
                |(hash, index)| *hash == slot.hash && *newest[*index].key == *key,
                |(hash, _)| *hash,
            );
            let Entry::Vacant(place) = found else { continue };
            place.insert((slot.hash, newest.len()));
            let value = changes.value(slot).map(Value::from);
            newest.push(Change { space: slot.space, key: Value::from(key), value });
        }
    }
    newest
}
