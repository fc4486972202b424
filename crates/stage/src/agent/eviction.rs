//! Making room in a full cache. Owns what of the tree may be dropped: files that have come, that no program has
//! changed, and that nobody has open. They come again when they are asked for.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::agent::tree::Tree;
use crate::message::Place;
use crate::sys::lease;

/// So much is dropped at a time, in bytes.
const ROOM_BYTES: u64 = 8 << 20;

/// Does something that takes room, dropping files for it one after the other as long as there are any.
pub(crate) fn with_room<T>(tree: &Tree, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match work() {
            Err(error) if is_full(&error) => {
                if !drop_some(tree) {
                    return Err(full());
                }
            }
            done => return done,
        }
    }
}

/// That there is no room, and none can be made.
pub(crate) fn full() -> io::Error {
    let why = "the cache is full and nothing in it can be dropped; name a directory with more room as \
               the cache";
    io::Error::new(io::ErrorKind::StorageFull, why)
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
        || matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Drops files that may go, those first that were not asked for for longest, until there is some room; false if
/// there is none.
fn drop_some(tree: &Tree) -> bool {
    let mut dropped_bytes = 0;
    for place in tree.staged_by_age() {
        if dropped_bytes >= ROOM_BYTES {
            break;
        }
        match drop_unused(tree, &place) {
            Ok(Some(bytes)) => {
                tracing::info!("dropped {} to make room", tree.path_of(&place).display());
                // What takes no bytes takes an inode.
                dropped_bytes += bytes.max(1);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("cannot drop {}: {error}", tree.path_of(&place).display());
            }
        }
    }
    dropped_bytes > 0
}

/// Drops a file if nobody uses it; its length in bytes.
fn drop_unused(tree: &Tree, place: &Place) -> io::Result<Option<u64>> {
    let (list, path) = (tree.list_of(place), tree.path_of(place));
    if !tree.is_as_it_came(place) || !lease::is_unused(&File::open(&path)?) {
        return Ok(None);
    }
    let bytes = fs::symlink_metadata(&path)?.len();
    // Its name goes also where directories are shown: it would keep the bytes.
    if same_file(&list, &path) {
        fs::remove_file(&list)?;
    }
    fs::remove_file(&path)?;
    tree.forget_staged(place);
    Ok(Some(bytes))
}

fn same_file(one: &Path, other: &Path) -> bool {
    let key = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((key(one), key(other)), (Ok(one), Ok(other)) if one == other)
}
