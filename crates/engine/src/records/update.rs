//! A set of writes to one target that reads its own writes, and is committed in one atomic batch.
//! Several steps of one operation may touch the same record; the last word counts.

use azekura_proto::message::DirShardStat;
use azekura_proto::{Oid, Status};
use azekura_store::{Batch, Space};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::namespace::dir_shards::StoredShard;
use crate::object_counts::Removed;
use crate::records::record::{decode, encode};
use crate::records::stored::store_status;
use crate::target::Target;

/// Writes that are not yet made.
pub(crate) struct Update<'a> {
    target: &'a Target,
    writes: Vec<(Space, Vec<u8>, Option<Vec<u8>>)>,
    /// Shards of directories as they will be; `None`: gone.
    shards: Vec<(Oid, Option<DirShardStat>)>,
}

impl<'a> Update<'a> {
    pub(crate) fn new(target: &'a Target) -> Self {
        Self { target, writes: Vec::with_capacity(6), shards: Vec::new() }
    }

    /// The shard of a directory as it will be.
    pub(crate) fn dir_shard(&self, dir: Oid) -> Result<Option<DirShardStat>, Status> {
        match self.shards.iter().find(|(known, _)| *known == dir) {
            Some((_, stat)) => Ok(*stat),
            None => self.target.dir_shards.get(&self.target.store, dir),
        }
    }

    /// Changes the shard of a directory; `None` removes it.
    pub(crate) fn set_dir_shard(&mut self, dir: Oid, stat: Option<DirShardStat>) {
        self.shards.retain(|(known, _)| *known != dir);
        self.shards.push((dir, stat));
    }

    /// The record as it will be.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        space: Space,
        key: &[u8],
    ) -> Result<Option<T>, Status> {
        let written = self.writes.iter().rev().find(|(s, k, _)| *s == space && k == key);
        match written {
            Some((_, _, Some(value))) => decode(value).map(Some),
            Some((_, _, None)) => Ok(None),
            None if space == Space::Entry && self.target.lacks_bucket(key) => Ok(None),
            None => match self.target.store.get(space, key).map_err(store_status)? {
                Some(value) => decode(&value).map(Some),
                None => Ok(None),
            },
        }
    }

    pub(crate) fn put<T: Serialize>(&mut self, space: Space, key: &[u8], record: &T) {
        self.put_bytes(space, key, encode(record));
    }

    pub(crate) fn put_bytes(&mut self, space: Space, key: &[u8], value: Vec<u8>) {
        self.writes.retain(|(s, k, _)| *s != space || k != key);
        self.writes.push((space, key.to_vec(), Some(value)));
    }

    pub(crate) fn delete(&mut self, space: Space, key: &[u8]) {
        self.writes.retain(|(s, k, _)| *s != space || k != key);
        self.writes.push((space, key.to_vec(), None));
    }

    /// Makes the writes. Answers which inodes they removed. Whoever changes directory shards has
    /// the namespace lock.
    pub(crate) fn commit(mut self) -> Result<Removed, Status> {
        let target = self.target;
        let shards = std::mem::take(&mut self.shards);
        for (dir, stat) in &shards {
            match stat {
                Some(stat) if !target.dir_shards.is_dirty(*dir) => {
                    if target.dir_shards.get(&target.store, *dir)?.is_none() {
                        target.dir_shards.names.begin(*dir);
                    }
                    let record = StoredShard { stat: *stat, dirty: true };
                    self.put(Space::DirShard, &dir.to_bytes(), &record);
                }
                Some(_) => {}
                None => self.delete(Space::DirShard, &dir.to_bytes()),
            }
        }
        let gone = |(space, _, value): &&(Space, Vec<u8>, Option<Vec<u8>>)| {
            *space == Space::Inode && value.is_none()
        };
        let gone = self.writes.iter().filter(gone);
        let removed_inodes =
            gone.filter_map(|(_, key, _)| Oid::from_bytes(key)).map(Oid::container).collect();
        let mut gone_entries = Vec::new();
        for (_, key, value) in self.writes.iter().filter(|(space, ..)| *space == Space::Entry) {
            match value {
                Some(_) => target.dir_shards.names.add(key),
                None => gone_entries.push(key.clone()),
            }
        }
        if !self.writes.is_empty() {
            target.store.commit(self.into_batch()).map_err(store_status)?;
        }
        for key in gone_entries {
            target.dir_shards.names.remove(&key);
        }
        for (dir, stat) in shards {
            match stat {
                Some(stat) => target.dir_shards.set(dir, stat, target.platform.now()),
                None => target.dir_shards.forget(dir),
            }
        }
        Ok(removed_inodes)
    }

    /// The writes, for a batch that holds others too.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for (space, key, value) in self.writes {
            match value {
                Some(value) => batch.put(space, &key, value),
                None => batch.delete(space, &key),
            }
        }
        batch
    }
}
