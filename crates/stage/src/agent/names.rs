//! What a program sees at a place on this node: what stands in the tree, and behind it the source, as far as
//! the map shows it and no program has removed it.

use std::sync::Arc;

use azekura_proto::staging::{Attributes, MapKind};
use azekura_proto::{FileKind, Timestamp};
use rustix::io::Errno;

use crate::agent::listings::Listings;
use crate::agent::tree::Tree;
use crate::job::MapDescription;
use crate::message::{Entry, Place};
use crate::resolve::Names;

/// The names of a node.
pub(crate) struct Seen {
    pub(crate) maps: Vec<MapDescription>,
    pub(crate) dirs: Vec<Vec<u8>>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) listings: Listings,
}

impl Seen {
    pub(crate) fn new(maps: Vec<MapDescription>, tree: Arc<Tree>, listings: Listings) -> Self {
        let dirs = maps.iter().map(|map| map.dir.clone()).collect();
        Self { maps, dirs, tree, listings }
    }

    pub(crate) fn kind(&self, place: &Place) -> MapKind {
        self.maps[usize::from(place.map)].kind
    }

    /// What the source has at a place, as far as it is to be seen.
    pub(crate) fn in_source(&self, place: &Place) -> Result<Option<Attributes>, i32> {
        if place.path.is_empty() {
            return Ok(Some(root()));
        }
        if self.tree.is_hidden(place) {
            return Ok(None);
        }
        let (above, name) = split(place);
        match self.listings.get(&above) {
            Ok(listing) => Ok(listing.get(name).filter(|found| self.shows(place, found)).cloned()),
            Err(errno) if is_absent(errno) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// All names that the source has in a directory, as far as they are to be seen.
    pub(crate) fn source_names(&self, place: &Place) -> Result<Vec<Entry>, i32> {
        if self.tree.is_hidden(place) {
            return Ok(Vec::new());
        }
        match self.listings.get(place) {
            Ok(listing) => {
                let is_seen = |(name, found): &(&Vec<u8>, &Attributes)| {
                    let child = place.join(name);
                    self.shows(&child, found) && !self.tree.is_hidden(&child)
                };
                let seen = listing.iter().filter(is_seen);
                Ok(seen.map(|(name, found)| (name.clone(), found.clone())).collect())
            }
            Err(errno) if is_absent(errno) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether programs see this of the source.
    fn shows(&self, place: &Place, found: &Attributes) -> bool {
        self.kind(place) != MapKind::Out || found.kind == FileKind::Directory
    }
}

impl Names for Seen {
    fn look(&self, place: &Place) -> Result<Option<Attributes>, i32> {
        let here = self.tree.look(place).map_err(|error| errno_of(&error))?;
        if here.is_some() { Ok(here) } else { self.in_source(place) }
    }
}

/// The number of errno for an error of the node's own file system.
pub(crate) fn errno_of(error: &std::io::Error) -> i32 {
    Errno::from_io_error(error).unwrap_or(Errno::IO).raw_os_error()
}

/// Whether an error says that there is no such directory.
pub(crate) fn is_absent(errno: i32) -> bool {
    errno == Errno::NOENT.raw_os_error() || errno == Errno::NOTDIR.raw_os_error()
}

/// The directory above a place, and the last name.
pub(crate) fn split(place: &Place) -> (Place, &[u8]) {
    let (above, name) = match place.path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&place.path[..slash], &place.path[slash + 1..]),
        None => (&b""[..], &place.path[..]),
    };
    (Place { map: place.map, path: above.to_vec() }, name)
}

fn root() -> Attributes {
    let mtime = Timestamp { secs: 0, nanos: 0 };
    Attributes { kind: FileKind::Directory, mode: 0o755, size: 0, mtime, link: Vec::new() }
}
