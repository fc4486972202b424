//! Counts and times of directory shards. They change with every entry that comes or goes, so the
//! newest values are kept in memory and written when a directory has been quiet for a moment. The
//! first change since the last writing marks the stored record as dirty in its own batch; after a
//! crash what is dirty is counted anew, and its time is that of the restart, which is never earlier
//! than the truth. Owns that record; entries are counted by their keys.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_proto::message::DirShardStat;
use azekura_proto::{ContainerId, Oid, Status};
use azekura_store::{Batch, Space, Store};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::record::{Bucket, count_entry, decode, encode};
use crate::stored::{load, store_status};

/// A directory that has not changed for this long is written.
const QUIET: Duration = Duration::from_secs(1);
/// With more changed directories than this the quiet time is not waited for.
const DIRTY_MAX: usize = 4096;
/// Records read at a time.
const PAGE: usize = 1024;

/// The record on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredShard {
    pub(crate) stat: DirShardStat,
    /// Newer values are, or were, in memory only.
    pub(crate) dirty: bool,
}

#[derive(Debug)]
struct Newest {
    stat: DirShardStat,
    changed: Instant,
}

/// The directory shards of one target that are newer than their records.
#[derive(Debug, Default)]
pub(crate) struct DirShards {
    newest: Mutex<HashMap<Oid, Newest>>,
}

impl DirShards {
    /// The shard of a directory; `None` if the target has none yet.
    pub(crate) fn get(&self, store: &Store, dir: Oid) -> Result<Option<DirShardStat>, Status> {
        if let Some(newest) = self.newest.lock().get(&dir) {
            return Ok(Some(newest.stat));
        }
        let stored: Option<StoredShard> = load(store, Space::DirShard, &dir.to_bytes())?;
        Ok(stored.map(|stored| stored.stat))
    }

    /// Whether the record on disk is marked as dirty already.
    pub(crate) fn is_dirty(&self, dir: Oid) -> bool {
        self.newest.lock().contains_key(&dir)
    }

    /// Takes over values whose batch was committed.
    pub(crate) fn set(&self, dir: Oid, stat: DirShardStat) {
        self.newest.lock().insert(dir, Newest { stat, changed: Instant::now() });
    }

    /// The shard is gone, with its record.
    pub(crate) fn forget(&self, dir: Oid) {
        self.newest.lock().remove(&dir);
    }

    /// A container is gone, with its records.
    pub(crate) fn forget_container(&self, container: ContainerId) {
        self.newest.lock().retain(|dir, _| dir.container() != container);
    }

    /// Writes what has been quiet, or all. The caller has the namespace lock.
    pub(crate) fn write_back(&self, store: &Store, all: bool) -> Result<(), Status> {
        let mut newest = self.newest.lock();
        let all = all || newest.len() > DIRTY_MAX;
        let quiet: Vec<Oid> = newest
            .iter()
            .filter(|(_, shard)| all || shard.changed.elapsed() > QUIET)
            .map(|(dir, _)| *dir)
            .collect();
        for page in quiet.chunks(PAGE) {
            let mut batch = Batch::new();
            for dir in page {
                let Some(shard) = newest.get(dir) else { continue };
                let record = StoredShard { stat: shard.stat, dirty: false };
                batch.put(Space::DirShard, &dir.to_bytes(), encode(&record));
            }
            store.commit(batch).map_err(|e| store_status(&e))?;
            for dir in page {
                newest.remove(dir);
            }
        }
        Ok(())
    }
}

/// What the entries of a directory's shard add up to.
pub(crate) fn count(store: &Store, dir: Oid) -> Result<DirShardStat, Status> {
    let mut stat = DirShardStat::default();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store
            .scan(Space::Entry, &dir.to_bytes(), after.as_deref(), PAGE)
            .map_err(|e| store_status(&e))?;
        let Some((last, _)) = page.last() else { return Ok(stat) };
        after = Some(last.clone());
        for (_, value) in &page {
            let bucket: Bucket = decode(value)?;
            for slot in bucket.slots {
                let unchanged = stat.changed;
                count_entry(&mut stat, slot.entry.kind, 1, unchanged);
            }
        }
    }
}

/// After a crash: counts the shards anew whose last values were in memory.
pub(crate) fn recover(store: &Store) -> Result<(), Status> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store
            .scan(Space::DirShard, &[], after.as_deref(), PAGE)
            .map_err(|e| store_status(&e))?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        let mut batch = Batch::new();
        for (key, value) in &page {
            let stored: StoredShard = decode(value)?;
            if stored.dirty {
                let dir = Oid::from_bytes(key).ok_or(Status::Damaged)?;
                let mut stat = count(store, dir)?;
                stat.changed = crate::clock::now();
                batch.put(Space::DirShard, key, encode(&StoredShard { stat, dirty: false }));
            }
        }
        store.commit(batch).map_err(|e| store_status(&e))?;
    }
}
