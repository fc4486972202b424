//! The own changes of names. Owns the order between them and the questions to engines: what is asked for before a
//! change is over may be from before it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::Oid;
use parking_lot::Mutex;

/// Directories whose last change is known by itself.
const DIRECTORIES_MAX: usize = 4096;

/// How many changes there have been, and when what was changed last.
#[derive(Debug, Default)]
pub(super) struct NameChanges {
    count: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// Of anything.
    anywhere: u64,
    /// Of directories in which something was made, which nothing else is told of.
    made_in: HashMap<Oid, u64>,
}

/// A change of names, or of what else is told of them, that is under way.
#[must_use = "the change is over when this is dropped"]
#[derive(Debug)]
pub(crate) struct NameChange<'c> {
    changes: &'c NameChanges,
    /// It makes a name in this directory, and does nothing else.
    made_in: Option<Oid>,
}

impl NameChanges {
    /// How many there have been, to be asked before a question.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// One begins.
    pub(super) fn begin(&self, made_in: Option<Oid>) -> NameChange<'_> {
        NameChange { changes: self, made_in }
    }

    /// Whether nothing has been changed of this directory, and what is told of its names, since so many changes.
    pub(super) fn has_none_since(&self, dir: Oid, count: u64) -> bool {
        if self.count() == count {
            return true;
        }
        let last = self.last.lock();
        last.anywhere <= count && last.made_in.get(&dir).is_none_or(|last| *last <= count)
    }
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        let mut last = self.changes.last.lock();
        let number = self.changes.count.fetch_add(1, Ordering::SeqCst) + 1;
        let Some(dir) = self.made_in else {
            last.anywhere = number;
            last.made_in.clear();
            return;
        };
        if last.made_in.len() == DIRECTORIES_MAX {
            last.anywhere = number;
            last.made_in.clear();
        }
        last.made_in.insert(dir, number);
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    fn dir(serial: u64) -> Oid {
        Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
    }

    #[test]
    fn what_is_made_in_one_directory_is_no_change_of_another() {
        let changes = NameChanges::default();
        let begun = changes.count();
        let change = changes.begin(Some(dir(1)));
        let meanwhile = changes.count();
        assert!(changes.has_none_since(dir(1), begun));
        drop(change);
        for count in [begun, meanwhile] {
            assert!(
                !changes.has_none_since(dir(1), count),
                "what was asked for may be from before"
            );
            assert!(changes.has_none_since(dir(2), count));
        }
        assert!(changes.has_none_since(dir(1), changes.count()));
        drop(changes.begin(None));
        assert!(!changes.has_none_since(dir(2), meanwhile));
        assert!(changes.has_none_since(dir(2), changes.count()));
    }

    #[test]
    fn as_many_are_known_as_there_is_room_for_and_the_others_count_as_changed() {
        let changes = NameChanges::default();
        let begun = changes.count();
        for serial in 0..=DIRECTORIES_MAX as u64 {
            drop(changes.begin(Some(dir(serial))));
        }
        assert!(!changes.has_none_since(dir(u64::from(u32::MAX)), begun));
        assert!(changes.last.lock().made_in.len() <= DIRECTORIES_MAX);
        assert!(changes.has_none_since(dir(0), changes.count()));
    }
}
