//! The walk of a path whose engines are far away: as many of its names as an engine knows are looked up by
//! one request. Owns what such an answer leaves: steps that are known for a moment, and the one name behind
//! them that is no directory. The rules of the walk itself stand in [`super::walk`].

use azekura_proto::limits::{NAME_BYTES_MAX, WALK_NAMES_MAX};
use azekura_proto::message::typed::{Found, Walk, WalkedPath};
use azekura_proto::{FileKind, Oid};

use super::Namespace;
use crate::cache::{AskedAny, Step};
use crate::{Errno, FileSystem, Result};

/// What an engine has told of a name.
#[derive(Debug)]
pub(super) enum Told {
    Absent,
    /// And when it was asked.
    There(Found, AskedAny),
}

/// Where an engine's walk has ended: what the next step needs not ask again.
#[derive(Debug)]
pub(super) struct End {
    dir: Oid,
    name: Vec<u8>,
    told: Told,
}

impl End {
    /// What was told of a name, if it is this one.
    pub(super) fn of(self, dir: Oid, name: &[u8]) -> Option<Told> {
        self.is_of(dir, name).then_some(self.told)
    }

    /// Whether it is about this name.
    pub(super) fn is_of(&self, dir: Oid, name: &[u8]) -> bool {
        self.dir == dir && self.name == name
    }

    /// What was told.
    pub(super) fn told(&self) -> &Told {
        &self.told
    }
}

/// The names of a path that one request asks for, of those that follow each other in it.
pub(crate) fn names_at_once<'n>(names: impl Iterator<Item = &'n [u8]>) -> Vec<u8> {
    let is_plain = |name: &&[u8]| !matches!(*name, b"." | b"..") && name.len() <= NAME_BYTES_MAX;
    let names: Vec<_> = names.take_while(is_plain).take(WALK_NAMES_MAX).collect();
    names.join(&b'/')
}

impl FileSystem {
    /// Keeps what an engine has told of the names of a path from a directory on: the steps, as far as they lead to
    /// directories. Gives where they end, if that is within the path or its last name.
    pub(super) fn keep_walked(
        &self,
        asked: AskedAny,
        dir: Oid,
        path: &[u8],
        walked: WalkedPath,
    ) -> Option<End> {
        let cache = &self.cache;
        let WalkedPath { dir: above, steps, is_absent } = walked;
        if let Some(attr) = above {
            cache.keep_met_dir(asked, dir, attr);
        }
        let mut names = path.split(|byte| *byte == b'/');
        let (mut at, mut end) = (dir, None);
        for (found, name) in steps.into_iter().zip(names.by_ref()) {
            let (dir, Found { entry, attr }) = (at, &found);
            if entry.kind == FileKind::Directory {
                // Whatever comes next is judged by them.
                if let Some(attr) = attr {
                    cache.keep_met_dir(asked, entry.oid, attr.clone());
                }
                cache.keep_met_step(asked, dir, name, Step::Directory(entry.oid));
                at = entry.oid;
            }
            end = Some(End { dir, name: name.to_vec(), told: Told::There(found, asked) });
        }
        if let Some(name) = names.next().filter(|_| is_absent) {
            end = Some(End { dir: at, name: name.to_vec(), told: Told::Absent });
        }
        end
    }
}

impl Namespace {
    /// Whether names are looked up together. What is on its way to the engine is not known to it.
    pub(super) fn looks_along(&self) -> bool {
        self.fs.keeps_listed() && self.fs.newborns.are_none()
    }

    /// Looks up the names of a path from a directory on; see [`FileSystem::keep_walked`].
    pub(super) fn look_along(&self, dir: Oid, path: &[u8]) -> Result<Option<End>> {
        let cache = &self.fs.cache;
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        let with_dir = self.fs.checks() && !self.caller.is_root() && cache.dir(dir).is_none();
        let asked = cache.ask_any_dir();
        let walked = self.fs.call_entry(dir, first, Walk { dir, path, with_dir })?;
        Ok(self.fs.keep_walked(asked, dir, path, walked))
    }

    /// Where the next name leads by which a walk goes on, by what its end was last time or by another one from
    /// there. `path`: the names from that one on.
    pub(super) fn step_along(
        &self,
        (dir, name): (Oid, &[u8]),
        path: &[u8],
        end: &mut Option<End>,
    ) -> Result<Step> {
        let mut told = end.take().and_then(|end| end.of(dir, name));
        if told.is_none() {
            *end = self.look_along(dir, path)?;
            if let Some(step) = self.known_step(dir, name) {
                return Ok(step);
            }
            told = end.take().and_then(|end| end.of(dir, name));
        }
        match told {
            Some(Told::There(Found { entry, .. }, asked)) => {
                let step = self.step_of(entry)?;
                self.fs.cache.keep_met_step(asked, dir, name, step.clone());
                Ok(step)
            }
            Some(Told::Absent) => Err(Errno::NOENT),
            None => self.look(dir, name),
        }
    }
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
