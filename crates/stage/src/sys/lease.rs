//! Leases of files (fcntl(2), `F_SETLEASE`), by which the kernel says whether anybody has a file open.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd as _;

use libc::{F_SETLEASE, F_UNLCK, F_WRLCK, SIGURG, c_int};

/// Of asm-generic/fcntl.h: which signal tells of a lease.
const F_SETSIG: c_int = 10;

/// Whether nobody else has the file open or mapped. Whoever opens it from now on is not noticed.
pub(crate) fn is_unused(file: &File) -> bool {
    let file = file.as_raw_fd();
    // Whoever opens it in between has the kernel tell us, by a signal that nobody minds; the one that it
    // would take by itself ends a process.
    // SAFETY: the descriptor is open, and the call takes no pointer.
    if unsafe { libc::fcntl(file, F_SETSIG, SIGURG) } != 0 {
        return false;
    }
    // SAFETY: as above.
    let is_unused = unsafe { libc::fcntl(file, F_SETLEASE, F_WRLCK) } == 0;
    // SAFETY: as above.
    let released = unsafe { libc::fcntl(file, F_SETLEASE, F_UNLCK) } == 0;
    is_unused && released
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_has_open_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let ours = File::open(&path).unwrap();
        assert!(is_unused(&ours));
        let other = File::open(&path).unwrap();
        assert!(!is_unused(&ours));
        drop(other);
        assert!(is_unused(&ours));
        File::options().write(true).open(&path).unwrap();
        assert!(is_unused(&ours));
    }
}
