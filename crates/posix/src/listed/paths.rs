//! Directories through which names are looked up again and again. A kernel asks anew for each name of a path, one after
//! the other, once it believes the last answers no more. Owns which names follow each other, so that they can be asked for
//! together, and what was told of those that had not been asked for yet. It asks nobody.

use std::collections::HashMap;

use azekura_proto::Oid;
use azekura_proto::limits::WALK_NAMES_MAX;

use super::entry::Seen;

/// Directories of which it is known where a path went on.
const BELOW_MAX: usize = 1024;
/// Names that were told of before they were asked for.
const TOLD_MAX: usize = 256;

/// A name in a directory.
pub(crate) type NameIn = (Oid, Box<[u8]>);

#[derive(Debug, Default)]
pub(super) struct Paths {
    /// The directory that was last looked up in a directory, with its name.
    below: HashMap<Oid, (Box<[u8]>, Oid)>,
    told: HashMap<NameIn, Seen>,
}

impl Paths {
    /// A name leads to a directory, as has been asked for.
    pub(super) fn note_directory(&mut self, dir: Oid, name: &[u8], below: Oid) {
        if self.below.get(&dir).is_some_and(|(known, oid)| **known == *name && *oid == below) {
            return;
        }
        if self.below.len() == BELOW_MAX {
            self.below.clear();
        }
        self.below.insert(dir, (name.into(), below));
    }

    /// A name, and those that were looked up below it last: each in the directory to which the one before has led.
    pub(super) fn along(&self, dir: Oid, name: &[u8]) -> Vec<NameIn> {
        let mut names = vec![(dir, name.into())];
        while names.len() < WALK_NAMES_MAX
            && let Some((dir, name)) = names.last()
            && let Some((_, at)) = self.below.get(dir).filter(|(known, _)| known == name)
            && let Some((next, _)) = self.below.get(at)
        {
            names.push((*at, next.clone()));
        }
        names
    }

    /// The names that were looked up below a directory last.
    pub(super) fn below(&self, dir: Oid) -> Vec<NameIn> {
        self.below.get(&dir).map(|(name, _)| self.along(dir, name)).unwrap_or_default()
    }

    /// What a name leads to was told with another one.
    pub(super) fn keep_told(&mut self, name: NameIn, seen: Seen) {
        if self.told.len() == TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(name, seen);
    }

    /// What was told of a name. It is told once more as long as it holds.
    pub(super) fn told(&mut self, name: &NameIn, holds: impl Fn(&Seen) -> bool) -> Option<&Seen> {
        if !self.told.get(name).is_some_and(holds) {
            self.told.remove(name);
        }
        self.told.get(name)
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
    fn a_name_is_followed_by_those_that_were_looked_up_below_it_last() {
        let mut paths = Paths::default();
        let names = |paths: &Paths, name: &[u8]| {
            let along = paths.along(dir(0), name).into_iter();
            along.map(|(_, name)| String::from_utf8(name.into()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(&paths, b"a"), ["a"]);
        paths.note_directory(dir(0), b"a", dir(1));
        paths.note_directory(dir(1), b"b", dir(2));
        paths.note_directory(dir(2), b"c", dir(3));
        assert_eq!(names(&paths, b"a"), ["a", "b", "c"]);
        paths.note_directory(dir(1), b"other", dir(4));
        assert_eq!(names(&paths, b"a"), ["a", "other"]);
        assert_eq!(names(&paths, b"elsewhere"), ["elsewhere"]);
        // However it comes about that one lies below itself.
        paths.note_directory(dir(4), b"round", dir(1));
        assert_eq!(names(&paths, b"a").len(), WALK_NAMES_MAX);
        for serial in 10..10 + BELOW_MAX as u64 {
            paths.note_directory(dir(serial), b"x", dir(1));
        }
        assert!(paths.below.len() <= BELOW_MAX);
    }
}
