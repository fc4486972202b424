//! Which files and directories this client has changed since they were last made durable, and how often their
//! engines had lost something when the first of these changes began. Owns this memory, so that whoever asks for
//! durability is told of a loss of power in between: the engine that was started anew has nothing of the change, and
//! syncs without an error what it has. What is forgotten for want of room is not told.

use azekura_proto::Oid;
use quick_cache::sync::Cache;

/// Objects that are remembered.
const OBJECTS: usize = 16 * 1024;

/// How often engines have lost something, as far as that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Losses {
    /// That of the object's home.
    pub(crate) home: u64,
    /// Those of its other shards, together.
    pub(crate) others: u64,
}

impl Losses {
    /// Whether anything of an object can be lost since. `is_wide`: it has parts in other shards than the home's.
    pub(crate) fn touch(self, now: Self, is_wide: bool) -> bool {
        self.home != now.home || is_wide && self.others != now.others
    }
}

/// The objects with changes that may not be durable.
#[derive(Debug)]
pub(crate) struct Unsynced {
    since: Cache<Oid, Losses>,
}

impl Unsynced {
    pub(crate) fn new() -> Self {
        Self { since: Cache::new(OBJECTS) }
    }

    /// A change of an object begins.
    pub(crate) fn note(&self, oid: Oid, losses: impl FnOnce() -> Losses) {
        if self.since.get(&oid).is_none() {
            // Of two at a time the first counts, which has heard of no more losses.
            let first = self.since.get_or_insert_with(&oid, || Ok::<_, ()>(losses()));
            debug_assert!(first.is_ok(), "losses are counted without an error");
        }
    }

    /// An object is about to be synced: what changes from now on is for the next time. Gives what was noted.
    pub(crate) fn take(&self, oid: Oid) -> Option<Losses> {
        self.since.remove(&oid).map(|(_, losses)| losses)
    }

    /// It was not synced, so that what was noted holds on.
    pub(crate) fn put_back(&self, oid: Oid, losses: Losses) {
        self.since.insert(oid, losses);
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn the_first_change_since_a_sync_counts() {
        let unsynced = Unsynced::new();
        let oid = Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 7);
        let (before, after) = (Losses { home: 1, others: 4 }, Losses { home: 2, others: 4 });
        assert_eq!(unsynced.take(oid), None);
        unsynced.note(oid, || before);
        unsynced.note(oid, || after);
        assert_eq!(unsynced.take(oid), Some(before));
        assert_eq!(unsynced.take(oid), None, "what was synced needs no memory");
        unsynced.note(oid, || after);
        unsynced.put_back(oid, before);
        assert_eq!(unsynced.take(oid), Some(before));
    }

    #[test]
    fn a_loss_elsewhere_touches_only_what_has_parts_there() {
        let before = Losses { home: 1, others: 4 };
        assert!(!before.touch(before, true));
        assert!(before.touch(Losses { home: 2, ..before }, false));
        let elsewhere = Losses { others: 5, ..before };
        assert!(before.touch(elsewhere, true) && !before.touch(elsewhere, false));
    }
}
