//! Whether the path that a program opens a file by is the file's own: absolute, without symlinks and dots. Owns
//! which directories are known to have such names. The kernel tells the path of any open file (`/proc/self/fd`),
//! which costs more than all else that is recorded of an open; a compiler opens a hundred files of few
//! directories. That of the first file in each shows whether the directory's name is its own; of the others
//! only the last part can be a symlink.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Stat};

/// Numbers that stand for the names of directories.
static KNOWN: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

/// The directory of an absolute path, as it is written; none in the root.
fn directory(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte == b'/')?;
    (path[0] == b'/' && end > 0).then(|| &path[..end])
}

/// A number that other names do not have (FNV-1a of 64 bits), and where it is kept.
fn number(directory: &[u8]) -> (u64, &'static AtomicU64) {
    let number = directory.iter().fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
        (number ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (number, &KNOWN[(number >> 32) as usize % KNOWN.len()])
}

/// Whether the path is known to be the own one of the file, which is open.
pub(super) fn is_true(path: &CStr, found: &Stat) -> bool {
    let Some(directory) = directory(path.to_bytes()) else { return false };
    let (number, place) = number(directory);
    if place.load(Ordering::Relaxed) != number {
        return false;
    }
    // A symlink is another file than the one that it leads to.
    let there = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    there.is_ok_and(|there| (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino))
}

/// This is a file's own path.
pub(super) fn learn(path: &[u8]) {
    if let Some(directory) = directory(path) {
        let (number, place) = number(directory);
        place.store(number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn a_directory_is_what_stands_before_the_last_slash() {
        assert_eq!(directory(b"/data/in"), Some(&b"/data"[..]));
        assert_eq!(directory(b"/data/sub/in"), Some(&b"/data/sub"[..]));
        for path in [&b"/in"[..], b"in", b"", b"data/in"] {
            assert_eq!(directory(path), None);
        }
    }

    #[test]
    fn a_name_is_true_in_a_known_directory_unless_it_is_a_symlink() {
        let place = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(place.path()).unwrap();
        let path = |name: &str| CString::new(dir.join(name).to_str().unwrap()).unwrap();
        std::fs::write(dir.join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        let found = rustix::fs::stat(dir.join("file")).unwrap();
        // Nobody has opened anything by this name of the directory.
        assert!(!is_true(&path("./file"), &found));
        learn(path("other").to_bytes());
        assert!(is_true(&path("file"), &found));
        assert!(!is_true(&path("link"), &found));
        assert!(!is_true(&path("missing"), &found));
        std::fs::create_dir(dir.join("sub")).unwrap();
        assert!(!is_true(&path("sub/../file"), &found), "another name of the directory");
        assert!(!is_true(c"file", &found));
    }
}
