//! The memory of another process, and the kernel's structures as they stand there.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use libc::{c_int, c_void};

use super::check;

/// Reads from another process's memory, up to where a page is not there; the bytes that were read.
pub(crate) fn read(tid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    const PAGE_BYTES: u64 = 4096;
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // The kernel stops between parts, never within one: so a part ends where a page may.
    let first = (PAGE_BYTES - address % PAGE_BYTES).min(into.len() as u64);
    let there = [
        libc::iovec { iov_base: address as *mut c_void, iov_len: first as usize },
        libc::iovec {
            iov_base: address.wrapping_add(first) as *mut c_void,
            iov_len: into.len() - first as usize,
        },
    ];
    // SAFETY: writes into `into` and nothing else of this process.
    let read = unsafe { libc::process_vm_readv(tid, &raw const here, 1, there.as_ptr(), 2, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Writes into another process's memory, all or (with an error) perhaps less.
pub(crate) fn write(tid: i32, address: u64, from: &[u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let there = libc::iovec { iov_base: address as *mut c_void, iov_len: from.len() };
    // SAFETY: only reads `from`.
    let written =
        unsafe { libc::process_vm_writev(tid, &raw const here, 1, &raw const there, 1, 0) };
    match usize::try_from(written) {
        Ok(written) if written == from.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Structures of the kernel that are nothing but numbers, without gaps.
///
/// # Safety
/// All bytes of a value are initialised, and all zeros is a value.
pub(crate) unsafe trait Plain: Sized {
    fn zeroed() -> Self {
        // SAFETY: promised by whoever implements the trait.
        unsafe { std::mem::zeroed() }
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: promised by whoever implements the trait.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

// SAFETY: as the kernel declares them: numbers, and padding as fields.
unsafe impl Plain for libc::stat {}
// SAFETY: as above.
unsafe impl Plain for libc::statx {}
// SAFETY: as above.
unsafe impl Plain for libc::statfs {}

/// Attributes of an open descriptor (with an empty path) or at a path.
pub(crate) fn statx(
    dir: BorrowedFd,
    path: &CStr,
    flags: c_int,
    mask: u32,
) -> io::Result<libc::statx> {
    let mut found = libc::statx::zeroed();
    // SAFETY: the path ends with a zero byte, and the structure is alive.
    check(unsafe { libc::statx(dir.as_raw_fd(), path.as_ptr(), flags, mask, &raw mut found) })?;
    Ok(found)
}

/// What file system a descriptor is on.
pub(crate) fn statfs(fd: BorrowedFd) -> io::Result<libc::statfs> {
    let mut found = libc::statfs::zeroed();
    // SAFETY: the structure is alive.
    check(unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut found) })?;
    Ok(found)
}
