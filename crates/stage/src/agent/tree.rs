//! A node's directories. Owns how what has come gets its name: under another one until all of it is there,
//! then in the tree, and never over anything that a program has put there meanwhile. It knows which names
//! programs have removed, below which nothing of the source is seen any more.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use crate::agent::partial::Partial;
use crate::message::Place;
use crate::source;
use crate::stamp::Stamp;

/// Files that have been looked at and have not come, at most; each is an inode of the node.
const FORESEEN_MAX: usize = 64 * 1024;

/// The directories of one agent.
pub(crate) struct Tree {
    root: PathBuf,
    next_name: AtomicU64,
    /// What programs have removed or replaced: the source is not seen at these places and below.
    hidden: RwLock<BTreeSet<Place>>,
    /// Empty files that will be those of a place when it comes, with their inode numbers; without the file
    /// while it comes.
    foreseen: Mutex<HashMap<Place, (Option<PathBuf>, u64)>>,
    /// What programs change or move: nothing of it is dropped.
    pinned: RwLock<BTreeSet<Place>>,
    /// What has come from the source, as it came.
    staged: Mutex<HashMap<Place, Staged>>,
    asked: AtomicU64,
}

/// A file that has come.
#[derive(Clone, Copy)]
struct Staged {
    stamp: Stamp,
    /// When it was last asked for, in requests.
    asked: u64,
}

impl Tree {
    /// Makes the directories of a node below `root`. A tree that is there already stays as it is.
    pub(crate) fn create(root: PathBuf, maps: usize) -> io::Result<Self> {
        for old in ["lists", "partial"].map(|name| root.join(name)) {
            match fs::remove_dir_all(&old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(&root)?;
        for map in 0..maps {
            private.create(root.join("tree").join(map.to_string()))?;
            private.create(root.join("lists").join(map.to_string()))?;
        }
        private.create(root.join("partial"))?;
        Ok(Self {
            root,
            next_name: AtomicU64::new(0),
            hidden: RwLock::default(),
            foreseen: Mutex::default(),
            pinned: RwLock::default(),
            staged: Mutex::default(),
            asked: AtomicU64::new(0),
        })
    }

    /// Removes all of it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        make_removable(&self.root);
        fs::remove_dir_all(&self.root)?;
        match self.root.parent().map(fs::remove_dir) {
            // Another node of the job has its directory beside this one.
            Some(Err(error)) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// How much the file system of the cache holds, in bytes.
    pub(crate) fn capacity(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    /// Where a place of the source stands on the node.
    pub(crate) fn path_of(&self, place: &Place) -> PathBuf {
        self.below("tree", place)
    }

    /// Where the directory stands that shows all names of a place.
    pub(crate) fn list_of(&self, place: &Place) -> PathBuf {
        self.below("lists", place)
    }

    fn below(&self, what: &str, place: &Place) -> PathBuf {
        let base = self.root.join(what).join(place.map.to_string());
        if place.path.is_empty() { base } else { base.join(OsStr::from_bytes(&place.path)) }
    }

    /// What stands at a place on the node; a symlink is not followed.
    pub(crate) fn look(&self, place: &Place) -> io::Result<Option<Attributes>> {
        attributes_at(&self.path_of(place))
    }

    /// Whether a program has removed what the source has at a place.
    pub(crate) fn is_hidden(&self, place: &Place) -> bool {
        let hidden = self.hidden.read();
        !hidden.is_empty() && ancestors(place).any(|above| hidden.contains(&above))
    }

    /// The places of a map that programs have removed, but those below others.
    pub(crate) fn hidden_in(&self, map: u16) -> Vec<Place> {
        let hidden = self.hidden.read();
        let is_topmost = |place: &&Place| {
            place.map == map && !ancestors(place).skip(1).any(|above| hidden.contains(&above))
        };
        hidden.iter().filter(is_topmost).cloned().collect()
    }

    /// The state of what stands at a place; none if nothing does.
    pub(crate) fn stamp(&self, place: &Place) -> Option<Stamp> {
        fs::symlink_metadata(self.path_of(place)).ok().map(|stands| Stamp::of(&stands))
    }

    /// The source is not seen at this place any more.
    pub(crate) fn hide(&self, place: &Place) {
        self.hidden.write().insert(place.clone());
    }

    /// A path outside the tree that nothing stands at.
    pub(crate) fn new_name(&self) -> PathBuf {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        self.root.join("partial").join(number.to_string())
    }

    /// A new file outside the tree.
    pub(crate) fn partial(&self) -> io::Result<Partial> {
        let path = self.new_name();
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Partial::new(path, file))
    }

    /// The inode number that the file of a place will have once it has come: a program that looks at a file,
    /// opens it and looks again (as cp does) takes it for another one if that changes. `None` if there are
    /// too many.
    pub(crate) fn foresee(&self, place: &Place) -> io::Result<Option<u64>> {
        let mut foreseen = self.foreseen.lock();
        if let Some((_, inode)) = foreseen.get(place) {
            return Ok(Some(*inode));
        }
        if foreseen.len() >= FORESEEN_MAX {
            return Ok(None);
        }
        let path = self.new_name();
        let inode = File::create_new(&path)?.metadata()?.ino();
        foreseen.insert(place.clone(), (Some(path), inode));
        Ok(Some(inode))
    }

    /// A new file outside the tree for what comes to a place.
    pub(crate) fn partial_of(&self, place: &Place) -> io::Result<Partial> {
        let foreseen = self.foreseen.lock().get_mut(place).and_then(|(path, _)| path.take());
        let partial = match foreseen {
            None => self.partial()?,
            Some(path) => {
                let file = File::options().write(true).open(&path)?;
                Partial::new(path, file)
            }
        };
        let inode = partial.inode()?;
        let mut foreseen = self.foreseen.lock();
        if foreseen.len() < FORESEEN_MAX || foreseen.contains_key(place) {
            foreseen.insert(place.clone(), (None, inode));
        }
        Ok(partial)
    }

    /// Gives a whole file its name, under which nobody writes to it any more. False if something stands there already, or the name is gone.
    pub(crate) fn publish(
        &self,
        partial: &mut Partial,
        place: &Place,
        attributes: &Attributes,
    ) -> io::Result<bool> {
        if self.is_hidden(place) {
            return Ok(false);
        }
        let path = self.path_of(place);
        let file = partial.file.take().ok_or(io::ErrorKind::NotFound)?;
        file.set_times(FileTimes::new().set_modified(source::system_time(attributes.mtime)))?;
        file.set_permissions(Permissions::from_mode(attributes.mode & 0o777))?;
        let stamp = Stamp::of(&file.metadata()?);
        drop(file);
        let named = match rename_new(&partial.path, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_parents(place)?;
                rename_new(&partial.path, &path)
            }
            named => named,
        };
        match named {
            Ok(()) => {
                partial.is_named = true;
                self.foreseen.lock().remove(place);
                let asked = self.asked.fetch_add(1, Ordering::Relaxed);
                self.staged.lock().insert(place.clone(), Staged { stamp, asked });
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Somebody has asked for a file that is here.
    pub(crate) fn asked_for(&self, place: &Place) {
        if let Some(staged) = self.staged.lock().get_mut(place) {
            staged.asked = self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A program is about to change what stands at a place, or to move it with all that is below: it must
    /// not be dropped.
    pub(crate) fn pin(&self, place: &Place) {
        self.pinned.write().insert(place.clone());
    }

    /// The files that have come and may go again, those first that were not asked for for longest.
    pub(crate) fn staged_by_age(&self) -> Vec<Place> {
        let (staged, pinned) = (self.staged.lock(), self.pinned.read());
        let may_go = |(place, _): &(&Place, &Staged)| {
            pinned.is_empty() || !ancestors(place).any(|above| pinned.contains(&above))
        };
        let mut places: Vec<_> = staged
            .iter()
            .filter(may_go)
            .map(|(place, staged)| (staged.asked, place.clone()))
            .collect();
        places.sort_unstable();
        places.into_iter().map(|(_, place)| place).collect()
    }

    /// Whether what stands at a place is a file that has come, and that nobody has changed.
    pub(crate) fn is_as_it_came(&self, place: &Place) -> bool {
        let Some(staged) = self.staged.lock().get(place).copied() else { return false };
        let stands = fs::symlink_metadata(self.path_of(place));
        stands.is_ok_and(|stands| Stamp::of(&stands) == staged.stamp)
    }

    /// A file that had come is not here any more.
    pub(crate) fn forget_staged(&self, place: &Place) {
        self.staged.lock().remove(place);
    }

    /// Makes a directory of the source in the tree, and those above it, as far as they are not there.
    pub(crate) fn make_dir(&self, place: &Place) -> io::Result<()> {
        fs::create_dir_all(self.path_of(place))
    }

    /// Gives a directory of the tree what it has at home.
    pub(crate) fn set_attributes(&self, place: &Place, attributes: &Attributes) -> io::Result<()> {
        let directory = File::open(self.path_of(place))?;
        directory.set_permissions(Permissions::from_mode(attributes.mode & 0o777))?;
        let mtime = source::system_time(attributes.mtime);
        directory.set_times(FileTimes::new().set_modified(mtime))
    }

    /// Makes a symlink of the source in the tree.
    pub(crate) fn make_link(&self, place: &Place, text: &[u8]) -> io::Result<()> {
        self.make_parents(place)?;
        symlink(OsStr::from_bytes(text), self.path_of(place))
    }

    /// Makes a pipe in the tree, in the place of one of the source that is about to be removed.
    pub(crate) fn make_pipe(&self, place: &Place) -> io::Result<()> {
        self.make_parents(place)?;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::mknodat(CWD, self.path_of(place), FileType::Fifo, mode, 0)?)
    }

    /// Makes the directories above a place, as far as they are not there.
    pub(crate) fn make_parents(&self, place: &Place) -> io::Result<()> {
        match self.path_of(place).parent() {
            Some(parent) => fs::create_dir_all(parent),
            None => Ok(()),
        }
    }
}

/// Programs may have made directories in which their owner may remove nothing.
fn make_removable(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // What cannot be changed is reported by the removal.
            let _ = fs::set_permissions(entry.path(), Permissions::from_mode(0o700));
            make_removable(&entry.path());
        }
    }
}

/// A place and all above it, up to the map's own directory.
pub(crate) fn ancestors(place: &Place) -> impl Iterator<Item = Place> {
    let mut next = Some(place.clone());
    std::iter::from_fn(move || {
        let this = next.take()?;
        if !this.path.is_empty() {
            let slash = this.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            next = Some(Place { map: this.map, path: this.path[..slash].to_vec() });
        }
        Some(this)
    })
}

/// Renames where nothing stands yet.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system of a node has it; a link never takes a name that is in use either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

/// Attributes of what stands at a path of the node; `None` if nothing does.
pub(crate) fn attributes_at(path: &Path) -> io::Result<Option<Attributes>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                _ => Err(error),
            };
        }
    };
    let kind = source::kind_of(metadata.mode());
    let link = match kind {
        FileKind::Symlink => fs::read_link(path)?.into_os_string().into_vec(),
        _ => Vec::new(),
    };
    Ok(Some(Attributes {
        kind,
        mode: metadata.mode() & 0o777,
        size: metadata.len(),
        mtime: Timestamp { secs: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 },
        link,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::lease;

    #[test]
    fn what_has_its_name_is_open_for_writing_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::create(root.path().to_owned(), 1).unwrap();
        let place = Place { map: 0, path: b"program".to_vec() };
        for foreseen in [false, true] {
            if foreseen {
                fs::remove_file(tree.path_of(&place)).unwrap();
                tree.foresee(&place).unwrap();
            }
            let mut partial = tree.partial_of(&place).unwrap();
            let mtime = Timestamp { secs: 1, nanos: 0 };
            let (kind, mode, link) = (FileKind::Regular, 0o500, Vec::new());
            let attributes = Attributes { kind, mode, size: 3, mtime, link };
            let reading = partial.reading().unwrap();
            partial.write_all_at(b"abc", 0).unwrap();
            assert!(lease::is_written(&reading));
            assert!(tree.publish(&mut partial, &place, &attributes).unwrap());
            assert!(!lease::is_written(&File::open(tree.path_of(&place)).unwrap()));
            assert!(tree.is_as_it_came(&place));
        }
    }
}
