//! Which records of a target an unfinished transaction keeps others away from. Owns the rules of
//! sharing; it stores nothing and waits for nobody.

use std::collections::HashMap;

use azekura_proto::Oid;
use azekura_proto::transaction::{Action, TransactionId};

use crate::records::record::{ENTRY_KEY_BYTES, entry_key};

/// What can be locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum LockKey {
    /// A bucket of entries.
    Entry([u8; ENTRY_KEY_BYTES]),
    /// An inode.
    Inode(Oid),
    /// A directory's shard: shared by those that insert, alone for the one that removes it.
    Shard(Oid),
    /// The shape of a container's tree.
    Tree(Oid),
}

#[derive(Debug)]
enum Held {
    Exclusive(TransactionId),
    Shared(u32),
}

/// The locks of one target.
#[derive(Debug, Default)]
pub(crate) struct KeyLocks {
    held: HashMap<LockKey, Held>,
}

/// A key and how it is wanted.
pub(crate) type Wanted = (LockKey, bool);

impl KeyLocks {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether an operation that is over in a moment may go ahead with these keys.
    pub(crate) fn are_free(&self, wanted: &[Wanted]) -> bool {
        self.held.is_empty()
            || wanted.iter().all(|(key, exclusive)| match self.held.get(key) {
                None => true,
                Some(Held::Shared(_)) => !exclusive,
                Some(Held::Exclusive(_)) => false,
            })
    }

    /// Whether anybody changes names of a directory, or its shard.
    pub(crate) fn hold_names_of(&self, dir: Oid) -> bool {
        let prefix = dir.to_bytes();
        self.held.keys().any(|key| match key {
            LockKey::Entry(key) => key.starts_with(&prefix),
            LockKey::Shard(of) => *of == dir,
            LockKey::Inode(_) | LockKey::Tree(_) => false,
        })
    }

    /// Takes all of the keys for `id`, or none.
    pub(crate) fn try_take(&mut self, id: TransactionId, wanted: &[Wanted]) -> bool {
        let possible = wanted.iter().all(|(key, exclusive)| match self.held.get(key) {
            None => true,
            Some(Held::Shared(_)) => !exclusive,
            Some(Held::Exclusive(holder)) => *holder == id,
        });
        if !possible {
            return false;
        }
        for (key, exclusive) in wanted {
            if *exclusive {
                self.held.insert(*key, Held::Exclusive(id));
            } else {
                match self.held.entry(*key).or_insert(Held::Shared(0)) {
                    Held::Shared(count) => *count += 1,
                    // Its own exclusive lock includes the shared one.
                    Held::Exclusive(holder) => assert!(*holder == id, "looked at above"),
                }
            }
        }
        true
    }

    /// Gives keys back that `id` has taken.
    pub(crate) fn give_back(&mut self, id: TransactionId, wanted: &[Wanted]) {
        for (key, exclusive) in wanted {
            match self.held.get_mut(key) {
                Some(Held::Exclusive(holder)) if *exclusive && *holder == id => {
                    self.held.remove(key);
                }
                Some(Held::Shared(count)) if !exclusive => {
                    assert!(*count > 0, "a key that nobody shares is not kept");
                    *count -= 1;
                    if *count == 0 {
                        self.held.remove(key);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The keys that an action needs.
pub(crate) fn keys_of(action: &Action) -> Vec<Wanted> {
    match action {
        Action::InsertEntry { dir, name, .. } => {
            vec![(LockKey::Entry(entry_key(*dir, name)), true), (LockKey::Shard(*dir), false)]
        }
        Action::RemoveEntry { dir, name, .. } => {
            vec![(LockKey::Entry(entry_key(*dir, name)), true)]
        }
        Action::SealShard { dir } => vec![(LockKey::Shard(*dir), true)],
        Action::RemoveDirectory { dir } | Action::SetParent { dir, .. } => {
            vec![(LockKey::Inode(*dir), true)]
        }
        Action::AddLinks { oid, .. } => vec![(LockKey::Inode(*oid), true)],
        Action::LockTree { root } => vec![(LockKey::Tree(*root), true)],
    }
}

/// The keys that several actions need, each once, the stronger wish winning.
pub(crate) fn keys_of_all(actions: &[Action]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for (key, exclusive) in actions.iter().flat_map(keys_of) {
        match wanted.iter_mut().find(|(known, _)| *known == key) {
            Some((_, strength)) => *strength |= exclusive,
            None => wanted.push((key, exclusive)),
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    #[test]
    fn shared_and_exclusive_exclude_each_other() {
        let dir = Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 1);
        let id = |number| TransactionId { coordinator: TargetId(0), number };
        let (share, seal) = ([(LockKey::Shard(dir), false)], [(LockKey::Shard(dir), true)]);
        let mut locks = KeyLocks::default();
        assert!(locks.try_take(id(1), &share) && locks.try_take(id(2), &share));
        assert!(!locks.try_take(id(3), &seal) && !locks.are_free(&seal) && locks.are_free(&share));
        locks.give_back(id(1), &share);
        locks.give_back(id(2), &share);
        assert!(locks.try_take(id(3), &seal));
        assert!(!locks.try_take(id(1), &share) && !locks.are_free(&share));
        locks.give_back(id(3), &seal);
        assert_eq!(locks.len(), 0);
    }
}
