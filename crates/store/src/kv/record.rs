//! The form of a batch in memory and in the front journal: one run of bytes, written as it is, and
//! a list of where each change lies in it. Owns that format, with its checksum. Does no I/O.
//!
//! A record is a head and its changes, all numbers little endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | XXH3 of everything after it |
//! | 8 | epoch: a number drawn when the target was opened |
//! | 8 | sequence number of the batch |
//! | 4 | length of the record, in bytes |
//! | 4 | number of changes |
//! | 2 + 4 + key + value | each change: length of the key, length of the value or all ones for a removal, the stored key, the value |

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::LazyLock;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::space::Space;

/// Length of a record's head, in bytes.
pub(crate) const HEAD_BYTES: usize = 32;
/// Longest key without its space, in bytes: an object id and two escaped keys of the object API.
const KEY_BYTES_MAX: usize = 8 * 1024;
const CHANGE_HEAD_BYTES: usize = 6;
/// Stands for the length of a value that is removed.
const REMOVED: u32 = u32::MAX;
/// What most batches fit into, in bytes, and in changes.
const BYTES_TYPICAL: usize = 1024;
const CHANGES_TYPICAL: usize = 8;

/// The hash of a stored key, the same for the life of the process. Nobody outside can foresee it, and
/// nothing depends on it but places in tables in memory.
pub(crate) fn hash_key(key: &[u8]) -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("keys"));
    xxh3_64_with_seed(key, *SEED)
}

/// Where one change lies.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) hash: u64,
    key_at: usize,
    value_bytes: u32,
    key_bytes: u16,
    pub(crate) space: Space,
}

/// The changes of a batch, in the order in which they were asked for.
#[derive(Default)]
pub(crate) struct Changes {
    /// Room for the head, then the changes; nothing as long as there is no change.
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The length of the record, in bytes.
    pub(crate) fn record_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Appends a change; `key` is without its space.
    ///
    /// # Errors
    /// What is too long.
    pub(crate) fn push(
        &mut self,
        space: Space,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), &'static str> {
        if key.len() > KEY_BYTES_MAX {
            return Err("key too long");
        }
        let value_bytes = match value.map(|value| u32::try_from(value.len())) {
            None => REMOVED,
            Some(Ok(bytes)) if bytes < REMOVED => bytes,
            Some(_) => return Err("value too long"),
        };
        if self.bytes.is_empty() {
            self.bytes.reserve(BYTES_TYPICAL);
            self.slots.reserve(CHANGES_TYPICAL);
            self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        }
        let key_bytes = key.len() as u16 + 1;
        self.bytes.extend_from_slice(&key_bytes.to_le_bytes());
        self.bytes.extend_from_slice(&value_bytes.to_le_bytes());
        let key_at = self.bytes.len();
        self.bytes.push(space.code());
        self.bytes.extend_from_slice(key);
        let hash = hash_key(&self.bytes[key_at..]);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.slots.push(Slot { hash, key_at, value_bytes, key_bytes, space });
        Ok(())
    }

    /// Takes back the changes after the first `count`.
    pub(crate) fn shorten(&mut self, count: usize) {
        let Some(slot) = self.slots.get(count) else { return };
        self.bytes.truncate(slot.key_at - CHANGE_HEAD_BYTES);
        self.slots.truncate(count);
    }

    /// The stored key of a change.
    pub(crate) fn key(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.key_at..slot.key_at + usize::from(slot.key_bytes)]
    }

    /// The new value of a change; `None` removes.
    pub(crate) fn value(&self, slot: &Slot) -> Option<&[u8]> {
        let at = slot.key_at + usize::from(slot.key_bytes);
        (slot.value_bytes != REMOVED).then(|| &self.bytes[at..at + slot.value_bytes as usize])
    }

    /// Completes the record for the journal, and gives its bytes. There is a change, and it is
    /// far shorter than 4 GiB.
    pub(crate) fn seal(&mut self, epoch: u64, seq: u64) -> &[u8] {
        assert!(!self.slots.is_empty(), "a record without a change");
        assert!(u32::try_from(self.bytes.len()).is_ok(), "a record of 4 GiB or more");
        let bytes = self.bytes.len() as u32;
        let count = self.slots.len() as u32;
        self.bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&seq.to_le_bytes());
        self.bytes[24..28].copy_from_slice(&bytes.to_le_bytes());
        self.bytes[28..32].copy_from_slice(&count.to_le_bytes());
        let checksum = xxh3_64(&self.bytes[8..]);
        self.bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }

    /// Reads a record back; `None` unless it is whole.
    pub(crate) fn unseal(bytes: Vec<u8>) -> Option<Self> {
        let checksum = u64::from_le_bytes(*bytes.first_chunk()?);
        if xxh3_64(bytes.get(8..)?) != checksum {
            return None;
        }
        let count = read_u32(&bytes, 28)?;
        let mut slots = Vec::new();
        let mut at = HEAD_BYTES;
        for _ in 0..count {
            let key_bytes = u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
            let value_bytes = read_u32(&bytes, at + 2)?;
            let key_at = at + CHANGE_HEAD_BYTES;
            let value_at = key_at + usize::from(key_bytes);
            let key = bytes.get(key_at..value_at)?;
            let space = Space::from_code(*key.first()?)?;
            slots.push(Slot { hash: hash_key(key), key_at, value_bytes, key_bytes, space });
            at = value_at + if value_bytes == REMOVED { 0 } else { value_bytes as usize };
        }
        (at == bytes.len()).then_some(Self { bytes, slots })
    }
}

/// Length of the record that begins with `head`, in bytes, if it is the one of this epoch and
/// number.
pub(crate) fn sealed_bytes(head: &[u8; HEAD_BYTES], epoch: u64, seq: u64) -> Option<usize> {
    let same = head[8..16] == epoch.to_le_bytes() && head[16..24] == seq.to_le_bytes();
    let bytes = read_u32(head, 24)? as usize;
    (same && bytes > HEAD_BYTES).then_some(bytes)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Changes {
        let mut changes = Changes::default();
        changes.push(Space::Inode, b"a", Some(b"one")).unwrap();
        changes.push(Space::Entry, b"", None).unwrap();
        changes.push(Space::Kv, &[7; 400], Some(b"")).unwrap();
        changes
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let mut changes = sample();
        let bytes = changes.seal(5, 9).to_vec();
        let head = bytes.first_chunk().unwrap();
        assert_eq!(sealed_bytes(head, 5, 9), Some(bytes.len()));
        assert_eq!(sealed_bytes(head, 5, 8), None);
        assert_eq!(sealed_bytes(head, 4, 9), None);
        let back = Changes::unseal(bytes).unwrap();
        assert_eq!(back.len(), 3);
        for (slot, other) in changes.slots().iter().zip(back.slots()) {
            assert_eq!((slot.space, slot.hash), (other.space, other.hash));
            assert_eq!(changes.key(slot), back.key(other));
            assert_eq!(changes.value(slot), back.value(other));
        }
        assert_eq!(back.value(&back.slots()[1]), None);
        assert_eq!(back.key(&back.slots()[1]), b"e");
    }

    /// A journal that was written before has to be read after: the form never changes.
    #[test]
    fn the_form_of_a_record_never_changes() {
        let mut changes = Changes::default();
        changes.push(Space::Inode, b"a", Some(b"one")).unwrap();
        changes.push(Space::Entry, b"", None).unwrap();
        let mut golden = b"\xdb(\xc7\xc5\x97\x083u".to_vec();
        golden.extend_from_slice(b"\x05\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x32\0\0\0\x02\0\0\0");
        golden.extend_from_slice(b"\x02\0\x03\0\0\0iaone\x01\0\xff\xff\xff\xffe");
        assert_eq!(
            changes.seal(5, 9).escape_ascii().to_string(),
            golden.escape_ascii().to_string()
        );
    }

    #[test]
    fn a_changed_byte_or_a_missing_end_is_noticed() {
        let bytes = sample().seal(5, 9).to_vec();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(Changes::unseal(changed).is_none(), "{at}");
            assert!(Changes::unseal(bytes[..at].to_vec()).is_none(), "{at}");
        }
    }
}
