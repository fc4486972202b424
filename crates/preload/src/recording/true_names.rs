//! Whether the path that a program opens a file by leads to it without symlinks and dots, so that it is the file's
//! own, from the working directory if it is relative. Owns which directories are known to have such names. The
//! kernel tells the path of any open file (`/proc/self/fd`), which costs more than all else that is recorded of
//! an open; a compiler opens a hundred files of few directories. So the kernel is asked to go the path of the
//! first file in each and follow no symlink; of the others only the last part can be one.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, IntoRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, openat2};

use crate::host;

/// Numbers that stand for the names of directories.
#[unsafe(link_section = ".data.hot")]
static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

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

/// Whether no part of the path, which has a slash before each but the first, is one that leads elsewhere.
fn is_plain(path: &[u8]) -> bool {
    let rest = path.strip_prefix(b"/").unwrap_or(path);
    rest.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Whether this path leads to the file, and no symlink in it does.
fn leads_to(path: &CStr, found: &Stat, is_directory_known: bool) -> bool {
    let there = if is_directory_known {
        // A symlink is another file than the one that it leads to.
        rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
    } else {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).and_then(|there| {
            let status = rustix::fs::fstat(there.as_fd());
            super::area::close(there.into_raw_fd());
            status
        })
    };
    there.is_ok_and(|there| (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino))
}

/// The own path of an open file, in `room`, if this name of it tells that; its length.
pub(super) fn own(name: &CStr, found: &Stat, room: &mut [u8]) -> Option<usize> {
    let text = name.to_bytes();
    if !is_plain(text) {
        return None;
    }
    let start = if text[0] == b'/' { 0 } else { working_directory(room)? };
    let end = start + text.len();
    room.get_mut(start..end)?.copy_from_slice(text);
    let known = directory(&room[..end]).map(number);
    let is_known = known.is_some_and(|(number, place)| place.load(Ordering::Relaxed) == number);
    if !leads_to(name, found, is_known) {
        return None;
    }
    if let Some((number, place)) = known {
        place.store(number, Ordering::Relaxed);
    }
    Some(end)
}

/// Writes the working directory with a slash behind it; gives where it ends.
fn working_directory(room: &mut [u8]) -> Option<usize> {
    let errno = host::errno();
    // SAFETY: as much room as is said. The C library's own may read `/proc` for a long path.
    let with_zero = unsafe { libc::syscall(libc::SYS_getcwd, room.as_mut_ptr(), room.len()) };
    host::set_errno(errno);
    let end = usize::try_from(with_zero).ok()?.checked_sub(1)?;
    // What cannot be reached from the root begins with something else.
    match room.get(..end)? {
        [b'/'] => Some(1),
        [b'/', ..] => {
            *room.get_mut(end)? = b'/';
            Some(end + 1)
        }
        _ => None,
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

    /// The own path that a name of the open file tells.
    fn own_path(name: &CStr, found: &Stat) -> Option<Vec<u8>> {
        let mut room = [0; 4096];
        let length = own(name, found, &mut room)?;
        Some(room[..length].to_vec())
    }

    #[test]
    fn a_plain_path_has_no_empty_part_and_no_dots() {
        for path in [&b"/data/in"[..], b"/in", b"in", b"sub/in", b"..in", b"/.in/..."] {
            assert!(is_plain(path), "{path:?}");
        }
        for path in
            [&b""[..], b"/", b"//in", b"sub//in", b"in/", b"./in", b"/data/./in", b"../in", b"a/.."]
        {
            assert!(!is_plain(path), "{path:?}");
        }
    }

    #[test]
    fn a_name_tells_the_own_path_unless_a_symlink_leads_to_the_file() {
        let place = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(place.path()).unwrap();
        let path = |name: &str| CString::new(dir.join(name).to_str().unwrap()).unwrap();
        for name in ["sub", "other"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("sub/file"), "x").unwrap();
        std::fs::write(dir.join("sub/more"), "x").unwrap();
        std::os::unix::fs::symlink("file", dir.join("sub/link")).unwrap();
        std::os::unix::fs::symlink("sub", dir.join("way")).unwrap();
        let found = rustix::fs::stat(dir.join("sub/file")).unwrap();
        let more = rustix::fs::stat(dir.join("sub/more")).unwrap();
        // The first time the whole path is gone, and then the last part only.
        for _ in 0..2 {
            for name in ["way/file", "sub/link", "sub/missing", "sub/../sub/file", "sub/./file"] {
                assert_eq!(own_path(&path(name), &found), None, "{name}");
            }
            assert_eq!(own_path(&path("sub/more"), &found), None, "of another file");
            let told = path("sub/file");
            assert_eq!(own_path(&told, &found).as_deref(), Some(told.to_bytes()));
            let told = path("sub/more");
            assert_eq!(own_path(&told, &more).as_deref(), Some(told.to_bytes()));
        }
    }

    #[test]
    fn a_relative_name_counts_from_the_working_directory() {
        // That of the tests; nobody changes it.
        let here = std::env::current_dir().unwrap();
        let found = rustix::fs::stat("Cargo.toml").unwrap();
        let expected = here.join("Cargo.toml");
        for _ in 0..2 {
            let told = own_path(c"Cargo.toml", &found).unwrap();
            assert_eq!(told, expected.as_os_str().as_encoded_bytes());
        }
        assert_eq!(own_path(c"./Cargo.toml", &found), None);
        let short = &mut [0; 4];
        assert_eq!(own(c"Cargo.toml", &found, short), None, "no room");
    }
}
