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
    /// Of a name that may not have been the only one of what it led to.
    moved: u64,
    /// Of the names of directories of which nothing else is told.
    within: HashMap<Oid, u64>,
}

/// What a change is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// Of anything that is told of names.
    Anywhere,
    /// A name is made in this directory, which changes nothing else.
    Made(Oid),
    /// A name of the first directory goes or moves to the second, where it may replace one. Only these two change, and how
    /// many names there are of what it led to.
    Moved(Oid, Oid),
}

/// A change of names, or of what else is told of them, that is under way.
#[must_use = "the change is over when this is dropped"]
#[derive(Debug)]
pub(crate) struct NameChange<'c> {
    changes: &'c NameChanges,
    of: Where,
}

impl NameChanges {
    /// How many there have been, to be asked before a question.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// One begins.
    pub(super) fn begin(&self, of: Where) -> NameChange<'_> {
        NameChange { changes: self, of }
    }

    /// Whether nothing has been changed of this directory, and what is told of its names, since so many changes: but
    /// for how many names there are of what has several.
    pub(super) fn has_none_since(&self, dir: Oid, count: u64) -> bool {
        if self.count() == count {
            return true;
        }
        let last = self.last.lock();
        last.anywhere <= count && last.within.get(&dir).is_none_or(|last| *last <= count)
    }

    /// Whether since so many changes nothing has lost a name, or been moved.
    pub(super) fn has_no_move_since(&self, count: u64) -> bool {
        if self.count() == count {
            return true;
        }
        let last = self.last.lock();
        last.anywhere.max(last.moved) <= count
    }
}

impl Last {
    fn note_within(&mut self, dir: Oid, number: u64) {
        if self.within.len() == DIRECTORIES_MAX {
            self.note_anywhere(number);
        }
        self.within.insert(dir, number);
    }

    fn note_anywhere(&mut self, number: u64) {
        self.anywhere = number;
        self.within.clear();
    }
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        let mut last = self.changes.last.lock();
        let number = self.changes.count.fetch_add(1, Ordering::SeqCst) + 1;
        match self.of {
            Where::Anywhere => last.note_anywhere(number),
            Where::Made(dir) => last.note_within(dir, number),
            Where::Moved(from, to) => {
                last.moved = number;
                last.note_within(from, number);
                last.note_within(to, number);
            }
        }
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
        let change = changes.begin(Where::Made(dir(1)));
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
        drop(changes.begin(Where::Anywhere));
        assert!(!changes.has_none_since(dir(2), meanwhile));
        assert!(changes.has_none_since(dir(2), changes.count()));
    }

    #[test]
    fn what_moves_changes_both_directories_and_what_has_several_names() {
        let changes = NameChanges::default();
        let begun = changes.count();
        drop(changes.begin(Where::Made(dir(9))));
        assert!(changes.has_no_move_since(begun));
        drop(changes.begin(Where::Moved(dir(1), dir(2))));
        assert!(!changes.has_none_since(dir(1), begun) && !changes.has_none_since(dir(2), begun));
        assert!(changes.has_none_since(dir(3), begun) && !changes.has_no_move_since(begun));
        let after = changes.count();
        assert!(changes.has_none_since(dir(1), after) && changes.has_no_move_since(after));
        drop(changes.begin(Where::Anywhere));
        assert!(!changes.has_no_move_since(after));
    }

    #[test]
    fn as_many_are_known_as_there_is_room_for_and_the_others_count_as_changed() {
        let changes = NameChanges::default();
        let begun = changes.count();
        for serial in 0..=DIRECTORIES_MAX as u64 {
            drop(changes.begin(Where::Made(dir(serial))));
        }
        assert!(!changes.has_none_since(dir(u64::from(u32::MAX)), begun));
        assert!(changes.last.lock().within.len() <= DIRECTORIES_MAX);
        assert!(changes.has_none_since(dir(0), changes.count()));
    }
}
