//! Key spaces and atomic batches: what is written together. Owns the first byte of every key.
//! Does no I/O.

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

/// Longest key without its space, in bytes: an object id and two escaped keys of the object API.
pub(crate) const KEY_BYTES_MAX: usize = 8 * 1024;

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

/// One change of a batch.
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
        const OVERHEAD: u64 = 64;
        self.key.len() as u64 + self.value.as_ref().map_or(0, |value| value.len() as u64) + OVERHEAD
    }
}

/// Changes that are made together or not at all. A later change of a key replaces an earlier one
/// of the same batch.
#[derive(Default)]
pub struct Batch {
    changes: Vec<Change>,
    may_use_reserve: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores `value` under `key`.
    pub fn put(&mut self, space: Space, key: &[u8], value: impl Into<Value>) {
        self.change(space, key, Some(value.into()));
    }

    /// Removes what is stored under `key`, if anything is.
    pub fn delete(&mut self, space: Space, key: &[u8]) {
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
        self.changes.is_empty()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    fn change(&mut self, space: Space, key: &[u8], value: Option<Value>) {
        let key = with_stored_key(space, key, |full| Value::from(full));
        self.changes.push(Change { space, key, value });
    }

    /// Whether the batch may go on when only the reserve is left.
    pub(crate) fn may_use_reserve(&self) -> bool {
        self.may_use_reserve
            || self.changes.iter().any(|change| change.value.is_none())
            || self.changes.iter().all(|change| change.space.tree() == Tree::Passing)
    }

    /// The changes, each key once.
    pub(crate) fn into_changes(mut self) -> Vec<Change> {
        // The database would store two changes of one key under one version, and which of them
        // it finds later is chance.
        const PAIRWISE_MAX: usize = 24;
        let changes = &mut self.changes;
        if changes.len() <= PAIRWISE_MAX {
            let mut i = 0;
            while i < changes.len() {
                if changes[i + 1..].iter().any(|later| later.key == changes[i].key) {
                    changes.remove(i);
                } else {
                    i += 1;
                }
            }
        } else {
            changes.sort_by(|a, b| a.key.cmp(&b.key));
            changes.reverse();
            changes.dedup_by(|next, kept| next.key == kept.key);
        }
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(batch: Batch) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut all: Vec<_> = batch
            .into_changes()
            .into_iter()
            .map(|change| (change.key.to_vec(), change.value.map(|value| value.to_vec())))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn the_last_change_of_a_key_wins_in_small_and_large_batches() {
        for count in [3u8, 100] {
            let mut batch = Batch::new();
            for round in 0..2 {
                for i in 0..count {
                    batch.put(Space::System, &[i], [round]);
                }
            }
            batch.delete(Space::System, &[1]);
            let kept = kept(batch);
            assert_eq!(kept.len(), usize::from(count));
            for (key, value) in kept {
                assert_eq!(value, if key == b"s\x01" { None } else { Some(vec![1]) });
            }
        }
    }

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
