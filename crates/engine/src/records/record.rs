//! What a target stores about the file system: inodes, entry buckets, directory shards, and the
//! keys they stand under. Owns the on-disk form of all of them. It reads and writes bytes only.

use azekura_proto::attr::{FileGuard, FileKind, Inheritance, NewInode};
use azekura_proto::message::{DirCookie, DirShardStat};
use azekura_proto::placement::name_hash;
use azekura_proto::transaction::{Entry, TransactionId};
use azekura_proto::{Attr, Oid, SessionId, Status, Timestamp};
use serde::de::DeserializeOwned;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Encodes a record. Records are small and bounded, so this cannot fail.
pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_extend(record, Vec::with_capacity(96)).unwrap_or_default()
}

/// Decodes a record.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Status> {
    postcard::from_bytes(bytes).map_err(|_| Status::Damaged)
}

/// An inode as stored at its home. Size, blocks and the newest times are in the shards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Links from entries; for a directory 1 while it has its entry, 0 once removed.
    pub(crate) nlink: u32,
    pub(crate) rdev: u64,
    pub(crate) chunk_bytes: u32,
    pub(crate) striped: bool,
    pub(crate) has_xattrs: bool,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    /// When `mtime` was last set by hand: a directory's shards count only if they changed later.
    pub(crate) mtime_set: Option<Timestamp>,
    pub(crate) symlink_text: Vec<u8>,
    pub(crate) inheritance: Option<Inheritance>,
    pub(crate) parent: Option<Oid>,
    /// Grows with each truncation: an append that was recorded before one no longer says how long
    /// the file is.
    pub(crate) truncations: u32,
    /// The request that made it, by which a retry of that request knows its own work.
    pub(crate) born_of: Option<Origin>,
}

/// A request of a client that is answered once and for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) session: SessionId,
    pub(crate) slot: u16,
    pub(crate) sequence: u64,
}

impl Inode {
    /// A new inode. `parent` is the directory it is born in.
    pub(crate) fn new(new: &NewInode, parent: Option<Oid>, now: Timestamp) -> Self {
        let is_directory = new.kind == FileKind::Directory;
        Self {
            kind: new.kind,
            mode: new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            nlink: 1,
            rdev: new.rdev,
            chunk_bytes: new.chunk_bytes,
            striped: false,
            has_xattrs: false,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            mtime_set: None,
            symlink_text: new.symlink_text.clone(),
            inheritance: is_directory.then(|| new.inheritance.unwrap_or_default()),
            parent: if is_directory { parent } else { None },
            truncations: 0,
            born_of: None,
        }
    }

    /// Attributes as far as the inode itself knows them.
    pub(crate) fn attr(&self, oid: Oid) -> Attr {
        Attr {
            oid,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: match (self.kind, self.nlink) {
                (FileKind::Directory, 1) => 2,
                (_, links) => links,
            },
            size: self.symlink_text.len() as u64,
            blocks_512: 0,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            rdev: self.rdev,
            chunk_bytes: self.inheritance.map_or(self.chunk_bytes, |given| given.chunk_bytes),
            striped: self.striped,
            has_xattrs: self.has_xattrs,
            inheritance: self.inheritance,
            parent: self.parent,
        }
    }

    /// What of the attributes changes are judged by.
    pub(crate) fn guard(&self) -> FileGuard {
        let Self { mode, uid, gid, has_xattrs, .. } = *self;
        let chunk_bytes = self.inheritance.map_or(self.chunk_bytes, |given| given.chunk_bytes);
        FileGuard { mode, uid, gid, chunk_bytes, has_xattrs }
    }
}

/// One entry of a bucket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Slot {
    /// Place among names with the same hash, 0 to 7. Never changes while the entry lives.
    pub(crate) place: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) entry: Entry,
}

/// All entries of a directory whose names share the upper 48 bits of their hash: nearly always
/// one. Keyed by hash and not by name, so that the readdir cookie leads straight to it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bucket {
    #[serde(deserialize_with = "slots_in_places")]
    pub(crate) slots: Vec<Slot>,
}

/// Places in a bucket.
const PLACES: u8 = 8;

/// Refuses what no engine writes, two slots in one place or a place that is none: on a damaged disk it
/// would break the bound on a bucket's slots.
fn slots_in_places<'de, D: Deserializer<'de>>(stored: D) -> Result<Vec<Slot>, D::Error> {
    let slots = Vec::<Slot>::deserialize(stored)?;
    let mut taken = [false; PLACES as usize];
    for slot in &slots {
        match taken.get_mut(usize::from(slot.place)) {
            Some(taken) if !*taken => *taken = true,
            _ => return Err(D::Error::custom("an entry without a place of its own")),
        }
    }
    Ok(slots)
}

impl Bucket {
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.name == name)
    }

    /// Puts an entry in, in the place of the same name or in a free one.
    pub(crate) fn insert(&mut self, name: &[u8], entry: Entry) -> Result<(), Status> {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == name) {
            slot.entry = entry;
            return Ok(());
        }
        let place = (0..PLACES)
            .find(|place| self.slots.iter().all(|slot| slot.place != *place))
            .ok_or(Status::LimitReached)?;
        self.slots.push(Slot { place, name: name.to_vec(), entry });
        self.slots.sort_by_key(|slot| slot.place);
        assert!(self.slots.len() <= usize::from(PLACES), "each has a place of its own");
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.slots.retain(|slot| slot.name != name);
    }
}

/// Length of the key of an entry bucket.
pub(crate) const ENTRY_KEY_BYTES: usize = 22;

/// Key of the bucket with these 48 order bits.
pub(crate) fn bucket_key(dir: Oid, order_bits: u64) -> [u8; ENTRY_KEY_BYTES] {
    let mut key = [0; ENTRY_KEY_BYTES];
    key[..16].copy_from_slice(&dir.to_bytes());
    key[16..].copy_from_slice(&order_bits.to_be_bytes()[2..]);
    key
}

/// Key of the bucket that holds a name.
pub(crate) fn entry_key(dir: Oid, name: &[u8]) -> [u8; ENTRY_KEY_BYTES] {
    bucket_key(dir, DirCookie::order_bits(name_hash(name)))
}

/// The reverse of [`bucket_key`].
pub(crate) fn parse_bucket_key(key: &[u8]) -> Option<(Oid, u64)> {
    let (dir, order) = key.split_at_checked(16)?;
    let mut bits = [0; 8];
    bits.get_mut(2..)?.copy_from_slice(order.get(..6)?);
    Some((Oid::from_bytes(dir)?, u64::from_be_bytes(bits)))
}

/// Key of an extended attribute.
pub(crate) fn xattr_key(oid: Oid, name: &[u8]) -> Vec<u8> {
    let mut key = oid.to_bytes().to_vec();
    key.extend_from_slice(name);
    key
}

/// How an inode without links came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Orphan {
    /// It was unlinked: no link may come again.
    Unlinked,
    /// It was made without a link (`O_TMPFILE`): it may get one.
    Temporary,
}

/// What has to be reclaimed of a removed object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Reclaim {
    pub(crate) striped: bool,
}

/// Key of a prepared part of a transaction.
pub(crate) fn prepared_key(id: TransactionId) -> Vec<u8> {
    transaction_key(b'p', id)
}

/// Key of a decision for a transaction.
pub(crate) fn decided_key(id: TransactionId) -> Vec<u8> {
    transaction_key(b'c', id)
}

fn transaction_key(tag: u8, id: TransactionId) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend_from_slice(&id.coordinator.0.to_be_bytes());
    key.extend_from_slice(&id.number.to_be_bytes());
    key
}

/// The reverse of [`prepared_key`] and [`decided_key`].
pub(crate) fn parse_transaction_key(key: &[u8]) -> Option<TransactionId> {
    let coordinator = u16::from_be_bytes(key.get(1..3)?.try_into().ok()?);
    let number = u64::from_be_bytes(key.get(3..11)?.try_into().ok()?);
    Some(TransactionId { coordinator: azekura_proto::TargetId(coordinator), number })
}

/// A shard of a directory changes by one entry.
pub(crate) fn count_entry(stat: &mut DirShardStat, kind: FileKind, by: i64, now: Timestamp) {
    stat.entries = stat.entries.saturating_add_signed(by);
    if kind == FileKind::Directory {
        stat.subdirs = stat.subdirs.saturating_add_signed(by as i32);
    }
    stat.changed = stat.changed.max(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn entry(serial: u64) -> Entry {
        let oid = Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), serial);
        Entry { oid, kind: FileKind::Regular }
    }

    #[test]
    fn a_bucket_keeps_the_places_of_those_that_stay() {
        let mut bucket = Bucket::default();
        for (serial, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
            bucket.insert(name, entry(serial as u64)).unwrap();
        }
        bucket.remove(b"b");
        assert_eq!(bucket.find(b"c").map(|slot| slot.place), Some(2));
        bucket.insert(b"d", entry(9)).unwrap();
        assert_eq!(bucket.find(b"d").map(|slot| slot.place), Some(1));
        for name in 0..5u8 {
            bucket.insert(&[name], entry(1)).unwrap();
        }
        assert_eq!(bucket.insert(b"one too many", entry(1)), Err(Status::LimitReached));
    }

    #[test]
    fn a_bucket_with_a_wrong_place_is_refused() {
        let slot = |place| Slot { place, name: vec![place], entry: entry(1) };
        for (slots, is_good) in [
            (vec![slot(7), slot(0)], true),
            (vec![slot(3), slot(3)], false),
            (vec![slot(8)], false),
        ] {
            assert_eq!(decode::<Bucket>(&encode(&Bucket { slots })).is_ok(), is_good);
        }
    }

    #[test]
    fn keys_lead_back_to_what_they_were_made_of() {
        let dir = entry(5).oid;
        assert_eq!(
            parse_bucket_key(&bucket_key(dir, 0x1234_5678_9abc)),
            Some((dir, 0x1234_5678_9abc))
        );
        let id = TransactionId { coordinator: TargetId(7), number: 1 << 50 };
        assert_eq!(parse_transaction_key(&prepared_key(id)), Some(id));
    }
}
