//! How long each shard's file must be at least: on record beside the data, so that a file that is gone or
//! was cut from outside is known from one that was never written. Owns the form of these records, which
//! is part of the on-disk format, and when each of them holds. It never looks at a file.
//!
//! A record has two lengths. The one that was synced holds for ever: it is recorded after the file was
//! synced, and lowered durably before the file is cut. The one that was written holds until the machine
//! starts anew, for a loss of power may take it. There is none for what was written by older releases.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::path::ShardKey;
use crate::error::StoreError;
use crate::kv::KeyValues;
use crate::kv::batch::Batch;
use crate::kv::space::Space;

/// The version of the form; what a later one adds, such as checksums, comes behind.
const VERSION: u8 = 1;
const RECORD_BYTES: usize = 33;

/// Names a run of the machine, between two losses of what was not synced.
pub(crate) type Boot = [u8; 16];

/// Lengths that a shard's file must have at least, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Noted {
    /// Was synced.
    pub(super) synced: u64,
    /// Was written in this run of the machine.
    pub(super) written: u64,
}

impl Noted {
    pub(super) fn bytes(self) -> u64 {
        self.synced.max(self.written)
    }

    fn at_most(self, bytes: u64) -> Self {
        Self { synced: self.synced.min(bytes), written: self.written.min(bytes) }
    }

    fn encode(self, boot: Option<Boot>) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[0] = VERSION;
        record[1..9].copy_from_slice(&self.synced.to_le_bytes());
        record[9..17].copy_from_slice(&self.written.to_le_bytes());
        record[17..].copy_from_slice(&boot.unwrap_or_default());
        record
    }

    fn decode(record: &[u8], boot: Option<Boot>) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
        let (synced, written) = (number(1)?, number(9)?);
        let is_of_this_boot = boot.is_some_and(|boot| record.get(17..RECORD_BYTES) == Some(&boot));
        (record[0] == VERSION)
            .then_some(Self { synced, written: if is_of_this_boot { written } else { 0 } })
    }
}

/// The records of a target.
pub(super) struct Lengths {
    kv: Arc<KeyValues>,
    boot: Option<Boot>,
    /// Shared by whoever changes one file and its record, alone by whoever compares many.
    pub(super) order: RwLock<()>,
    /// Shards that have grown since they were noted.
    grown: Mutex<Vec<ShardKey>>,
}

/// The key of a shard's record.
fn record_key((oid, shard): ShardKey) -> [u8; 18] {
    let mut key = [0; 18];
    key[..16].copy_from_slice(&oid.to_bytes());
    key[16..].copy_from_slice(&shard.to_be_bytes());
    key
}

impl Lengths {
    pub(super) fn new(kv: Arc<KeyValues>, boot: Option<Boot>) -> Self {
        Self { kv, boot, order: RwLock::default(), grown: Mutex::default() }
    }

    /// What is on record of a shard; `None` if nothing is.
    pub(super) fn load(&self, key: ShardKey) -> Result<Option<Noted>, StoreError> {
        let record = self.kv.get(Space::Shard, &record_key(key))?;
        Ok(record.and_then(|record| Noted::decode(&record, self.boot)))
    }

    /// Whether what is written without being synced can be on record at all.
    pub(super) fn knows_boot(&self) -> bool {
        self.boot.is_some()
    }

    /// Adds a record to a batch.
    pub(super) fn put(&self, batch: &mut Batch, key: ShardKey, noted: Noted) {
        // It replaces one of the same length, or is small beside the data.
        batch.allow_reserve();
        batch.put(Space::Shard, &record_key(key), noted.encode(self.boot));
    }

    pub(super) fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.kv.commit(batch)
    }

    /// Notes that a shard may become shorter, before it does: durably, if it was durable.
    pub(super) fn lower(
        &self,
        key: ShardKey,
        noted: Noted,
        bytes: u64,
    ) -> Result<Noted, StoreError> {
        let lower = noted.at_most(bytes);
        let mut batch = Batch::new();
        self.put(&mut batch, key, lower);
        self.kv.commit(batch)?;
        if lower.synced < noted.synced {
            self.kv.sync()?;
        }
        Ok(lower)
    }

    /// Forgets a shard that is to be removed. `durably`: since its object lives on.
    pub(super) fn forget(&self, key: ShardKey, durably: bool) -> Result<(), StoreError> {
        let Some(noted) = self.load(key)? else { return Ok(()) };
        let mut batch = Batch::new();
        batch.delete(Space::Shard, &record_key(key));
        self.kv.commit(batch)?;
        if durably && noted.synced > 0 { self.kv.sync() } else { Ok(()) }
    }

    /// A shard has grown beyond what is on record.
    pub(super) fn push_grown(&self, key: ShardKey) {
        self.grown.lock().push(key);
    }

    pub(super) fn take_grown(&self) -> Vec<ShardKey> {
        std::mem::take(&mut *self.grown.lock())
    }

    /// A page of the shards that are on record, after `after`, of objects whose id begins with `prefix`.
    pub(super) fn page(
        &self,
        prefix: &[u8],
        after: Option<ShardKey>,
        limit: usize,
    ) -> Result<Vec<ShardKey>, StoreError> {
        let mut page = Vec::new();
        let after = after.map(record_key);
        self.kv.scan_visit(
            Space::Shard,
            prefix,
            after.as_ref().map(<[u8; 18]>::as_slice),
            |key, _| {
                page.extend(parse_key(key));
                if page.len() < limit {
                    std::ops::ControlFlow::Continue(())
                } else {
                    std::ops::ControlFlow::Break(())
                }
            },
        )?;
        Ok(page)
    }
}

fn parse_key(key: &[u8]) -> Option<ShardKey> {
    let oid = azekura_proto::Oid::from_bytes(key.get(..16)?)?;
    Some((oid, u16::from_be_bytes(*key.get(16..)?.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_holds_as_long_as_the_machine_runs() {
        let noted = Noted { synced: 5, written: 9 };
        let record = noted.encode(Some([1; 16]));
        assert_eq!(Noted::decode(&record, Some([1; 16])), Some(noted));
        for other in [Some([2; 16]), None] {
            assert_eq!(Noted::decode(&record, other), Some(Noted { synced: 5, written: 0 }));
        }
    }

    /// Records of earlier runs and of later releases.
    #[test]
    fn the_form_never_changes() {
        let mut record = Noted { synced: 0x0102, written: 3 }.encode(Some([7; 16])).to_vec();
        assert_eq!(record[..17], [1, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        record.extend_from_slice(b"what a later release adds");
        assert_eq!(Noted::decode(&record, Some([7; 16])).map(Noted::bytes), Some(0x0102));
        record[0] = 2;
        assert_eq!(Noted::decode(&record, Some([7; 16])), None);
        assert_eq!(Noted::decode(&record[..20], None), None);
        assert_eq!(Noted::decode(&[], None), None);
    }
}
