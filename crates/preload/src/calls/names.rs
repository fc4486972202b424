//! Names: `access`, `mkdir`, `unlink`, `rename`, `mknod`, `truncate` and their forms.

use std::ffi::{c_char, c_int};

use azekura_posix::{
    Access, AttrUpdate, Credentials, Errno, FileKind, NewEntry, RenameMode, Result, may_access,
};
use libc::{dev_t, mode_t, off_t};

use super::{hooks, offset};
use crate::descriptors::size_limit;
use crate::paths::{self, Spot, by_path, by_two_paths};
use crate::report::{Counter, counter};
use crate::service;
use crate::staging::{self, Pair, Purpose};

mod hosts {
    use std::ffi::{c_char, c_int};

    use libc::{dev_t, mode_t, off_t};

    crate::host::host! {
        fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
        fn mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int;
        fn rmdir(path: *const c_char) -> c_int;
        fn unlink(path: *const c_char) -> c_int;
        fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int;
        fn remove(path: *const c_char) -> c_int;
        fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
        fn renameat2(
            from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
            flags: libc::c_uint,
        ) -> c_int;
        fn mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
        fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int;
        fn truncate(path: *const c_char, bytes: off_t) -> c_int;
    }
}

const CWD: c_int = libc::AT_FDCWD;
/// The flag of `faccessat` for the effective user.
const AT_EACCESS: c_int = 0x200;

fn real_user() -> Credentials {
    Credentials {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: Credentials::of_process().groups,
        process: None,
    }
}

fn wanted(mode: c_int) -> Result<Access> {
    if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Access {
        read: mode & libc::R_OK != 0,
        write: mode & libc::W_OK != 0,
        execute: mode & libc::X_OK != 0,
    })
}

fn check_access(spot: &Spot, mode: c_int, flags: c_int) -> Result<c_int> {
    let wanted = wanted(mode)?;
    let real = real_user();
    let is_other = real.uid != spot.ns.caller().uid || real.gid != spot.ns.caller().gid;
    let ns =
        if flags & AT_EACCESS == 0 && is_other { spot.ns.seen_by(real) } else { spot.ns.clone() };
    let attr = ns.look_at(&spot.path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
    if may_access(ns.caller(), &attr, wanted) { Ok(0) } else { Err(Errno::ACCESS) }
}

/// # Safety
/// As for `faccessat`.
unsafe fn access_at(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `faccessat`.
    unsafe {
        if paths::means_descriptor(path, flags) {
            return crate::descriptors::on_fd(
                counter,
                dirfd,
                |file| {
                    let root = service::root()?;
                    file.fs()?.access(root.caller(), file.oid(), wanted(mode)?).map(|()| 0)
                },
                || hosts::faccessat(dirfd, path, mode, flags),
            );
        }
        by_path(
            counter,
            &Purpose::Look {
                follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
                found: &|found| found.access(mode),
                told_directory: &|| false,
            },
            dirfd,
            path,
            |spot| check_access(spot, mode, flags),
            |dirfd, path| {
                staging::refuse_writing(path, mode, hosts::faccessat(dirfd, path, mode, flags))
            },
        )
    }
}

/// # Safety
/// As for `mkdirat`.
unsafe fn make_dir(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `mkdirat`.
    unsafe {
        by_path(
            counter,
            &Purpose::Make,
            dirfd,
            path,
            |spot| spot.ns.create_dir(&spot.path, service::masked(mode) & 0o1777).map(|_| 0),
            |dirfd, path| hosts::mkdirat(dirfd, path, mode),
        )
    }
}

/// # Safety
/// As for `renameat2`.
unsafe fn rename_at(
    counter: &'static Counter,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    flags: libc::c_uint,
    hosts: impl Fn((c_int, *const c_char), (c_int, *const c_char)) -> c_int,
) -> c_int {
    let rename = |from: &Spot, to: &Spot| {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        from.ns.rename_into(&from.path, &to.ns, &to.path, mode).map(|()| 0)
    };
    // SAFETY: the caller keeps the conditions of `renameat2`.
    unsafe { by_two_paths(counter, Pair::Rename(flags), from, to, rename, hosts) }
}

fn node(mode: mode_t, device: dev_t) -> Result<NewEntry<'static>> {
    if mode & libc::S_IFMT == 0 {
        return Ok(NewEntry::Regular);
    }
    match FileKind::from_mode(mode) {
        Some(FileKind::Regular) => Ok(NewEntry::Regular),
        Some(FileKind::Fifo) => Ok(NewEntry::Fifo),
        Some(FileKind::Socket) => Ok(NewEntry::Socket),
        Some(FileKind::CharDevice) => Ok(NewEntry::CharDevice(device)),
        Some(FileKind::BlockDevice) => Ok(NewEntry::BlockDevice(device)),
        Some(FileKind::Directory) => Err(Errno::PERM),
        Some(FileKind::Symlink) | None => Err(Errno::INVAL),
    }
}

/// # Safety
/// As for `mknodat`.
unsafe fn make_node(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    device: dev_t,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `mknodat`.
    unsafe {
        by_path(
            counter,
            &Purpose::Make,
            dirfd,
            path,
            |spot| {
                let what = node(mode, device)?;
                spot.ns.make_node(&spot.path, service::masked(mode), what).map(|_| 0)
            },
            |dirfd, path| hosts::mknodat(dirfd, path, mode, device),
        )
    }
}

fn remove_either(spot: &Spot) -> Result<c_int> {
    match spot.ns.remove_file(&spot.path) {
        Err(Errno::ISDIR) => spot.ns.remove_dir(&spot.path).map(|()| 0),
        other => other.map(|()| 0),
    }
}

hooks! {
    /// `access`.
    fn [access](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { access_at(counter!("access"), CWD, path, mode, 0) }
    }

    /// `faccessat`.
    fn [faccessat](dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { access_at(counter!("faccessat"), dirfd, path, mode, flags) }
    }

    /// `euidaccess`.
    fn [euidaccess eaccess](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { access_at(counter!("euidaccess"), CWD, path, mode, AT_EACCESS) }
    }

    /// `mkdir`.
    fn [mkdir](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { make_dir(counter!("mkdir"), CWD, path, mode) }
    }

    /// `mkdirat`.
    fn [mkdirat](dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { make_dir(counter!("mkdirat"), dirfd, path, mode) }
    }

    /// `rmdir`.
    fn [rmdir](path: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("rmdir"),
                &Purpose::Remove(0),
                CWD,
                path,
                |spot| spot.ns.remove_dir(&spot.path).map(|()| 0),
                |_, path| hosts::rmdir(path),
            )
        }
    }

    /// `unlink`.
    fn [unlink](path: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("unlink"),
                &Purpose::Remove(0),
                CWD,
                path,
                |spot| spot.ns.remove_file(&spot.path).map(|()| 0),
                |_, path| hosts::unlink(path),
            )
        }
    }

    /// `unlinkat`.
    fn [unlinkat](dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("unlinkat"),
                &Purpose::Remove(0),
                dirfd,
                path,
                |spot| match flags {
                    0 => spot.ns.remove_file(&spot.path).map(|()| 0),
                    libc::AT_REMOVEDIR => spot.ns.remove_dir(&spot.path).map(|()| 0),
                    _ => Err(Errno::INVAL),
                },
                |dirfd, path| hosts::unlinkat(dirfd, path, flags),
            )
        }
    }

    /// `remove`.
    fn [remove](path: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            let purpose = Purpose::Remove(0);
            by_path(counter!("remove"), &purpose, CWD, path, remove_either, |_, path| {
                hosts::remove(path)
            })
        }
    }

    /// `rename`.
    fn [rename](from: *const c_char, to: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            rename_at(counter!("rename"), (CWD, from), (CWD, to), 0, |from, to| {
                hosts::renameat(from.0, from.1, to.0, to.1)
            })
        }
    }

    /// `renameat`.
    fn [renameat](
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            rename_at(counter!("renameat"), (from_dir, from), (to_dir, to), 0, |from, to| {
                hosts::renameat(from.0, from.1, to.0, to.1)
            })
        }
    }

    /// `renameat2`.
    fn [renameat2](
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
        flags: libc::c_uint,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            rename_at(counter!("renameat2"), (from_dir, from), (to_dir, to), flags, |from, to| {
                hosts::renameat2(from.0, from.1, to.0, to.1, flags)
            })
        }
    }

    /// `mknod`.
    fn [mknod](path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { make_node(counter!("mknod"), CWD, path, mode, device) }
    }

    /// `mknodat`.
    fn [mknodat](dirfd: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { make_node(counter!("mknodat"), dirfd, path, mode, device) }
    }

    /// `mknod` as programs built for an older C library call it.
    fn [__xmknod](
        _version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { mknod(path, mode, if device.is_null() { 0 } else { *device }) }
    }

    /// `mknodat` as programs built for an older C library call it.
    fn [__xmknodat](
        _version: c_int, dirfd: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { mknodat(dirfd, path, mode, if device.is_null() { 0 } else { *device }) }
    }

    /// `mkfifo`.
    fn [mkfifo](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { mkfifoat(CWD, path, mode) }
    }

    /// `mkfifoat`.
    fn [mkfifoat](dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("mkfifo"),
                &Purpose::Make,
                dirfd,
                path,
                |spot| {
                    let mode = service::masked(mode);
                    spot.ns.make_node(&spot.path, mode, NewEntry::Fifo).map(|_| 0)
                },
                |dirfd, path| hosts::mkfifoat(dirfd, path, mode),
            )
        }
    }

    /// `truncate`.
    fn [truncate truncate64](path: *const c_char, bytes: off_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("truncate"),
                &Purpose::Write { follow: true },
                CWD,
                path,
                |spot| {
                    let bytes = offset(bytes)?;
                    size_limit::check_length(bytes, || Ok(spot.ns.resolve(&spot.path, true)?.size))?;
                    let update = AttrUpdate::size(bytes);
                    spot.ns.set_attr(&spot.path, true, &update).map(|_| 0)
                },
                |_, path| hosts::truncate(path, bytes),
            )
        }
    }
}
