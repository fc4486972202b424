//! The way to a directory: where each name of its path leads, as far as that is believed. Owns how it is handed on from one
//! client to another one of the same host. It asks nobody.

use std::time::Instant;

use azekura_proto::Oid;

use crate::FileSystem;

/// Where the names of a path lead, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BelievedWay {
    /// What each of them leads to.
    pub dirs: Vec<Oid>,
    /// The first time at which one of them was asked for.
    pub asked: Instant,
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

impl FileSystem {
    /// Where the names of a path from the root on lead, if it is believed of all of them that they lead to directories. It
    /// never is of dots and symlinks. `None` also where the pool is not far: to ask costs next to nothing there.
    pub fn believed_way(&self, path: &[u8]) -> Option<BelievedWay> {
        if !self.lists_far() {
            return None;
        }
        let (mut at, mut asked) = (self.root(), self.now());
        let mut dirs = Vec::new();
        for name in names(path) {
            let (below, since) = self.cache.directory(at, name)?;
            (at, asked) = (below, asked.min(since));
            dirs.push(below);
        }
        Some(BelievedWay { dirs, asked })
    }

    /// Believes of a path what another client has believed, for as long as that would have. To be called before anything is
    /// changed by this one.
    pub fn take_over_way(&self, path: &[u8], way: &BelievedWay) {
        let mut at = self.root();
        for (name, below) in names(path).zip(&way.dirs) {
            self.cache.keep_handed_on(way.asked, (at, name), *below);
            at = *below;
        }
    }

    /// The absolute path of a far directory without repeated slashes, if it is believed that this one from the root on leads
    /// there. Nobody needs to be allowed to go there to know that.
    pub fn believed_path(&self, path: &[u8], to: Oid) -> Option<Vec<u8>> {
        let last = self.believed_way(path)?.dirs.last().copied();
        let canonical = || names(path).flat_map(|name| [b"/", name].concat()).collect();
        (last == Some(to)).then(canonical)
    }
}
