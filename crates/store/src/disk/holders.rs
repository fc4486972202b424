//! Whether a file is open anywhere else on this machine, as the kernel knows it. Owns the only unsafe code of
//! this crate: nothing else has the system call.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::{Errno, Result};

/// `F_SETSIG`, which `libc` does not name.
const F_SETSIG: i32 = 10;

/// Whether there is another open file description of a file than this one, which is open for writing. Exact:
/// the kernel gives a write lease of a file to nobody else but whoever alone has it open, wherever the others
/// are, mappings and descriptors on their way between processes included. The lease goes back at once.
///
/// # Errors
/// `EINVAL` if the file system has no leases; others if the kernel refuses for another reason.
pub(super) fn is_open_elsewhere(file: BorrowedFd<'_>) -> Result<bool> {
    // Who opens the file in that moment waits for it to be over, and the holder gets a signal. The usual one
    // would end this process; this one is ignored unless a process asks for it.
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    match fcntl(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

fn fcntl(file: BorrowedFd<'_>, command: i32, argument: i32) -> Result<()> {
    // SAFETY: these commands take a number and touch no memory of this process.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(errno.map_or(Errno::IO, Errno::from_raw_os_error));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn every_other_description_of_a_file_counts_and_duplicates_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open =
            || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let own = open().unwrap();
        let is_shared = || is_open_elsewhere(own.as_fd());
        if is_shared() == Err(Errno::INVAL) {
            return; // A file system without leases: nothing is told of it.
        }
        assert_eq!(is_shared(), Ok(false));
        let duplicate = own.try_clone().unwrap();
        assert_eq!(is_shared(), Ok(false));
        let (reader, writer) = (File::open(&path).unwrap(), open().unwrap());
        assert_eq!(is_shared(), Ok(true));
        drop(writer);
        assert_eq!(is_shared(), Ok(true));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(is_shared(), Ok(true), "whatever becomes of its name");
        drop(reader);
        assert_eq!(is_shared(), Ok(false));
        drop(duplicate);
        assert_eq!(is_shared(), Ok(false));
    }
}
