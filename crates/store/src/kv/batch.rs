//! Atomic batches: what is written together. Owns which batches may take the space that is held back
//! on a nearly full disk. Does no I/O.

use super::change::change_bytes;
use super::record::Changes;
use super::space::{Space, Tree};

/// Changes that are made together or not at all. A later change of a key replaces an earlier one
/// of the same batch.
#[derive(Default)]
pub struct Batch {
    changes: Changes,
    bytes: u64,
    may_use_reserve: bool,
    deletes: bool,
    grows: bool,
    /// The first change that has no stored form.
    refused: Option<&'static str>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores `value` under `key`.
    pub fn put(&mut self, space: Space, key: &[u8], value: impl AsRef<[u8]>) {
        self.grows |= space.tree() == Tree::Lasting;
        self.change(space, key, Some(value.as_ref()));
    }

    /// Removes what is stored under `key`, if anything is.
    pub fn delete(&mut self, space: Space, key: &[u8]) {
        self.deletes = true;
        self.change(space, key, None);
    }

    /// Lets the batch use the disk space that is held back for removals. A batch that deletes
    /// something, or that stores only records of passing spaces, may do so without asking; this
    /// is for changes that take no lasting space, such as new times of an inode.
    pub fn allow_reserve(&mut self) {
        self.may_use_reserve = true;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.refused.is_none()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    fn change(&mut self, space: Space, key: &[u8], value: Option<&[u8]>) {
        self.bytes += change_bytes(key, value);
        if let Err(refused) = self.changes.push(space, key, value) {
            self.refused.get_or_insert(refused);
        }
    }

    /// Whether the batch may go on when only the reserve is left.
    pub(crate) fn may_use_reserve(&self) -> bool {
        self.may_use_reserve || self.deletes || !self.grows
    }

    /// Roughly what the batch takes in memory and in the journal, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The changes in their stored form.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn into_changes(self) -> Result<Changes, &'static str> {
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok(self.changes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_and_passing_records_may_use_the_reserve() {
        let mut growing = Batch::new();
        growing.put(Space::Inode, b"a", b"1");
        assert!(!growing.may_use_reserve());
        growing.delete(Space::Entry, b"b");
        assert!(growing.may_use_reserve());
        let mut passing = Batch::new();
        passing.put(Space::Orphan, b"a", b"");
        assert!(passing.may_use_reserve());
    }
}
