//! A set of writes to one target that reads its own writes, and is committed in one atomic batch.
//! Several steps of one operation may touch the same record; the last word counts.

use azekura_proto::Status;
use azekura_store::{Batch, Space, Store, StoreError, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::record::{decode, encode};

/// Turns a store's error into what the peer is told, and logs what an operator has to see.
pub(crate) fn store_status(error: &StoreError) -> Status {
    let status = error.status();
    match status {
        Status::Io | Status::Damaged | Status::ReadOnly => tracing::error!("{error}"),
        Status::NoSpace => tracing::warn!("{error}"),
        _ => {}
    }
    status
}

/// Writes that are not yet made.
pub(crate) struct Update<'a> {
    store: &'a Store,
    writes: Vec<(Space, Vec<u8>, Option<Vec<u8>>)>,
}

impl<'a> Update<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store, writes: Vec::with_capacity(6) }
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
            None => match self.store.get(space, key).map_err(|e| store_status(&e))? {
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

    /// Makes the writes. Answers how many inodes they removed.
    pub(crate) fn commit(self) -> Result<u64, Status> {
        if self.writes.is_empty() {
            return Ok(0);
        }
        let gone = |(space, _, value): &&(Space, Vec<u8>, Option<Vec<u8>>)| {
            *space == Space::Inode && value.is_none()
        };
        let removed_inodes = self.writes.iter().filter(gone).count() as u64;
        let store = self.store;
        store.commit(self.into_batch()).map_err(|e| store_status(&e))?;
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

/// One stored record.
pub(crate) fn load<T: DeserializeOwned>(
    store: &Store,
    space: Space,
    key: &[u8],
) -> Result<Option<T>, Status> {
    let value: Option<Value> = store.get(space, key).map_err(|e| store_status(&e))?;
    value.map(|value| decode(&value)).transpose()
}
