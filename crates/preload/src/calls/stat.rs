//! The `stat` family.

use std::ffi::{CString, c_char, c_int, c_uint};

use azekura_posix::{Attr, Errno, Result};

use super::{convert, hooks};
use crate::descriptors::on_fd;
use crate::paths::{Spot, by_path};
use crate::report::{Counter, counter};
use crate::staging::{self, Found, Purpose};
use crate::{hook, host};

/// # Safety
/// As for `stat`: the structure is writable, or the pointer is null.
unsafe fn give(stat: *mut libc::stat, attr: &Attr) -> Result<c_int> {
    if stat.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller says so.
    unsafe { stat.write(convert::stat(attr)) };
    Ok(0)
}

fn look(spot: &Spot, flags: c_int) -> Result<Attr> {
    spot.ns.look_at(&spot.path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)
}

/// Whether the call is about the descriptor itself.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn is_of_fd(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller says so.
    flags & libc::AT_EMPTY_PATH != 0
        && (path.is_null() || crate::paths::is_plausible(path) && unsafe { *path } == 0)
}

/// # Safety
/// As for `fstatat`.
unsafe fn stat_at(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    stat: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `fstatat`.
    unsafe {
        if is_of_fd(path, flags) {
            return on_fd(
                counter,
                dirfd,
                |file| give(stat, &file.attr()?),
                || {
                    let result = host::fstatat(dirfd, path, stat, flags);
                    if result == 0 {
                        tell_as_in_tree(dirfd, stat);
                    }
                    result
                },
            );
        }
        let found = |found: &Found| {
            if stat.is_null() {
                return Err(Errno::FAULT);
            }
            stat.write(found.stat());
            Ok(0)
        };
        by_path(
            counter,
            &Purpose::Look {
                follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
                found: &found,
                told_directory: &|| is_directory((*stat).st_mode),
            },
            dirfd,
            path,
            |spot| give(stat, &look(spot, flags)?),
            |dirfd, path| host::fstatat(dirfd, path, stat, flags),
        )
    }
}

/// Tells the same of a directory that a staging job has made to be listed as of its path: programs compare
/// the two to see whether another one was put in its place.
///
/// # Safety
/// As for `fstat`, which has filled the structure.
unsafe fn stat_list(fd: c_int, into: *mut libc::stat) {
    if let Some(shown) = path_of_list(fd) {
        // SAFETY: a C string, and the caller's structure. What fails leaves it as it is.
        unsafe {
            let mut found = *into;
            if stat(shown.as_ptr(), &raw mut found) == 0 {
                *into = found;
            }
        }
    }
}

/// The same for `statx`.
///
/// # Safety
/// As for `statx`, which has filled the structure.
unsafe fn statx_list(fd: c_int, mask: c_uint, into: *mut libc::statx) {
    if let Some(shown) = path_of_list(fd) {
        // SAFETY: as above.
        unsafe {
            let mut found = *into;
            if statx(libc::AT_FDCWD, shown.as_ptr(), 0, mask, &raw mut found) == 0 {
                *into = found;
            }
        }
    }
}

/// Tells of a descriptor what programs are told of its path, where that is not what the kernel has.
///
/// # Safety
/// As for `fstat`, which has filled the structure.
unsafe fn tell_as_in_tree(fd: c_int, stat: *mut libc::stat) {
    let Some(job) = staging::active() else { return };
    // SAFETY: the caller says so.
    unsafe {
        if is_directory((*stat).st_mode) {
            stat_list(fd, stat);
        } else {
            (*stat).st_dev = job.device((*stat).st_dev);
        }
    }
}

/// The same for `statx`.
///
/// # Safety
/// As for `statx`, which has filled the structure.
unsafe fn statx_as_in_tree(fd: c_int, mask: c_uint, stat: *mut libc::statx) {
    let Some(job) = staging::active() else { return };
    // SAFETY: the caller says so.
    unsafe {
        if is_directory((*stat).stx_mode.into()) {
            return statx_list(fd, mask, stat);
        }
        let device = job.device(libc::makedev((*stat).stx_dev_major, (*stat).stx_dev_minor));
        (*stat).stx_dev_major = libc::major(device);
        (*stat).stx_dev_minor = libc::minor(device);
    }
}

fn path_of_list(fd: c_int) -> Option<CString> {
    let job = staging::active()?;
    let shown = hook::caught(|| Ok(job.path_of_list(fd))).ok().flatten();
    CString::new(shown?).ok()
}

fn is_directory(mode: libc::mode_t) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

hooks! {
    /// `stat`.
    fn [stat stat64](path: *const c_char, stat: *mut libc::stat) -> c_int {
        // SAFETY: as for the C function.
        unsafe { stat_at(counter!("stat"), libc::AT_FDCWD, path, stat, 0) }
    }

    /// `lstat`.
    fn [lstat lstat64](path: *const c_char, stat: *mut libc::stat) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            stat_at(counter!("lstat"), libc::AT_FDCWD, path, stat, libc::AT_SYMLINK_NOFOLLOW)
        }
    }

    /// `fstat`.
    fn [fstat fstat64](fd: c_int, stat: *mut libc::stat) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fstat"),
            fd,
            |file| unsafe { give(stat, &file.attr()?) },
            || unsafe {
                let result = host::fstat(fd, stat);
                if result == 0 {
                    tell_as_in_tree(fd, stat);
                }
                result
            },
        )
    }

    /// `fstatat`.
    fn [fstatat fstatat64](
        dirfd: c_int, path: *const c_char, stat: *mut libc::stat, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { stat_at(counter!("fstatat"), dirfd, path, stat, flags) }
    }

    /// `stat` as programs built for an older C library call it.
    fn [__xstat __xstat64](_version: c_int, path: *const c_char, stat: *mut libc::stat) -> c_int {
        // SAFETY: as for the C function.
        unsafe { stat_at(counter!("stat"), libc::AT_FDCWD, path, stat, 0) }
    }

    /// `lstat` as programs built for an older C library call it.
    fn [__lxstat __lxstat64](_version: c_int, path: *const c_char, stat: *mut libc::stat) -> c_int {
        // SAFETY: as for the C function.
        unsafe { lstat(path, stat) }
    }

    /// `fstat` as programs built for an older C library call it.
    fn [__fxstat __fxstat64](_version: c_int, fd: c_int, stat: *mut libc::stat) -> c_int {
        // SAFETY: as for the C function.
        unsafe { fstat(fd, stat) }
    }

    /// `fstatat` as programs built for an older C library call it.
    fn [__fxstatat __fxstatat64](
        _version: c_int, dirfd: c_int, path: *const c_char, stat: *mut libc::stat, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { fstatat(dirfd, path, stat, flags) }
    }

    /// `statx`.
    fn [statx](
        dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, stat: *mut libc::statx,
    ) -> c_int {
        let counter = counter!("statx");
        let give = |attr: &Attr| {
            if stat.is_null() {
                return Err(Errno::FAULT);
            }
            // SAFETY: as for the C function.
            unsafe { stat.write(convert::statx(attr)) };
            Ok(0)
        };
        // SAFETY: as for the C function.
        unsafe {
            if is_of_fd(path, flags) {
                return on_fd(
                    counter,
                    dirfd,
                    |file| give(&file.attr()?),
                    || {
                        let result = host::statx(dirfd, path, flags, mask, stat);
                        if result == 0 {
                            statx_as_in_tree(dirfd, mask, stat);
                        }
                        result
                    },
                );
            }
            let found = |found: &Found| {
                if stat.is_null() {
                    return Err(Errno::FAULT);
                }
                stat.write(found.statx());
                Ok(0)
            };
            by_path(
                counter,
                &Purpose::Look {
                    follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
                    found: &found,
                    told_directory: &|| is_directory((*stat).stx_mode.into()),
                },
                dirfd,
                path,
                |spot| give(&look(spot, flags)?),
                |dirfd, path| host::statx(dirfd, path, flags, mask, stat),
            )
        }
    }
}
