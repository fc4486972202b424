//! Names that this process removes or moves by a request that is waited for, in directories all of whose names it
//! has leased. Owns what is known of the names afterwards, so that the lease need not be given back: as long as
//! nobody has answered nothing is known of them, and what may have got where others find it is newborn no more.

use std::sync::atomic::Ordering;

use azekura_client::LeasedNames;
use azekura_proto::Oid;
use azekura_proto::attr::FileKind;

use super::{Newborns, State, There};

/// A name of a directory.
type Place<'a> = (Oid, &'a [u8]);

/// What is about to happen to a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Going<'a> {
    /// It is removed, and leads to no directory.
    Unlinked,
    /// It is removed, and leads to a directory.
    Removed,
    /// It is given to another place, in the place of what may be there.
    Moved(Place<'a>),
}

/// A change of names that has been asked for.
#[must_use = "what has come of it is to be told"]
#[derive(Debug)]
pub(crate) struct Move<'a> {
    generation: u64,
    from: Place<'a>,
    going: Going<'a>,
    /// What stood there, where all names of the directory are known.
    moved: Option<There>,
    replaced: Option<Option<There>>,
}

impl<'a> Move<'a> {
    /// The place that it is given to.
    pub(crate) fn to(&self) -> Option<Place<'a>> {
        match self.going {
            Going::Moved(to) => Some(to),
            Going::Unlinked | Going::Removed => None,
        }
    }
}

impl State {
    fn kind(&self, there: There) -> Option<FileKind> {
        match there {
            There::Newborn(oid) => Some(self.objects.get(&oid)?.attr.kind),
            There::Entry(entry) => Some(entry.kind),
            There::Unclear => None,
        }
    }

    /// What stands under a name; `None` if not all names of the directory are known.
    fn standing(&self, (dir, name): Place<'_>) -> Option<Option<There>> {
        Some(self.dirs.get(&dir)?.names.get(name).copied())
    }

    fn put(&mut self, (dir, name): Place<'_>, there: Option<There>) {
        let Some(known) = self.dirs.get_mut(&dir) else { return };
        match there {
            Some(there) => known.names.insert(name.into(), there),
            None => known.names.remove(name),
        };
    }

    /// Nothing is known any more of an object that has lost its name.
    fn forget(&mut self, there: There) {
        let oid = match there {
            There::Newborn(oid) => oid,
            There::Entry(entry) => entry.oid,
            There::Unclear => return,
        };
        self.objects.remove(&oid);
        self.contents.remove(&oid);
        self.dirs.remove(&oid);
    }
}

impl There {
    fn oid(self) -> Option<Oid> {
        match self {
            Self::Newborn(oid) => Some(oid),
            Self::Entry(entry) => Some(entry.oid),
            Self::Unclear => None,
        }
    }
}

impl Newborns {
    /// A name is about to go. `None` if what is known of names does not go on being so: then everything is to be
    /// given back first.
    pub(crate) fn begin_move<'a>(
        &self,
        generation: u64,
        from: Place<'a>,
        going: Going<'a>,
    ) -> Option<Move<'a>> {
        let mut state = self.state(generation);
        let standing = state.standing(from);
        let moved = standing.flatten();
        let kind = moved.and_then(|there| state.kind(there));
        let is_newborn = matches!(moved, Some(There::Newborn(_)));
        let (may_be_kept, replaced) = match going {
            Going::Unlinked => (standing.is_none() || moved.is_some() && kind.is_some(), None),
            // Which directory goes has to be known.
            Going::Removed => (kind == Some(FileKind::Directory), None),
            Going::Moved(to) => {
                let replaced = state.standing(to);
                let is_clear = |there: There| state.kind(there).is_some();
                // Below a directory that moves other leases would count; and others may find what moves to where
                // names are not leased.
                let may_move = if is_newborn {
                    kind != Some(FileKind::Directory) && replaced.is_some()
                } else {
                    standing.is_none() || moved.is_some_and(is_clear)
                };
                let of_directory = |there| state.kind(there) == Some(FileKind::Directory);
                let may_replace = replaced.flatten().is_none_or(|there| !of_directory(there));
                (may_move && may_replace, replaced)
            }
        };
        if !may_be_kept {
            return None;
        }
        state.put(from, Some(There::Unclear));
        if let Going::Moved(to) = going {
            state.put(to, Some(There::Unclear));
        }
        Some(Move { generation, from, going, moved, replaced })
    }

    /// It was done. `to_shard`: that of the place to which it was moved, if it was.
    pub(crate) fn end_move(&self, generation: u64, done: Move<'_>, to_shard: Option<u16>) {
        if generation == done.generation {
            let mut state = self.state(generation);
            state.end_move(done, to_shard);
            self.count.store(state.dirs.len(), Ordering::SeqCst);
        }
    }
}

impl State {
    fn end_move(&mut self, done: Move<'_>, to_shard: Option<u16>) {
        let Move { from, going, moved, replaced, .. } = done;
        let Going::Moved(to) = going else {
            self.put(from, None);
            if let Some(there) = moved {
                self.forget(there);
            }
            return;
        };
        // Between two names of one object nothing is done at all.
        let is_another = match (moved, replaced) {
            (Some(There::Newborn(_)), _) | (Some(There::Entry(_)), Some(None)) => true,
            (Some(There::Entry(entry)), Some(Some(there))) => {
                there.oid().is_some_and(|oid| oid != entry.oid)
            }
            _ => false,
        };
        if !is_another {
            return;
        }
        if let Some(there) = replaced.flatten() {
            self.forget(there);
        }
        self.put(from, None);
        self.put(to, moved);
        if let (Some(There::Newborn(oid)), Some(shard)) = (moved, to_shard) {
            self.settle_in(oid, to.0, shard);
        }
    }

    /// A newborn object that is no directory has got a name in another place.
    fn settle_in(&mut self, oid: Oid, dir: Oid, shard: u16) {
        let root: Option<LeasedNames> = self.dirs.get(&dir).map(|known| known.root.of(dir, shard));
        if let (Some(newborn), Some(root)) = (self.objects.get_mut(&oid), root) {
            (newborn.root, newborn.dir, newborn.is_exact) = (root, dir, false);
        }
    }
}
