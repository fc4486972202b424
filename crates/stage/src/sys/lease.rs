//! Leases of files (fcntl(2), `F_SETLEASE`), by which the kernel says whether anybody has a file open.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use libc::{F_RDLCK, F_SETLEASE, F_UNLCK, F_WRLCK, SIGURG, c_int};

use super::check;

/// Of asm-generic/fcntl.h: which signal tells of a lease.
const F_SETSIG: c_int = 10;

/// Whether nobody else has the file open or mapped. Whoever opens it from now on is not noticed.
pub(crate) fn is_unused(file: &File) -> bool {
    matches!(try_lease(file, F_WRLCK), Ok(true))
}

/// Whether somebody has the file open for writing, as far as the file system can tell. It has to be open for
/// reading only here.
pub(crate) fn is_written(file: &File) -> bool {
    matches!(try_lease(file, F_RDLCK), Ok(false))
}

/// Whether a lease was given, and given back.
fn try_lease(file: &File, kind: c_int) -> io::Result<bool> {
    let file = file.as_raw_fd();
    // Whoever opens it in between has the kernel tell us, by a signal that nobody minds; the one that it
    // would take by itself ends a process.
    // SAFETY: the descriptor is open, and the call takes no pointer.
    check(unsafe { libc::fcntl(file, F_SETSIG, SIGURG) })?;
    // SAFETY: as above.
    match check(unsafe { libc::fcntl(file, F_SETLEASE, kind) }) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(false),
        Err(error) => return Err(error),
    }
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file, F_SETLEASE, F_UNLCK) })?;
    Ok(true)
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

    #[test]
    fn a_file_that_another_writes_is_told_from_one_that_another_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let writer = File::create(&path).unwrap();
        let ours = File::open(&path).unwrap();
        let _reader = File::open(&path).unwrap();
        assert!(is_written(&ours));
        drop(writer);
        assert!(!is_written(&ours));
    }
}
