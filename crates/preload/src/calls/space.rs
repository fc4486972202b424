//! `statfs`, `statvfs` and `pathconf`.

use std::ffi::{c_char, c_int, c_long};

use azekura_posix::{Errno, Result, StatFs};

use super::hooks;
use crate::descriptors::{Description, on_fd};
use crate::paths::{Spot, by_path};
use crate::report::counter;
use crate::staging::{Found, Purpose};

mod hosts {
    use std::ffi::{c_char, c_int, c_long};

    crate::host::host! {
        fn statfs(path: *const c_char, into: *mut libc::statfs) -> c_int;
        fn fstatfs(fd: c_int, into: *mut libc::statfs) -> c_int;
        fn statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int;
        fn fstatvfs(fd: c_int, into: *mut libc::statvfs) -> c_int;
        fn pathconf(path: *const c_char, name: c_int) -> c_long;
        fn fpathconf(fd: c_int, name: c_int) -> c_long;
    }
}

const CWD: c_int = libc::AT_FDCWD;
/// Unit of the counts, in bytes.
const FRAGMENT_BYTES: u64 = 4096;
/// What tells the file system's type: `azku`, which no other one has.
const MAGIC: i64 = 0x617a_6b75;
/// Links that an object may have.
const LINKS_MAX: c_long = 1_000_000;

fn space_at(spot: &Spot) -> Result<StatFs> {
    spot.ns.space(&spot.path)
}

fn space_of(file: &Description) -> Result<StatFs> {
    file.fs()?.statfs()
}

/// # Safety
/// The structure is writable, or the pointer is null.
unsafe fn give_statfs(space: &StatFs, into: *mut libc::statfs) -> Result<c_int> {
    if into.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut shown: libc::statfs = unsafe { std::mem::zeroed() };
    let available = space.available_bytes / FRAGMENT_BYTES;
    shown.f_type = MAGIC;
    shown.f_bsize = FRAGMENT_BYTES as i64;
    shown.f_frsize = FRAGMENT_BYTES as i64;
    shown.f_blocks = space.total_bytes / FRAGMENT_BYTES;
    shown.f_bfree = available;
    shown.f_bavail = available;
    // There is no table of inodes: as many as there is space for.
    shown.f_files = space.objects.saturating_add(available);
    shown.f_ffree = available;
    shown.f_namelen = i64::from(space.name_bytes_max);
    // SAFETY: two numbers of four bytes; the caller says that the structure is writable.
    unsafe {
        shown.f_fsid = std::mem::transmute::<u64, libc::fsid_t>(space.fsid);
        into.write(shown);
    }
    Ok(0)
}

/// # Safety
/// The structure is writable, or the pointer is null.
unsafe fn give_statvfs(space: &StatFs, into: *mut libc::statvfs) -> Result<c_int> {
    if into.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut shown: libc::statvfs = unsafe { std::mem::zeroed() };
    let available = space.available_bytes / FRAGMENT_BYTES;
    shown.f_bsize = FRAGMENT_BYTES;
    shown.f_frsize = FRAGMENT_BYTES;
    shown.f_blocks = space.total_bytes / FRAGMENT_BYTES;
    shown.f_bfree = available;
    shown.f_bavail = available;
    shown.f_files = space.objects.saturating_add(available);
    shown.f_ffree = available;
    shown.f_favail = available;
    shown.f_namemax = u64::from(space.name_bytes_max);
    shown.f_fsid = space.fsid;
    // SAFETY: the caller says so.
    unsafe { into.write(shown) };
    Ok(0)
}

/// What has not come lies on the file system that it will come to.
fn at_tree<R>(found: &Found, call: impl FnOnce(*const c_char) -> R) -> Result<R> {
    found.tree().map(|tree| call(tree.as_ptr()))
}

/// A limit or property; `-1` without an error for what has no limit.
fn property(name: c_int) -> Result<c_long> {
    Ok(match name {
        libc::_PC_LINK_MAX => LINKS_MAX,
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT | libc::_PC_NAME_MAX => 255,
        libc::_PC_PATH_MAX
        | libc::_PC_PIPE_BUF
        | libc::_PC_REC_MIN_XFER_SIZE
        | libc::_PC_REC_XFER_ALIGN
        | libc::_PC_ALLOC_SIZE_MIN => 4096,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_NO_TRUNC | libc::_PC_2_SYMLINKS => 1,
        libc::_PC_VDISABLE => 0,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_SYNC_IO
        | libc::_PC_ASYNC_IO
        | libc::_PC_PRIO_IO
        | libc::_PC_SOCK_MAXBUF
        | libc::_PC_REC_INCR_XFER_SIZE
        | libc::_PC_REC_MAX_XFER_SIZE
        | libc::_PC_SYMLINK_MAX => -1,
        _ => return Err(Errno::INVAL),
    })
}

hooks! {
    /// `statfs`.
    fn [statfs statfs64 __statfs](path: *const c_char, into: *mut libc::statfs) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("statfs"),
                &Purpose::Look {
                    follow: true,
                    found: &|found| at_tree(found, |tree| hosts::statfs(tree, into)),
                    told_directory: &|| false,
                },
                CWD,
                path,
                |spot| give_statfs(&space_at(spot)?, into),
                |_, path| hosts::statfs(path, into),
            )
        }
    }

    /// `fstatfs`.
    fn [fstatfs fstatfs64](fd: c_int, into: *mut libc::statfs) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fstatfs"),
            fd,
            |file| unsafe { give_statfs(&space_of(file)?, into) },
            || unsafe { hosts::fstatfs(fd, into) },
        )
    }

    /// `statvfs`.
    fn [statvfs statvfs64](path: *const c_char, into: *mut libc::statvfs) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("statvfs"),
                &Purpose::Look {
                    follow: true,
                    found: &|found| at_tree(found, |tree| hosts::statvfs(tree, into)),
                    told_directory: &|| false,
                },
                CWD,
                path,
                |spot| give_statvfs(&space_at(spot)?, into),
                |_, path| hosts::statvfs(path, into),
            )
        }
    }

    /// `fstatvfs`.
    fn [fstatvfs fstatvfs64](fd: c_int, into: *mut libc::statvfs) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fstatvfs"),
            fd,
            |file| unsafe { give_statvfs(&space_of(file)?, into) },
            || unsafe { hosts::fstatvfs(fd, into) },
        )
    }

    /// `pathconf`.
    fn [pathconf](path: *const c_char, name: c_int) -> c_long {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("pathconf"),
                &Purpose::Look {
                    follow: true,
                    found: &|found| at_tree(found, |tree| hosts::pathconf(tree, name)),
                    told_directory: &|| false,
                },
                CWD,
                path,
                |spot| {
                    spot.ns.resolve(&spot.path, true)?;
                    property(name)
                },
                |_, path| hosts::pathconf(path, name),
            )
        }
    }

    /// `fpathconf`.
    fn [fpathconf](fd: c_int, name: c_int) -> c_long {
        on_fd(
            counter!("fpathconf"),
            fd,
            |_| property(name),
            // SAFETY: as for the C function.
            || unsafe { hosts::fpathconf(fd, name) },
        )
    }
}
