//! Counts and times of directory shards. They change with every entry that comes or goes, so the
//! newest values are kept in memory and written when a directory has been quiet for a moment. The
//! first change since the last writing marks the stored record as dirty in its own batch; after a
//! crash what is dirty is counted anew, and its time is that of the restart, which is never earlier
//! than the truth. Owns that record; entries are counted by their keys.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_proto::message::DirShardStat;
use azekura_proto::{ContainerId, Oid, Status, Timestamp};
use azekura_store::{Batch, Space, Store};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::namespace::known_names::KnownNames;
use crate::records::record::{Bucket, count_entry, decode, encode};
use crate::records::stored::{for_each_page, load, store_status};

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
    /// Of those that began while this engine ran.
    pub(crate) names: KnownNames,
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
    pub(crate) fn set(&self, dir: Oid, stat: DirShardStat, now: Instant) {
        self.newest.lock().insert(dir, Newest { stat, changed: now });
    }

    /// The shard is gone, with its record.
    pub(crate) fn forget(&self, dir: Oid) {
        self.newest.lock().remove(&dir);
        self.names.forget(dir);
    }

    /// A container is gone, with its records.
    pub(crate) fn forget_container(&self, container: ContainerId) {
        self.newest.lock().retain(|dir, _| dir.container() != container);
        self.names.forget_container(container);
    }

    /// Writes what has been quiet at a certain time, or all. The caller has the namespace lock.
    pub(crate) fn write_back(
        &self,
        store: &Store,
        quiet_at: Option<Instant>,
    ) -> Result<(), Status> {
        let mut newest = self.newest.lock();
        let quiet_at = quiet_at.filter(|_| newest.len() <= DIRTY_MAX);
        let is_quiet = |shard: &Newest| {
            quiet_at.is_none_or(|at| at.saturating_duration_since(shard.changed) > QUIET)
        };
        let quiet: Vec<Oid> =
            newest.iter().filter(|(_, shard)| is_quiet(shard)).map(|(dir, _)| *dir).collect();
        for page in quiet.chunks(PAGE) {
            let mut batch = Batch::new();
            for dir in page {
                let Some(shard) = newest.get(dir) else { continue };
                let record = StoredShard { stat: shard.stat, dirty: false };
                batch.put(Space::DirShard, &dir.to_bytes(), encode(&record));
            }
            store.commit(batch).map_err(store_status)?;
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
    for_each_page(store, (Space::Entry, &dir.to_bytes()), PAGE, |page| {
        for (_, value) in page {
            let bucket: Bucket = decode(value)?;
            for slot in bucket.slots {
                let unchanged = stat.changed;
                count_entry(&mut stat, slot.entry.kind, 1, unchanged);
            }
        }
        Ok(())
    })?;
    Ok(stat)
}

/// After a crash: counts the shards anew whose last values were in memory. Their time is that of the
/// restart.
pub(crate) fn recover(store: &Store, restarted: Timestamp) -> Result<(), Status> {
    for_each_page(store, (Space::DirShard, &[]), PAGE, |page| {
        let mut batch = Batch::new();
        for (key, value) in page {
            let stored: StoredShard = decode(value)?;
            if stored.dirty {
                let dir = Oid::from_bytes(key).ok_or(Status::Damaged)?;
                let stat = DirShardStat { changed: restarted, ..count(store, dir)? };
                batch.put(Space::DirShard, key, encode(&StoredShard { stat, dirty: false }));
            }
        }
        store.commit(batch).map_err(store_status)
    })
}
