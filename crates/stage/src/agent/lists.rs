//! Directories that show all names: of what has come, and of what has not. Owns how they are made: files are
//! empty ones of the right length that nobody may open, whether they have come or not: a link to a file of the
//! tree would show programs that it has two names.
//! A directory is changed where it differs and never made anew, so that whoever reads it goes on reading.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura_proto::FileKind;
use azekura_proto::staging::Attributes;
use parking_lot::Mutex;
use rustix::fs::CWD;

use crate::agent::names::{Seen, errno_of, is_absent};
use crate::message::Place;

/// The directories of one node that show all names.
pub(crate) struct Lists {
    seen: Arc<Seen>,
    /// One directory is made at a time.
    making: Mutex<()>,
}

/// What is to stand at a name.
enum Shown {
    Directory,
    Symlink(Vec<u8>),
    /// An empty file of so many bytes.
    File(u64),
}

impl Lists {
    pub(crate) fn new(seen: Arc<Seen>) -> Self {
        Self { seen, making: Mutex::default() }
    }

    /// The directory that shows all names of a place; the error is a number of errno.
    pub(crate) fn make(&self, place: &Place) -> Result<PathBuf, i32> {
        let shown = self.shown(place)?;
        let directory = self.seen.tree.list_of(place);
        let _one = self.making.lock();
        self.update(&directory, &shown).map_err(|error| errno_of(&error))?;
        Ok(directory)
    }

    /// The inode number of that directory.
    pub(crate) fn inode(&self, place: &Place) -> Result<u64, i32> {
        let directory = self.seen.tree.list_of(place);
        let found = match fs::metadata(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&directory).and_then(|()| fs::metadata(&directory))
            }
            found => found,
        };
        found.map(|found| found.ino()).map_err(|error| errno_of(&error))
    }

    fn shown(&self, place: &Place) -> Result<BTreeMap<Vec<u8>, Shown>, i32> {
        let mut shown = BTreeMap::new();
        for (name, found) in self.seen.source_names(place)? {
            if let Some(there) = away(&found) {
                shown.insert(name, there);
            }
        }
        let tree = self.seen.tree.path_of(place);
        let entries = match fs::read_dir(&tree) {
            Ok(entries) => entries,
            Err(error) if is_absent(errno_of(&error)) => return Ok(shown),
            Err(error) => return Err(errno_of(&error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| errno_of(&error))?;
            match here(&entry) {
                Ok(there) => {
                    shown.insert(entry.file_name().into_vec(), there);
                }
                // It went away meanwhile.
                Err(error) if is_absent(errno_of(&error)) => {}
                Err(error) => return Err(errno_of(&error)),
            }
        }
        Ok(shown)
    }

    fn update(&self, directory: &Path, shown: &BTreeMap<Vec<u8>, Shown>) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !shown.contains_key(entry.file_name().as_bytes()) {
                remove(&entry.path())?;
            }
        }
        for (name, there) in shown {
            let path = directory.join(OsStr::from_bytes(name));
            let stands = match fs::symlink_metadata(&path) {
                Ok(stands) => Some(stands),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            if stands.as_ref().is_some_and(|stands| there.is_it(&path, stands)) {
                continue;
            }
            if stands.is_some_and(|stands| stands.is_dir() || matches!(there, Shown::Directory)) {
                remove(&path)?;
            }
            self.put(&path, there)?;
        }
        Ok(())
    }

    fn put(&self, path: &Path, there: &Shown) -> io::Result<()> {
        if matches!(there, Shown::Directory) {
            return fs::create_dir(path);
        }
        let beside = self.seen.tree.new_name();
        let made = match there {
            Shown::Directory => Ok(()),
            Shown::Symlink(text) => symlink(OsStr::from_bytes(text), &beside),
            Shown::File(bytes) => fs::File::create_new(&beside).and_then(|file| {
                file.set_len(*bytes)?;
                file.set_permissions(Permissions::from_mode(0o000))
            }),
        };
        made?;
        Ok(rustix::fs::renameat(CWD, &beside, CWD, path)?)
    }
}

impl Shown {
    /// Whether what stands at a name is right already.
    fn is_it(&self, path: &Path, stands: &fs::Metadata) -> bool {
        match self {
            Self::Directory => stands.is_dir(),
            Self::Symlink(text) => {
                fs::read_link(path).is_ok_and(|link| link.as_os_str().as_bytes() == text)
            }
            Self::File(bytes) => stands.is_file() && stands.len() == *bytes,
        }
    }
}

/// How a name of the source is shown that has not come; what is neither file, directory nor symlink has
/// no business on another host.
fn away(found: &Attributes) -> Option<Shown> {
    match found.kind {
        FileKind::Regular => Some(Shown::File(found.size)),
        FileKind::Directory => Some(Shown::Directory),
        FileKind::Symlink => Some(Shown::Symlink(found.link.clone())),
        _ => None,
    }
}

/// How a name of the tree is shown.
fn here(entry: &fs::DirEntry) -> io::Result<Shown> {
    let kind = entry.file_type()?;
    Ok(if kind.is_dir() {
        Shown::Directory
    } else if kind.is_symlink() {
        Shown::Symlink(fs::read_link(entry.path())?.into_os_string().into_vec())
    } else {
        Shown::File(entry.metadata()?.len())
    })
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}
