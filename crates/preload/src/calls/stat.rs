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
    spot.ns.resolve(&spot.path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)
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
                    if result == 0 && (*stat).st_mode & libc::S_IFMT == libc::S_IFDIR {
                        stat_list(dirfd, stat);
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
            &Purpose::Look { follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0, found: &found },
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
    let Some(job) = staging::active() else { return };
    let shown = hook::caught(|| Ok(job.path_of_list(fd))).ok().flatten();
    if let Some(shown) = shown.and_then(|path| CString::new(path).ok()) {
        // SAFETY: a C string, and the caller's structure. What fails leaves it as it is.
        unsafe {
            let mut found = *into;
            if stat(shown.as_ptr(), &raw mut found) == 0 {
                *into = found;
            }
        }
    }
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
                if result == 0 && (*stat).st_mode & libc::S_IFMT == libc::S_IFDIR {
                    stat_list(fd, stat);
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
                    || host::statx(dirfd, path, flags, mask, stat),
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
                &Purpose::Look { follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0, found: &found },
                dirfd,
                path,
                |spot| give(&look(spot, flags)?),
                |dirfd, path| host::statx(dirfd, path, flags, mask, stat),
            )
        }
    }
}
