//! The key-value database as the store sees it: two trees of sorted keys, and batches that it takes
//! whole. Owns the trait that the real database and the simulated one implement, and the marker that
//! says how far a database has what is in the front journal.
//!
//! What was committed survives the end of the process. A loss of power may take what was committed
//! after the last sync, the newest first and batch by batch, never what was synced.

pub(crate) mod fjall;
mod journal_sync;
#[cfg(feature = "simulation")]
pub(crate) mod log;

use std::ops::{Bound, ControlFlow};

use super::change::{Change, Value};
use super::space::Tree;
use crate::error::StoreError;

/// The key of the marker in the tree of passing records, outside of every space. Part of the on-disk
/// format.
pub(crate) const MARKER_KEY: &[u8] = b"!front";

/// What the database says about the front journal: how far it has the batches. It is stored together
/// with the batches it speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    /// The records with this number only are to be read.
    pub(crate) epoch: u64,
    /// The last batch that the database has.
    pub(crate) seq: u64,
    /// Where its record ends.
    pub(crate) end: u64,
}

impl Marker {
    pub(crate) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..].copy_from_slice(&self.end.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let number =
            |at: usize| bytes[at..].first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        Some(Self { epoch: number(0), seq: number(8), end: number(16) })
    }
}

/// An open database. All methods may be called from any number of threads.
pub(crate) trait Database: Send + Sync {
    /// The value under a stored key.
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Value>, StoreError>;

    /// Visits the stored keys from `start` to before `end` in order, until the visitor breaks off.
    fn scan(
        &self,
        tree: Tree,
        start: Bound<&[u8]>,
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// Commits changes, each key at most once, together with what they mean for the front journal.
    fn commit(&self, changes: Vec<Change>, marker: Marker) -> Result<(), StoreError>;

    /// Stores a note of the store's own in the tree of passing records, outside of every space.
    fn note(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Brings every commit before the call to stable storage.
    ///
    /// # Errors
    /// Whatever the disk says; after a failure to sync, every later call fails too.
    fn sync(&self) -> Result<(), StoreError>;

    /// Whether a sync has failed, so that commits may be lost.
    fn has_failed_sync(&self) -> bool;

    /// Whether the database takes no commits any more after an error.
    fn has_given_up(&self) -> bool;

    /// Bytes of the tables of both trees on disk.
    fn table_bytes(&self) -> u64;

    /// Bytes of a tree that are in memory and not in a table yet.
    fn memtable_bytes(&self, tree: Tree) -> u64;

    /// Whether the tree can take one more sealed memtable without holding commits up.
    fn may_seal(&self, tree: Tree) -> bool;

    /// Seals the memtable of a tree, so that it goes to disk.
    fn seal(&self, tree: Tree) -> Result<(), StoreError>;
}

/// The marker of a database; `None` if it was never used.
pub(crate) fn read_marker(
    database: &dyn Database,
    damaged: impl FnOnce(&str) -> StoreError,
) -> Result<Option<Marker>, StoreError> {
    let Some(bytes) = database.get(Tree::Passing, MARKER_KEY)? else { return Ok(None) };
    match Marker::from_bytes(&bytes) {
        Some(marker) => Ok(Some(marker)),
        None => Err(damaged("the marker of the journal has a wrong length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database that was written before has to be read after: the form never changes.
    #[test]
    fn the_form_of_the_marker_never_changes() {
        let marker = Marker { epoch: 0x0102, seq: 3, end: 0x0400_0000_0000 };
        let golden = b"\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0";
        assert_eq!(marker.to_bytes(), *golden);
        assert_eq!(Marker::from_bytes(golden), Some(marker));
        assert_eq!(MARKER_KEY, b"!front");
    }
}
