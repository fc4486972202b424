//! Directories through which names are looked up again and again. A kernel asks anew for each name of a path, one after
//! the other, once it believes the last answers no more. Owns which names follow each other, so that they can be asked for
//! together, and what was told of those that had not been asked for yet. It asks nobody.

use std::collections::HashMap;
use std::time::Instant;

use azekura_proto::Oid;
use azekura_proto::limits::WALK_NAMES_MAX;

use super::entry::Seen;

/// Directories of which it is known where a path went on.
const BELOW_MAX: usize = 1024;
/// Ways on from one directory that are known: a program that reads here and writes there goes to and fro between two.
const WAYS_MAX: usize = 2;
/// Names that were told of before they were asked for.
const TOLD_MAX: usize = 256;

/// A name in a directory.
pub(crate) type NameIn = (Oid, Box<[u8]>);

#[derive(Debug, Default)]
pub(super) struct Paths {
    /// The directories that were last looked up in a directory, the last one in front.
    below: HashMap<Oid, Vec<Way>>,
    told: HashMap<NameIn, Seen>,
}

/// A name that has led to a directory.
#[derive(Debug)]
struct Way {
    name: Box<[u8]>,
    to: Oid,
    at: Instant,
}

impl Paths {
    /// A name leads to a directory, as has been asked for.
    pub(super) fn note_directory(&mut self, dir: Oid, name: &[u8], to: Oid, at: Instant) {
        if self.below.len() == BELOW_MAX && !self.below.contains_key(&dir) {
            self.below.clear();
        }
        let ways = self.below.entry(dir).or_default();
        if let Some(place) = ways.iter().position(|way| *way.name == *name) {
            ways[..=place].rotate_right(1);
        } else {
            ways.truncate(WAYS_MAX - 1);
            ways.insert(0, Way { name: name.into(), to, at });
        }
        (ways[0].to, ways[0].at) = (to, at);
    }

    /// A name, and those that were looked up below it last: each in the directory to which the one before has led.
    pub(super) fn along(&self, dir: Oid, name: &[u8]) -> Vec<NameIn> {
        let mut names = vec![(dir, name.into())];
        while names.len() < WALK_NAMES_MAX
            && let Some((dir, name)) = names.last()
            && let Some(way) = self.ways(*dir).find(|way| way.name == *name)
            && let Some(next) = self.ways(way.to).next()
        {
            names.push((way.to, next.name.clone()));
        }
        names
    }

    /// The names that were looked up below a directory last.
    pub(super) fn below(&self, dir: Oid) -> Vec<NameIn> {
        self.ways(dir).next().map(|way| self.along(dir, &way.name)).unwrap_or_default()
    }

    /// The names that were looked up by the other way on from the directory in which a name is, if that was no longer ago.
    /// None for a name that is no way on itself.
    pub(super) fn beside(&self, (dir, name): &NameIn, since: Instant) -> Vec<NameIn> {
        if self.ways(*dir).all(|way| way.name != *name) {
            return Vec::new();
        }
        let other = self.ways(*dir).find(|way| way.name != *name && way.at >= since);
        other.map(|way| self.along(*dir, &way.name)).unwrap_or_default()
    }

    fn ways(&self, dir: Oid) -> impl Iterator<Item = &Way> {
        self.below.get(&dir).into_iter().flatten()
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
    use std::time::Duration;

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
        let now = Instant::now();
        assert_eq!(names(&paths, b"a"), ["a"]);
        paths.note_directory(dir(0), b"a", dir(1), now);
        paths.note_directory(dir(1), b"b", dir(2), now);
        paths.note_directory(dir(2), b"c", dir(3), now);
        assert_eq!(names(&paths, b"a"), ["a", "b", "c"]);
        paths.note_directory(dir(1), b"other", dir(4), now);
        assert_eq!(names(&paths, b"a"), ["a", "other"]);
        assert_eq!(names(&paths, b"elsewhere"), ["elsewhere"]);
        paths.note_directory(dir(1), b"b", dir(2), now);
        assert_eq!(names(&paths, b"a"), ["a", "b", "c"]);
        // However it comes about that one lies below itself.
        paths.note_directory(dir(2), b"round", dir(1), now);
        assert_eq!(names(&paths, b"a").len(), WALK_NAMES_MAX);
        for serial in 10..10 + BELOW_MAX as u64 {
            paths.note_directory(dir(serial), b"x", dir(1), now);
        }
        assert!(paths.below.len() <= BELOW_MAX);
    }

    #[test]
    fn of_two_ways_the_other_one_is_known_while_it_is_taken() {
        let mut paths = Paths::default();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let name = |name: &[u8]| (dir(0), Box::from(name));
        paths.note_directory(dir(0), b"from", dir(1), after(0));
        assert!(paths.beside(&name(b"from"), start).is_empty(), "there is no other");
        paths.note_directory(dir(0), b"to", dir(2), after(1));
        paths.note_directory(dir(2), b"below", dir(3), after(1));
        assert_eq!(
            paths.beside(&name(b"from"), start),
            [name(b"to"), (dir(2), Box::from(&b"below"[..]))]
        );
        assert_eq!(paths.beside(&name(b"to"), start), [name(b"from")]);
        assert!(paths.beside(&name(b"to"), after(1)).is_empty(), "nobody goes there any more");
        assert!(paths.beside(&name(b"file"), start).is_empty());
        paths.note_directory(dir(0), b"third", dir(4), after(2));
        assert_eq!(paths.beside(&name(b"third"), start)[0], name(b"to"), "the last but one");
    }
}
