//! `mmap` on files of the pool. A shared mapping is one of the file on this host that has the data, where there is
//! one that its engine passes. A private mapping, and any other shared one that nobody can write through, is
//! memory that is filled by reading; what others write later does not show in it, which POSIX leaves
//! open for private mappings. What is left, a shared mapping that can be written, is refused. Files that a mount
//! has opened are mapped by the kernel.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd as _;

use azekura_posix::{Errno, FileKind, OFlags, Result};
use libc::{off_t, size_t};
use rustix::fs::{AtFlags, StatxFlags};

use super::hooks;
use crate::descriptors::{Backing, Description, table};
use crate::report::{self, counter};
use crate::{hook, host, recording};

mod real {
    use super::{c_int, c_void, off_t, size_t};
    use crate::host::host;

    host! {
        fn mmap(hint: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> isize;
    }
}

/// What is read in one go, in bytes.
const READ_BYTES: usize = 8 << 20;

fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Fills memory from the file; what lies behind its end stays zero.
fn fill(file: &Description, memory: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < memory.len() {
        let end = memory.len().min(done + READ_BYTES);
        match file.read_at(&mut memory[done..end], offset + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    Ok(())
}

fn is_shared(flags: c_int) -> bool {
    flags & libc::MAP_TYPE != libc::MAP_PRIVATE
}

/// What a mapping of the file needs of the way in which it was opened.
fn check(file: &Description, protection: c_int, flags: c_int) -> Result<()> {
    let open = file.open_flags();
    if open.contains(OFlags::PATH) {
        return Err(Errno::BADF);
    }
    if file.kind() != FileKind::Regular {
        return Err(Errno::NODEV);
    }
    let mode = open & OFlags::RWMODE;
    if mode == OFlags::WRONLY {
        return Err(Errno::ACCESS);
    }
    let writes = is_shared(flags) && protection & libc::PROT_WRITE != 0;
    if writes && mode != OFlags::RDWR { Err(Errno::ACCESS) } else { Ok(()) }
}

/// A shared mapping of the file that has the data; `None` if it is to be a copy.
///
/// # Safety
/// As for `mmap`.
unsafe fn share(
    file: &Description,
    (hint, bytes): (*mut c_void, size_t),
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<Option<isize>> {
    if !is_shared(flags) {
        return Ok(None);
    }
    let must_write = protection & libc::PROT_WRITE != 0;
    if let Some(data) = file.file()?.data_to_map(must_write)? {
        // SAFETY: the caller's mapping, of another file than it names.
        let start = unsafe { real::mmap(hint, bytes, protection, flags, data.as_raw_fd(), offset) };
        return match start {
            -1 => Err(Errno::from_raw_os_error(host::errno())),
            start => Ok(Some(start)),
        };
    }
    if must_write {
        let line = "a shared writable mapping (mmap) of a file of the pool was refused with ENODEV: it goes only \
                    where all data of the file lie on this host in one shard; else use \
                    'azekura run --via fuse' for this program";
        report::trouble(line);
        report::say_once(line);
        return Err(Errno::NODEV);
    }
    Ok(None)
}

/// # Safety
/// As for `mmap`.
unsafe fn map(
    file: &Description,
    (hint, bytes): (*mut c_void, size_t),
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<isize> {
    check(file, protection, flags)?;
    let at = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    if bytes == 0 || at % page_bytes() as u64 != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: as the caller says.
    if let Some(start) = unsafe { share(file, (hint, bytes), protection, flags, offset) }? {
        return Ok(start);
    }
    // Filled first and put in its place then, so that a failed read leaves what was there.
    let aside = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let wanted = libc::PROT_READ | libc::PROT_WRITE;
    let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    // SAFETY: a new mapping at a place that the kernel chooses, near the caller's hint.
    let start = unsafe {
        let hint = if is_fixed { std::ptr::null_mut() } else { hint };
        real::mmap(hint, bytes, wanted, aside, -1, 0)
    };
    if start == -1 {
        return Err(Errno::from_raw_os_error(host::errno()));
    }
    let place = start as *mut c_void;
    // SAFETY: the mapping is of this size, and nobody else knows it.
    let memory = unsafe { std::slice::from_raw_parts_mut(place.cast::<u8>(), bytes) };
    let filled = fill(file, memory, at);
    // SAFETY: the mapping was made above; a fixed place is the caller's to replace.
    unsafe {
        let result = filled.and_then(|()| put_in_place(place, bytes, protection, flags, hint));
        if result.is_err() {
            libc::munmap(place, bytes);
        }
        result
    }
}

/// Gives the filled mapping its protection, and its place if that is fixed.
///
/// # Safety
/// `place` is a mapping of `bytes` bytes; `hint` is as for `mmap` with these flags.
unsafe fn put_in_place(
    place: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    hint: *mut c_void,
) -> Result<isize> {
    let last = || Errno::from_raw_os_error(host::errno());
    // SAFETY: the caller says so.
    unsafe {
        if libc::mprotect(place, bytes, protection) != 0 {
            return Err(last());
        }
        if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == 0 {
            return Ok(place as isize);
        }
        if flags & libc::MAP_FIXED_NOREPLACE != 0 {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let claimed = real::mmap(hint, bytes, libc::PROT_NONE, kind, -1, 0);
            if claimed == -1 {
                return Err(last());
            }
            if claimed != hint as isize {
                libc::munmap(claimed as *mut c_void, bytes);
                return Err(Errno::EXIST);
            }
        }
        let moving = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = libc::mremap(place, bytes, bytes, moving, hint);
        if moved == libc::MAP_FAILED { Err(last()) } else { Ok(moved as isize) }
    }
}

/// Prepares a file of the mount for a mapping by the kernel, which does not know how long it has become
/// by what went past it: memory behind the length that it knows is not to be touched (`SIGBUS`). What
/// is shared and mapped is also read and written by the kernel from now on, or neither would see what
/// the other does.
fn hand_over(fd: c_int, file: &Description, flags: c_int) -> Result<()> {
    // SAFETY: the caller's descriptor, which stands for this file.
    let mapped = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let (asked, wanted) = (AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
    rustix::fs::statx(mapped, c"", asked, wanted)?;
    if is_shared(flags) {
        file.position().locked(|moving| {
            let offset = moving.offset() as i64;
            // SAFETY: the C function; it moves the kernel's own position.
            if unsafe { host::lseek(fd, offset, libc::SEEK_SET) } < 0 {
                return Err(Errno::from_raw_os_error(host::errno()));
            }
            table::take(fd);
            Ok(())
        })?;
    }
    Ok(())
}

hooks! {
    /// `mmap`.
    fn [mmap mmap64](
        hint: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> isize {
        // SAFETY: as for the C function.
        let hosts = || unsafe { real::mmap(hint, bytes, protection, flags, fd, offset) };
        if flags & libc::MAP_ANONYMOUS != 0 || !table::is_ours(fd) {
            let result = hosts();
            if flags & libc::MAP_ANONYMOUS == 0 && result != -1 {
                recording::mapped(fd, offset, bytes);
            }
            return result;
        }
        let result = hook::run(|| match table::get(fd) {
            Some(file) if file.backing() == Backing::Reserved => {
                // SAFETY: as for the C function.
                unsafe { map(&file, (hint, bytes), protection, flags, offset) }.map(Some)
            }
            Some(file) => hand_over(fd, &file, flags).map(|()| None),
            None => Ok(None),
        });
        hook::conclude_or(counter!("mmap"), result, hosts)
    }
}
