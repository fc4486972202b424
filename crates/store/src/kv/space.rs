//! Key spaces: which kind of record a key names, and in which tree of the database it lies. Owns the
//! first byte of every stored key, which is part of the on-disk format.

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
    /// What a commit relies on in other targets' journals. Goes with it through the front journal,
    /// and not into the database.
    Reliance,
    /// How long the files of shards must be.
    Shard,
}

/// In which of the database's trees a space lies. Records that are overwritten or removed soon
/// stay in a tree of their own, where they fold together before they are merged with the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tree {
    Lasting,
    Passing,
}

impl Tree {
    pub(crate) const ALL: [Self; 2] = [Self::Lasting, Self::Passing];
}

impl Space {
    pub(crate) const ALL: [Self; 12] = [
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
        Self::Reliance,
        Self::Shard,
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
            Self::Reliance => b'l',
            Self::Shard => b'h',
        }
    }

    pub(crate) const fn tree(self) -> Tree {
        match self {
            Self::Entry | Self::Inode | Self::Xattr | Self::Kv | Self::System | Self::Shard => {
                Tree::Lasting
            }
            Self::DirShard
            | Self::Reply
            | Self::Transaction
            | Self::Reclaim
            | Self::Orphan
            | Self::Reliance => Tree::Passing,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_space_is_found_by_its_code() {
        for space in Space::ALL {
            assert_eq!(Space::from_code(space.code()), Some(space));
        }
        assert_eq!(Space::from_code(b'!'), None);
    }

    /// Stored keys begin with these bytes: a change loses every record of every pool.
    #[test]
    fn codes_and_trees_never_change() {
        let codes: Vec<u8> = Space::ALL.iter().map(|space| space.code()).collect();
        assert_eq!(codes, b"seidxkrtcolh");
        let lasting = Space::ALL.iter().filter(|space| space.tree() == Tree::Lasting);
        assert_eq!(lasting.map(|space| space.code()).collect::<Vec<_>>(), b"seixkh");
        assert_eq!(stored_key(Space::Inode, b"key"), b"ikey");
    }
}
