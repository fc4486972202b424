//! Finding what is to go home of a node: what is in its tree and did not come from there as it is, and what
//! programs have removed. Owns the order: a directory comes before what is in it, removed names the other way
//! round. Looks at names and attributes only, one directory at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use azekura_proto::FileKind;
use azekura_proto::staging::{Attributes, MapKind};
use parking_lot::Mutex;

use crate::agent::names::{Seen, errno_of, split};
use crate::agent::tree::ancestors;
use crate::message::{Home, Leaving, PLACE_BYTES, Place, What};
use crate::source::Source;
use crate::sys::lease;

/// A page, in bytes.
const PAGE_BYTES: usize = 128 * 1024;

/// What has gone home of a node.
pub(crate) type AtHome = Mutex<BTreeMap<Place, Home>>;

/// A way through the trees of a node.
pub(crate) struct Walk {
    seen: Arc<Seen>,
    trees: Vec<Arc<dyn Source>>,
    home: Arc<AtHome>,
    /// Directories that are still to be looked at.
    left: Vec<Place>,
    found: VecDeque<Leaving>,
    /// Files that programs have open for writing are left out.
    skips_written: bool,
}

impl Walk {
    fn over(seen: Arc<Seen>, trees: Vec<Arc<dyn Source>>, home: Arc<AtHome>) -> Self {
        let (left, found) = (Vec::new(), VecDeque::new());
        Self { seen, trees, home, left, found, skips_written: false }
    }

    /// Leaves out files that programs have open for writing: each will be closed.
    pub(crate) fn without_written(mut self) -> Self {
        let tree = &self.seen.tree;
        let is_open = |leaving: &Leaving| {
            matches!(leaving.what, What::File { .. })
                && is_being_written(&tree.path_of(&leaving.place))
        };
        self.found.retain(|leaving| !is_open(leaving));
        self.skips_written = true;
        self
    }

    pub(crate) fn new(seen: Arc<Seen>, trees: Vec<Arc<dyn Source>>, home: Arc<AtHome>) -> Self {
        let mut walk = Self::over(seen, trees, home);
        let maps: Vec<_> = walk.seen.maps.iter().map(|map| map.kind).collect();
        for (map, kind) in maps.into_iter().enumerate() {
            let map = map as u16;
            if kind == MapKind::ReadWrite {
                for place in walk.seen.tree.hidden_in(map) {
                    walk.find_removed(place);
                }
            }
            if kind != MapKind::ReadOnly {
                walk.left.push(Place { map, path: Vec::new() });
            }
        }
        walk.find_removed_since();
        walk
    }

    /// Of these places alone, with the directories above them.
    pub(crate) fn of(
        seen: Arc<Seen>,
        trees: Vec<Arc<dyn Source>>,
        home: Arc<AtHome>,
        places: BTreeSet<Place>,
    ) -> Self {
        let mut walk = Self::over(seen, trees, home);
        let above = places.iter().flat_map(|place| ancestors(place).skip(1));
        let above = above.filter(|above| !above.path.is_empty()).collect::<BTreeSet<_>>();
        for place in above.into_iter().chain(places) {
            match walk.seen.tree.look(&place) {
                Ok(Some(attributes)) => walk.look_at(place, attributes),
                Ok(None) => walk.find_removed_one(place),
                Err(error) => {
                    walk.find(place, What::Unreadable { errno: errno_of(&error) }, false);
                }
            }
        }
        // What is below directories was not asked for.
        walk.left.clear();
        walk
    }

    fn find_removed_one(&mut self, place: Place) {
        let known = self.home.lock().get(&place).copied();
        if known.is_some_and(|home| home != Home::Nothing) {
            self.find(place, What::Removed { is_replaced: false }, false);
        }
    }

    /// The next page, and whether it is the last.
    pub(crate) fn page(&mut self) -> (Vec<Leaving>, bool) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        loop {
            while self.found.is_empty()
                && let Some(directory) = self.left.pop()
            {
                self.look_into(&directory);
            }
            let Some(next) = self.found.front() else { return (page, true) };
            bytes += bytes_of(next);
            if bytes > PAGE_BYTES && !page.is_empty() {
                return (page, false);
            }
            page.extend(self.found.pop_front());
        }
    }

    fn look_into(&mut self, directory: &Place) {
        let entries = match self.trees[usize::from(directory.map)].list(&directory.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                let what = What::Unreadable { errno: errno_of(&error) };
                return self.find(directory.clone(), what, false);
            }
        };
        for (name, attributes) in entries {
            let place = directory.join(&name);
            self.look_at(place, attributes);
        }
    }

    fn look_at(&mut self, place: Place, attributes: Attributes) {
        let known = self.home.lock().get(&place).copied();
        let version = || self.seen.tree.stamp(&place).map_or(Home::Some, Home::Version);
        match attributes.kind {
            FileKind::Directory => {
                let what = What::Directory { mode: attributes.mode, mtime: attributes.mtime };
                let is_home = matches!(known, Some(Home::Some | Home::Version(_)));
                self.left.push(place.clone());
                self.find(place, what, is_home);
            }
            FileKind::Regular if self.seen.tree.is_as_it_came(&place) => {}
            FileKind::Regular
                if self.skips_written && is_being_written(&self.seen.tree.path_of(&place)) => {}
            FileKind::Regular => {
                let stamp = self.seen.tree.stamp(&place);
                let inode = stamp.map_or(0, |stamp| stamp.inode());
                let home =
                    stamp.filter(|stamp| !stamp.is_fresh()).map_or(Home::Some, Home::Version);
                let is_home = matches!(known, Some(Home::Version(_))) && known == Some(home);
                self.find(place, What::File { bytes: attributes.size, inode, home }, is_home);
            }
            FileKind::Symlink => {
                let home = version();
                let is_home = matches!(home, Home::Version(_)) && known == Some(home);
                self.find(place, What::Link { text: attributes.link, home }, is_home);
            }
            kind => self.find(place, What::Odd { kind }, false),
        }
    }

    fn find(&mut self, place: Place, what: What, is_home: bool) {
        self.found.push_back(Leaving { place, what, is_home });
    }

    /// What the source has at a removed place and below, and the tree has not.
    fn find_removed(&mut self, place: Place) {
        let (above, name) = split(&place);
        let Ok(listing) = self.seen.listings.get(&above) else { return };
        let Some(found) = listing.get(name) else { return };
        let mut removed = Vec::new();
        let mut left = vec![(place, found.kind, false)];
        while let Some((place, kind, is_above_replaced)) = left.pop() {
            let here = self.seen.tree.look(&place).ok().flatten().map(|here| here.kind);
            let is_directory = kind == FileKind::Directory;
            let is_kept = here.is_some_and(|here| (here == FileKind::Directory) == is_directory);
            let is_replaced = is_above_replaced || here.is_some() && !is_kept;
            if is_directory && let Ok(listing) = self.seen.listings.get(&place) {
                let below = listing.iter().map(|(name, found)| (place.join(name), found.kind));
                left.extend(below.map(|(place, kind)| (place, kind, is_replaced)));
            }
            // What the source had was removed at home, or replaced there.
            let is_done = self.home.lock().contains_key(&place);
            if !is_kept && !is_done {
                let what = What::Removed { is_replaced };
                removed.push(Leaving { place, what, is_home: false });
            }
        }
        self.found.extend(removed.into_iter().rev());
    }

    /// What has gone home and stands here no more. What is below comes first.
    fn find_removed_since(&mut self) {
        let home = self.home.lock();
        for (place, state) in home.iter().rev() {
            let is_gone = || matches!(self.seen.tree.look(place), Ok(None));
            if *state != Home::Nothing && is_gone() {
                let what = What::Removed { is_replaced: false };
                let leaving = Leaving { place: place.clone(), what, is_home: false };
                self.found.push_back(leaving);
            }
        }
    }
}

/// The trees of a node as sources of what goes home.
pub(crate) fn open_trees(roots: &[impl AsRef<Path>]) -> io::Result<Vec<Arc<dyn Source>>> {
    let open = |root: &Path| crate::source::Directory::open(root);
    roots.iter().map(|root| Ok(Arc::new(open(root.as_ref())?) as Arc<dyn Source>)).collect()
}

/// Whether a program has a file open for writing: it will be closed once more.
fn is_being_written(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| lease::is_written(&file))
}

/// About how long an entry is in a message.
fn bytes_of(leaving: &Leaving) -> usize {
    let text = match &leaving.what {
        What::Link { text, .. } => text.len(),
        _ => 0,
    };
    leaving.place.path.len() + text + PLACE_BYTES
}
