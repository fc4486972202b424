//! What a mount remembers of directories, so that one that is removed while somebody has it open, or
//! stands in it, goes on answering for itself: the engines have nothing of it any more, and the kernel
//! does not say who uses it. Owns the attributes as they were last told, and those of the removed ones
//! until the kernel forgets them. Never asks anybody.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use azekura_posix::{Attr, AttrUpdate, Errno, FileKind, Oid, SetTime, Timestamp, XattrMode};
use azekura_proto::placement::name_hash;
use parking_lot::Mutex;
use quick_cache::sync::Cache;

/// Directories whose attributes are remembered, and names that lead to them.
const KNOWN: usize = 16 * 1024;

/// Extended attributes of one directory.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A directory that nobody finds any more.
#[derive(Clone, Debug)]
pub(crate) struct Removed {
    pub(crate) attr: Attr,
    pub(crate) xattrs: Xattrs,
}

/// The directories of a mount.
#[derive(Debug)]
pub(crate) struct Directories {
    /// As they were last told.
    known: Cache<Oid, Attr>,
    /// By directory and name, of which a hash does: an answer for the wrong directory would have to be
    /// for one that is gone as well.
    names: Cache<u64, Oid>,
    removed: Mutex<HashMap<Oid, Removed>>,
    /// How many there are, so that nobody looks for nothing.
    removed_count: AtomicUsize,
}

fn key(dir: Oid, name: &[u8]) -> u64 {
    name_hash(&dir.to_bytes()).rotate_left(1) ^ name_hash(name)
}

impl Directories {
    pub(crate) fn new() -> Self {
        Self {
            known: Cache::new(KNOWN),
            names: Cache::new(KNOWN),
            removed: Mutex::default(),
            removed_count: AtomicUsize::new(0),
        }
    }

    /// Something has these attributes.
    pub(crate) fn note(&self, attr: &Attr) {
        if attr.kind == FileKind::Directory {
            self.known.insert(attr.oid, attr.clone());
        }
    }

    /// A name leads to something with these attributes, which have been noted.
    pub(crate) fn note_name(&self, dir: Oid, name: &[u8], attr: &Attr) {
        if attr.kind == FileKind::Directory {
            self.names.insert(key(dir, name), attr.oid);
        }
    }

    /// A name leads nowhere any more.
    pub(crate) fn forget_name(&self, dir: Oid, name: &[u8]) -> Option<Oid> {
        self.names.remove(&key(dir, name)).map(|(_, oid)| oid)
    }

    /// A name was moved, or two were exchanged: the kernel moves what it has, and looks up nothing.
    pub(crate) fn move_name(&self, from: (Oid, &[u8]), to: (Oid, &[u8]), is_exchange: bool) {
        let (moved, replaced) = (self.forget_name(from.0, from.1), self.forget_name(to.0, to.1));
        if let Some(oid) = moved {
            self.names.insert(key(to.0, to.1), oid);
        }
        if let (true, Some(oid)) = (is_exchange, replaced) {
            self.names.insert(key(from.0, from.1), oid);
        }
    }

    /// A directory has been given an extended attribute.
    pub(crate) fn note_xattr(&self, oid: Oid) {
        if let Some(attr) = self.known.get(&oid) {
            self.known.insert(oid, Attr { has_xattrs: true, ..attr });
        }
    }

    /// The directory that a name leads to, as it was last told.
    pub(crate) fn under(&self, dir: Oid, name: &[u8]) -> Option<Attr> {
        self.known.get(&self.names.get(&key(dir, name))?)
    }

    /// A directory as it was last told.
    pub(crate) fn last_known(&self, oid: Oid) -> Option<Attr> {
        self.known.get(&oid)
    }

    /// A directory is gone; the kernel may have it still.
    pub(crate) fn remove(&self, mut attr: Attr, xattrs: Xattrs) {
        attr.nlink = 0;
        attr.ctime = now();
        let mut removed = self.removed.lock();
        removed.entry(attr.oid).or_insert(Removed { attr, xattrs });
        self.removed_count.store(removed.len(), Ordering::Release);
    }

    /// The kernel does not have it any more.
    pub(crate) fn forget(&self, oid: Oid) {
        if self.removed_count.load(Ordering::Acquire) > 0 {
            let mut removed = self.removed.lock();
            removed.remove(&oid);
            self.removed_count.store(removed.len(), Ordering::Release);
        }
    }

    /// Whether this directory was removed, as far as is known.
    pub(crate) fn has_removed(&self, oid: Oid) -> bool {
        self.with_removed(oid, |_| ()).is_some()
    }

    /// Does something with a directory that was removed; `None` if this is none.
    pub(crate) fn with_removed<T>(
        &self,
        oid: Oid,
        act: impl FnOnce(&mut Removed) -> T,
    ) -> Option<T> {
        if self.removed_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.removed.lock().get_mut(&oid).map(act)
    }
}

impl Removed {
    /// Changes attributes; the kernel has checked who may.
    pub(crate) fn update(&mut self, update: &AttrUpdate) -> Result<Attr, Errno> {
        if update.size.is_some() {
            return Err(Errno::ISDIR);
        }
        let attr = &mut self.attr;
        let time = |set: SetTime| match set {
            SetTime::Now => now(),
            SetTime::At(when) => when,
        };
        attr.mode = update.mode.map_or(attr.mode, |mode| (mode & 0o7777) as u16);
        attr.uid = update.uid.unwrap_or(attr.uid);
        attr.gid = update.gid.unwrap_or(attr.gid);
        attr.atime = update.atime.map_or(attr.atime, time);
        attr.mtime = update.mtime.map_or(attr.mtime, time);
        attr.ctime = now();
        Ok(attr.clone())
    }

    /// An extended attribute.
    pub(crate) fn xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.xattrs.get(name).cloned().ok_or(Errno::NODATA)
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(
        &mut self,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        match (mode, self.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(Errno::EXIST),
            (XattrMode::Replace, false) => Err(Errno::NODATA),
            _ => {
                self.xattrs.insert(name.to_vec(), value.to_vec());
                self.attr.ctime = now();
                Ok(())
            }
        }
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&mut self, name: &[u8]) -> Result<(), Errno> {
        self.attr.ctime = now();
        self.xattrs.remove(name).map(drop).ok_or(Errno::NODATA)
    }

    /// The names of the extended attributes, each ended by a zero byte.
    pub(crate) fn xattr_names(&self) -> Vec<u8> {
        self.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect()
    }
}

/// No engine has this directory, so that the time is this machine's.
fn now() -> Timestamp {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_by_its_name_and_answers_until_it_is_forgotten() {
        let directories = Directories::new();
        let attr = azekura_testkit::attr(FileKind::Directory);
        let parent = attr.oid;
        directories.note(&attr);
        directories.note_name(parent, b"name", &attr);
        assert_eq!(directories.under(parent, b"name"), Some(attr.clone()));
        assert_eq!(directories.under(parent, b"other"), None);
        assert!(directories.with_removed(attr.oid, |_| ()).is_none());
        directories.remove(attr.clone(), Xattrs::new());
        let nlink = directories.with_removed(attr.oid, |removed| removed.attr.nlink);
        assert_eq!(nlink, Some(0));
        directories.forget(attr.oid);
        assert!(!directories.has_removed(attr.oid));
    }

    #[test]
    fn names_move_with_what_they_lead_to() {
        let directories = Directories::new();
        let attr = azekura_testkit::attr(FileKind::Directory);
        let parent = attr.oid;
        directories.note(&attr);
        directories.note_name(parent, b"a", &attr);
        directories.move_name((parent, b"a"), (parent, b"b"), false);
        assert_eq!(directories.under(parent, b"a"), None);
        assert_eq!(directories.under(parent, b"b"), Some(attr.clone()));
        directories.move_name((parent, b"c"), (parent, b"b"), true);
        assert_eq!(directories.under(parent, b"c"), Some(attr.clone()));
        // A file that takes the name hides it.
        directories.move_name((parent, b"file"), (parent, b"c"), false);
        assert_eq!(directories.under(parent, b"c"), None);
        directories.note_name(parent, b"d", &attr);
        assert_eq!(directories.forget_name(parent, b"d"), Some(attr.oid));
        assert_eq!(directories.under(parent, b"d"), None);
    }

    #[test]
    fn extended_attributes_of_a_removed_directory() {
        let attr = azekura_testkit::attr(FileKind::Directory);
        let mut removed = Removed { attr, xattrs: Xattrs::new() };
        assert_eq!(removed.set_xattr(b"a", b"1", XattrMode::Replace), Err(Errno::NODATA));
        assert_eq!(removed.set_xattr(b"a", b"1", XattrMode::Create), Ok(()));
        assert_eq!(removed.set_xattr(b"a", b"2", XattrMode::Create), Err(Errno::EXIST));
        assert_eq!(removed.set_xattr(b"b", b"2", XattrMode::Set), Ok(()));
        assert_eq!(removed.xattr_names(), b"a\0b\0");
        assert_eq!(removed.xattr(b"a").unwrap(), b"1");
        assert_eq!(removed.remove_xattr(b"a"), Ok(()));
        assert_eq!(removed.remove_xattr(b"a"), Err(Errno::NODATA));
    }
}
