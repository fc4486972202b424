//! Names that are looked at one by one in directories that nobody has listed. Owns what makes such a directory
//! worth being listed, and where a file's name was found. It asks nobody.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use azekura_proto::Oid;

use super::directory::WALK_LOOKS;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 32;
/// Looks at names of a directory that lie further apart are no walk; and for so long it is not listed again.
const APART_MAX: Duration = Duration::from_secs(5);
/// So many directories that were walked one behind the other make the next one worth being listed at once.
const WALKED_TRUSTED: u32 = 2;
/// Files whose names are remembered.
const NAMES_MAX: usize = 256;

/// Where a file was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundName {
    pub(crate) dir: Oid,
    pub(crate) name: Box<[u8]>,
    /// When an engine was asked for the name by itself; `None`: a listing had it.
    pub(crate) looked_up: Option<Instant>,
}

/// A directory of which no listing is known.
#[derive(Debug)]
struct Unlisted {
    dir: Oid,
    last: Box<[u8]>,
    /// Looks, each at another name than the one before.
    looks: u32,
    at: Instant,
    is_tried: bool,
}

/// The directory that was listed last since names of it were looked at.
#[derive(Debug)]
struct Walked {
    dir: Oid,
    /// It was listed at the first look.
    is_guess: bool,
    /// Looks that its listing has answered.
    found: u32,
}

/// What was looked at.
#[derive(Debug, Default)]
pub(super) struct Looked {
    unlisted: VecDeque<Unlisted>,
    walked: Option<Walked>,
    /// How many directories were listed so, each of them for more than one look.
    run: u32,
    names: VecDeque<(Oid, FoundName)>,
}

impl Unlisted {
    fn new(dir: Oid, at: Instant) -> Self {
        Self { dir, last: Box::default(), looks: 0, at, is_tried: false }
    }
}

impl Looked {
    /// A name is looked at in a directory of which no listing is known: whether one is worth being asked
    /// for now.
    pub(super) fn note(&mut self, dir: Oid, name: &[u8], now: Instant) -> bool {
        let place = self.unlisted.iter().position(|known| known.dir == dir);
        let known = place.and_then(|place| self.unlisted.remove(place));
        let known = known.filter(|known| now.saturating_duration_since(known.at) < APART_MAX);
        let mut known = known.unwrap_or_else(|| Unlisted::new(dir, now));
        if known.looks == 0 || *known.last != *name {
            known.last = name.into();
            known.looks += 1;
        }
        let is_guess = known.looks < WALK_LOOKS;
        let is_worth = !known.is_tried && (!is_guess || self.are_walked());
        if is_worth {
            self.run += 1;
            self.walked = Some(Walked { dir, is_guess, found: 0 });
        }
        if !known.is_tried {
            known.at = now;
        }
        known.is_tried |= is_worth;
        if self.unlisted.len() == DIRECTORIES_MAX {
            self.unlisted.pop_front();
        }
        self.unlisted.push_back(known);
        is_worth
    }

    /// Whether one directory after the other is walked. Ends that if the last guess was wrong.
    fn are_walked(&mut self) -> bool {
        if self.walked.as_ref().is_some_and(|last| last.is_guess && last.found < WALK_LOOKS) {
            self.run = 0;
        }
        self.run >= WALKED_TRUSTED
    }

    /// Whether a directory was found to be worth listing since others were walked before it.
    pub(super) fn walks_on(&self, dir: Oid) -> bool {
        self.walked.as_ref().is_some_and(|walked| walked.dir == dir && walked.is_guess)
    }

    /// A listing has answered a look.
    pub(super) fn note_found(&mut self, dir: Oid) {
        if let Some(walked) = self.walked.as_mut().filter(|walked| walked.dir == dir) {
            walked.found += 1;
        }
    }

    /// A file was found by a name.
    pub(super) fn note_name(&mut self, oid: Oid, found: FoundName) {
        self.names.retain(|(known, _)| *known != oid);
        if self.names.len() == NAMES_MAX {
            self.names.pop_front();
        }
        self.names.push_back((oid, found));
    }

    /// By what name a file was found last.
    pub(super) fn name_of(&self, oid: Oid) -> Option<FoundName> {
        let found = self.names.iter().rev().find(|(known, _)| *known == oid);
        found.map(|(_, found)| found.clone())
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
    fn the_third_name_makes_a_directory_worth_listing_once() {
        let (mut looked, now) = (Looked::default(), Instant::now());
        let looks = [b"a", b"a", b"b", b"b", b"c", b"d"].map(|name| looked.note(dir(1), name, now));
        assert_eq!(looks, [false, false, false, false, true, false]);
        let later = now + APART_MAX;
        assert!(!looked.note(dir(1), b"e", later), "that was another walk");
        assert!(!looked.note(dir(1), b"f", later) && looked.note(dir(1), b"g", later));
    }

    #[test]
    fn looks_that_lie_far_apart_are_no_walk() {
        let mut looked = Looked::default();
        let mut now = Instant::now();
        for turn in 0..10_u8 {
            assert!(!looked.note(dir(1), &[turn], now));
            now += APART_MAX;
        }
    }

    #[test]
    fn after_two_directories_the_next_is_listed_at_once_as_long_as_that_is_of_use() {
        let (mut looked, now) = (Looked::default(), Instant::now());
        for number in [1, 2] {
            assert!(!looked.note(dir(number), b"a", now) && !looked.note(dir(number), b"b", now));
            assert!(looked.note(dir(number), b"c", now));
        }
        assert!(!looked.walks_on(dir(2)));
        assert!(looked.note(dir(3), b"a", now) && looked.walks_on(dir(3)));
        (0..WALK_LOOKS).for_each(|_| looked.note_found(dir(3)));
        assert!(looked.note(dir(4), b"a", now));
        looked.note_found(dir(4));
        assert!(!looked.note(dir(5), b"a", now), "one look at the last was all");
    }

    #[test]
    fn names_are_known_by_their_files_and_bounded() {
        let mut looked = Looked::default();
        let found = |name: &[u8]| FoundName { dir: dir(0), name: name.into(), looked_up: None };
        looked.note_name(dir(1), found(b"old"));
        looked.note_name(dir(1), found(b"new"));
        assert_eq!(looked.name_of(dir(1)), Some(found(b"new")));
        for number in 0..NAMES_MAX as u64 {
            looked.note_name(dir(2 + number), found(b"other"));
        }
        assert_eq!(looked.name_of(dir(1)), None);
        assert_eq!(looked.names.len(), NAMES_MAX);
    }
}
