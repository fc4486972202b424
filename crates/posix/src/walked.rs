//! What an engine has told of the names of a path that it walked: where the walk has ended, and the first walk of a file
//! system, which was told with its container. Owns that the latter is used once, and at once. It asks nobody.

use std::time::{Duration, Instant};

use azekura_proto::limits::{NAME_BYTES_MAX, WALK_NAMES_MAX};
use azekura_proto::message::typed::Found;
use azekura_proto::{FileKind, Oid};
use parking_lot::Mutex;

use crate::cache::AskedAny;
use crate::listed::{Asked, NameIn};

/// Whoever looks later than this at what the first walk has told looks for another reason, and asks: above all whether a
/// name is there by now.
const USED_WITHIN: Duration = Duration::from_millis(100);

/// What an engine has told of a name.
#[derive(Debug)]
pub(crate) enum Told {
    Absent,
    /// And when it was asked.
    There(Found, AskedAny),
}

/// Where an engine's walk has ended: what the next step needs not ask again.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) dir: Oid,
    pub(crate) name: Vec<u8>,
    pub(crate) told: Told,
}

impl End {
    /// What was told of a name, if it is this one.
    pub(crate) fn of(self, dir: Oid, name: &[u8]) -> Option<Told> {
        self.is_of(dir, name).then_some(self.told)
    }

    fn is_of(&self, dir: Oid, name: &[u8]) -> bool {
        self.dir == dir && self.name == name
    }
}

/// Where the first path has ended, for whoever looks there first.
#[derive(Debug, Default)]
pub(crate) struct FirstWalk(Mutex<Option<FirstEnd>>);

#[derive(Debug)]
struct FirstEnd {
    end: End,
    asked: Asked,
    answered: Instant,
}

impl FirstWalk {
    /// A walk has ended there, as was answered now.
    pub(crate) fn keep(&self, end: Option<End>, asked: Asked, answered: Instant) {
        *self.0.lock() = end.map(|end| FirstEnd { end, asked, answered });
    }

    /// The regular file to which it has led, if it is one.
    pub(crate) fn file(&self) -> Option<NameIn> {
        let first = self.0.lock();
        let End { dir, name, told } = &first.as_ref()?.end;
        match told {
            Told::There(found, _) if found.entry.kind == FileKind::Regular => {
                Some((*dir, name.as_slice().into()))
            }
            _ => None,
        }
    }

    /// Where it has ended, and when that was asked for, for the first one that looks at any name: if it is this name, and at
    /// once.
    pub(crate) fn take(&self, dir: Oid, name: &[u8], now: Instant) -> Option<(End, Asked)> {
        let FirstEnd { end, asked, answered } = self.0.lock().take()?;
        let is_at_once = now.saturating_duration_since(answered) < USED_WITHIN;
        (is_at_once && end.is_of(dir, name)).then_some((end, asked))
    }
}

/// The names of a path that one request asks for, of those that follow each other in it.
pub(crate) fn names_at_once<'n>(names: impl Iterator<Item = &'n [u8]>) -> Vec<u8> {
    let is_plain = |name: &&[u8]| !matches!(*name, b"." | b"..") && name.len() <= NAME_BYTES_MAX;
    let names: Vec<_> = names.take_while(is_plain).take(WALK_NAMES_MAX).collect();
    names.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_for_up_to_the_first_that_only_a_walk_understands() {
        let at_once = |path: &'static [u8]| names_at_once(path.split(|byte| *byte == b'/'));
        assert_eq!(at_once(b"a/b/c"), b"a/b/c");
        assert_eq!(at_once(b"a/../b"), b"a");
        assert_eq!(at_once(b"./b"), b"");
        let many = [&b"x"[..]; WALK_NAMES_MAX + 1];
        assert_eq!(names_at_once(many.into_iter()).len(), 2 * WALK_NAMES_MAX - 1);
        let long = [b'x'; NAME_BYTES_MAX + 1];
        assert_eq!(names_at_once([&b"a"[..], &long].into_iter()), b"a");
    }
}
