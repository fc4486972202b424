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

/// What stands under a name.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// Not all names of the directory are known.
    Unknown,
    /// The name is not there.
    Absent,
    /// It is.
    There(There),
}

/// A change of names that has been asked for, and what stood under the names.
#[must_use = "what has come of it is to be told"]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move<'a> {
    generation: u64,
    from: Place<'a>,
    going: Going<'a>,
    moved: Standing,
    replaced: Standing,
}

impl<'a> Move<'a> {
    /// The place that it is given to.
    pub(crate) fn to(&self) -> Option<Place<'a>> {
        match self.going {
            Going::Moved(to) => Some(to),
            Going::Unlinked | Going::Removed => None,
        }
    }

    /// Whether it was a move of one object in the place of another, or of none: between two names of one object
    /// nothing is done at all.
    fn is_of_another(&self) -> bool {
        match (self.moved, self.replaced) {
            (Standing::There(There::Newborn(_)), _)
            | (Standing::There(There::Entry(_)), Standing::Absent) => true,
            (Standing::There(There::Entry(moved)), Standing::There(there)) => {
                there.oid().is_some_and(|oid| oid != moved.oid)
            }
            _ => false,
        }
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
        let moved = state.standing(from);
        let replaced = match going {
            Going::Moved(to) => state.standing(to),
            Going::Unlinked | Going::Removed => Standing::Unknown,
        };
        let begun = Move { generation, from, going, moved, replaced };
        if !state.may_keep(&begun) {
            return None;
        }
        state.put(from, Some(There::Unclear));
        if let Going::Moved(to) = going {
            state.put(to, Some(There::Unclear));
        }
        Some(begun)
    }

    /// It was done. `to_shard`: that of the place to which it was moved, if it was.
    pub(crate) fn end_move(&self, generation: u64, done: &Move<'_>, to_shard: Option<u16>) {
        if generation == done.generation {
            let mut state = self.state(generation);
            state.end_move(done, to_shard);
            self.count.store(state.dirs.len(), Ordering::SeqCst);
        }
    }
}

impl State {
    fn standing(&self, (dir, name): Place<'_>) -> Standing {
        let Some(known) = self.dirs.get(&dir) else { return Standing::Unknown };
        known.names.get(name).copied().map_or(Standing::Absent, Standing::There)
    }

    /// What kind of object stands there; `None` also if that is not known.
    fn kind(&self, standing: Standing) -> Option<FileKind> {
        match standing {
            Standing::There(There::Newborn(oid)) => Some(self.objects.get(&oid)?.attr.kind),
            Standing::There(There::Entry(entry)) => Some(entry.kind),
            Standing::There(There::Unclear) | Standing::Absent | Standing::Unknown => None,
        }
    }

    /// Whether what is known of names, but for those of a change, stays so with it.
    fn may_keep(&self, change: &Move<'_>) -> bool {
        let Move { going, moved, replaced, .. } = *change;
        let kind = self.kind(moved);
        let is_unknown = matches!(moved, Standing::Unknown);
        match going {
            Going::Unlinked => is_unknown || kind.is_some(),
            // Which directory goes has to be known.
            Going::Removed => kind == Some(FileKind::Directory),
            Going::Moved(_) => {
                // Below a new directory that moves other leases would count; and others may find what moves to
                // where names are not leased.
                let may_move = if matches!(moved, Standing::There(There::Newborn(_))) {
                    kind != Some(FileKind::Directory) && !matches!(replaced, Standing::Unknown)
                } else {
                    is_unknown || kind.is_some()
                };
                may_move && self.kind(replaced) != Some(FileKind::Directory)
            }
        }
    }

    fn put(&mut self, (dir, name): Place<'_>, there: Option<There>) {
        let Some(known) = self.dirs.get_mut(&dir) else { return };
        match there {
            Some(there) => known.names.insert(name.into(), there),
            None => known.names.remove(name),
        };
    }

    /// Nothing is known any more of an object that has lost its name.
    fn forget(&mut self, standing: Standing) {
        if let Standing::There(there) = standing
            && let Some(oid) = there.oid()
        {
            self.objects.remove(&oid);
            self.contents.remove(&oid);
            self.dirs.remove(&oid);
        }
    }

    fn end_move(&mut self, done: &Move<'_>, to_shard: Option<u16>) {
        let Going::Moved(to) = done.going else {
            self.put(done.from, None);
            return self.forget(done.moved);
        };
        let Standing::There(moved) = done.moved else { return };
        if !done.is_of_another() {
            return;
        }
        self.forget(done.replaced);
        self.put(done.from, None);
        self.put(to, Some(moved));
        if let (There::Newborn(oid), Some(shard)) = (moved, to_shard) {
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
