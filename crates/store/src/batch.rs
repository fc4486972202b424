//! Key spaces and atomic batches: what is written together. Owns the first byte of every key.
//! Does no I/O.

use crate::record::Changes;

/// A stored value: cheap to clone, read as bytes.
pub type Value = fjall::Slice;

/// Which kind of record a key names. Keys of one space sort by their bytes; spaces never mix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Counters and facts of the target itself.
    System,
    /// Directory entries.
    Entry,
    /// Inodes.
    Inode,
    /// What a directory keeps on each of its targets. Overwritten often.
    DirShard,
    /// Extended attributes.
    Xattr,
    /// Values of key-value objects.
    Kv,
    /// Answers kept for requests that may be sent again. Overwritten often.
    Reply,
    /// Transactions between targets that are under way.
    Transaction,
    /// Objects whose data still have to be removed.
    Reclaim,
    /// Unlinked objects that someone has open.
    Orphan,
}

/// In which of the database's trees a space lies. Records that are overwritten or removed soon
/// stay in a tree of their own, where they fold together before they are merged with the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tree {
    Lasting,
    Passing,
}

impl Space {
    pub(crate) const ALL: [Self; 10] = [
        Self::System,
        Self::Entry,
        Self::Inode,
        Self::DirShard,
        Self::Xattr,
        Self::Kv,
        Self::Reply,
        Self::Transaction,
        Self::Reclaim,
        Self::Orphan,
    ];

    /// The space whose keys begin with `code`.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.code() == code)
    }

    /// The first byte of the key. Part of the on-disk format.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::System => b's',
            Self::Entry => b'e',
            Self::Inode => b'i',
            Self::DirShard => b'd',
            Self::Xattr => b'x',
            Self::Kv => b'k',
            Self::Reply => b'r',
            Self::Transaction => b't',
            Self::Reclaim => b'c',
            Self::Orphan => b'o',
        }
    }

    pub(crate) const fn tree(self) -> Tree {
        match self {
            Self::Entry | Self::Inode | Self::Xattr | Self::Kv | Self::System => Tree::Lasting,
            Self::DirShard | Self::Reply | Self::Transaction | Self::Reclaim | Self::Orphan => {
                Tree::Passing
            }
        }
    }

    /// Whether reads of the space go through the value cache.
    pub(crate) const fn is_cached(self) -> bool {
        matches!(self, Self::Entry | Self::Inode | Self::DirShard)
    }
}

/// Calls `f` with the stored form of a key: the space's byte, then the key.
pub(crate) fn with_stored_key<R>(space: Space, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
    const INLINE: usize = 296;
    if key.len() < INLINE {
        let mut buffer = [0u8; INLINE];
        buffer[0] = space.code();
        buffer[1..=key.len()].copy_from_slice(key);
        f(&buffer[..=key.len()])
    } else {
        f(&stored_key(space, key))
    }
}

/// The stored form of a key, in a vector.
pub(crate) fn stored_key(space: Space, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(key.len() + 1);
    full.push(space.code());
    full.extend_from_slice(key);
    full
}

/// One change as the database takes it.
pub(crate) struct Change {
    pub(crate) space: Space,
    /// Stored form, with the space's byte.
    pub(crate) key: Value,
    /// `None` deletes.
    pub(crate) value: Option<Value>,
}

impl Change {
    /// Roughly what the change takes in memory and in the journal, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        change_bytes(&self.key, self.value.as_deref())
    }
}

fn change_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    const OVERHEAD: usize = 64;
    (key.len() + value.map_or(0, <[u8]>::len) + OVERHEAD) as u64
}

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

    #[test]
    fn every_space_is_found_by_its_code() {
        for space in Space::ALL {
            assert_eq!(Space::from_code(space.code()), Some(space));
        }
        assert_eq!(Space::from_code(b'!'), None);
    }
}
