//! Attributes, names and links by path.

use std::ffi::{c_char, c_int, c_void};

use azekura_posix::{Access, AttrUpdate, Errno, FileKind, NewEntry, Oid};
use libc::{mode_t, timespec};

use crate::attributes::{hand_out, hand_out_text, owners, time_of, update_of, xattr_mode};
use crate::mount::Mount;
use crate::names::{put_oid, remove};
use crate::object::striping_of;
use crate::stat::fill_stat;
use crate::status::dfs_call;
use crate::sys::{Sys, at_path, found, split};
use crate::types::{ObjectId, c_bytes, items, place};

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_access(
    sys: *mut Sys,
    path: *const c_char,
    mask: c_int,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        if mask & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
            return Err(Errno::INVAL);
        }
        let attr = found(mount, &path, flags)?;
        // A symlink has no permissions of its own.
        if mask == libc::F_OK || attr.kind == FileKind::Symlink {
            return Ok(());
        }
        if mask & libc::W_OK != 0 {
            mount.check_writable()?;
        }
        let wanted = Access {
            read: mask & libc::R_OK != 0,
            write: mask & libc::W_OK != 0,
            execute: mask & libc::X_OK != 0,
        };
        mount.fs().access(mount.caller(), attr.oid, wanted)
    })
}

/// Changes the attributes of what a path leads to.
fn change(mount: &Mount, path: &[u8], flags: c_int, update: &AttrUpdate) -> Result<(), Errno> {
    mount.check_writable()?;
    let oid = found(mount, path, flags)?.oid;
    mount.fs().setattr(mount.caller(), oid, None, update).map(drop)
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_chmod(
    sys: *mut Sys,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        let update = AttrUpdate { mode: Some(mode & 0o7777), ..AttrUpdate::default() };
        change(mount, &path, 0, &update)
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_chown(
    sys: *mut Sys,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        change(mount, &path, flags, &owners(uid, gid))
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_setattr(
    sys: *mut Sys,
    path: *const c_char,
    stat: *mut libc::stat,
    flags: c_int,
    sys_flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: null or the caller's, by the contract.
        let stat = unsafe { place(stat) }.ok_or(Errno::INVAL)?;
        change(mount, &path, sys_flags, &update_of(stat, flags)?)
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_utimens(
    sys: *mut Sys,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: null or two times, by the contract.
        let [atime, mtime] = unsafe { items(times, 2) }.ok_or(Errno::INVAL)? else {
            return Err(Errno::INVAL);
        };
        let update = AttrUpdate {
            atime: time_of(atime.tv_sec, atime.tv_nsec)?,
            mtime: time_of(mtime.tv_sec, mtime.tv_nsec)?,
            ..AttrUpdate::default()
        };
        change(mount, &path, flags, &update)
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_stat(
    sys: *mut Sys,
    path: *const c_char,
    flags: c_int,
    stat: *mut libc::stat,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let stat = unsafe { place(stat) }.ok_or(Errno::INVAL)?;
        fill_stat(stat, &found(mount, &path, flags)?);
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_listxattr(
    sys: *mut Sys,
    path: *const c_char,
    names: *mut c_char,
    bytes: *mut u64,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        let oid = found(mount, &path, flags)?.oid;
        let list = mount.fs().listxattr(mount.caller(), oid)?;
        // SAFETY: by the contract.
        unsafe { hand_out(&list, names.cast(), bytes) }
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_getxattr(
    sys: *mut Sys,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    bytes: *mut u64,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: a C string, by the contract.
        let name = unsafe { c_bytes(name) }.ok_or(Errno::INVAL)?;
        let oid = found(mount, &path, flags)?.oid;
        let text = mount.fs().getxattr(mount.caller(), oid, name)?;
        // SAFETY: by the contract.
        unsafe { hand_out(&text, value.cast(), bytes) }
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_setxattr(
    sys: *mut Sys,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    bytes: u64,
    flags: c_int,
    sys_flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: a C string, and so many bytes, by the contract.
        let (name, value) = unsafe { (c_bytes(name), items(value.cast::<u8>(), bytes as usize)) };
        let (name, value) = (name.ok_or(Errno::INVAL)?, value.ok_or(Errno::INVAL)?);
        mount.check_writable()?;
        let oid = found(mount, &path, sys_flags)?.oid;
        mount.fs().setxattr(mount.caller(), oid, name, value, xattr_mode(flags)?)
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_removexattr(
    sys: *mut Sys,
    path: *const c_char,
    name: *const c_char,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: a C string, by the contract.
        let name = unsafe { c_bytes(name) }.ok_or(Errno::INVAL)?;
        mount.check_writable()?;
        let oid = found(mount, &path, flags)?.oid;
        mount.fs().removexattr(mount.caller(), oid, name)
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_readlink(
    sys: *mut Sys,
    path: *const c_char,
    text: *mut c_char,
    bytes: *mut u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: by the contract.
        unsafe { hand_out_text(mount.names().read_link(path)?, text, bytes) }
    })
}

/// Makes something at a path.
fn make(
    mount: &Mount,
    path: &[u8],
    mode: mode_t,
    what: NewEntry<'_>,
    (class_id, chunk_bytes): (u32, u64),
) -> Result<(), Errno> {
    mount.check_writable()?;
    let striping = striping_of(class_id, chunk_bytes)?;
    if path.iter().all(|byte| *byte == b'/') {
        return Err(Errno::EXIST);
    }
    let (dir, name) = split(mount, path)?;
    mount.fs().make_as(mount.caller(), dir, &name, mode & 0o7777, what, striping).map(drop)
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_symlink(
    sys: *mut Sys,
    text: *const c_char,
    path: *const c_char,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: a C string, by the contract.
        let text = unsafe { c_bytes(text) }.ok_or(Errno::INVAL)?;
        make(mount, &path, 0o777, NewEntry::Symlink(text), (0, 0))
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_mknod(
    sys: *mut Sys,
    path: *const c_char,
    mode: mode_t,
    class_id: u32,
    chunk_bytes: u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        let what = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => NewEntry::Regular,
            libc::S_IFIFO => NewEntry::Fifo,
            libc::S_IFDIR => NewEntry::Directory,
            libc::S_IFSOCK => NewEntry::Socket,
            _ => return Err(Errno::INVAL),
        };
        make(mount, &path, mode, what, (class_id, chunk_bytes))
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_mkdir(
    sys: *mut Sys,
    path: *const c_char,
    mode: mode_t,
    class_id: u32,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        make(mount, &path, mode, NewEntry::Directory, (class_id, 0))
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_mkdir_p(
    sys: *mut Sys,
    path: *const c_char,
    mode: mode_t,
    class_id: u32,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for end in ends.map(|(at, _)| at).chain([path.len()]) {
            match make(mount, &path[..end], mode, NewEntry::Directory, (class_id, 0)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        let attr = found(mount, &path, 0)?;
        if attr.kind == FileKind::Directory { Ok(()) } else { Err(Errno::NOTDIR) }
    })
}

/// Removes what a path leads to; a kind of 0 is any.
fn remove_kind(
    mount: &Mount,
    path: &[u8],
    force: bool,
    kind: mode_t,
) -> Result<Option<Oid>, Errno> {
    mount.check_writable()?;
    let (dir, name) = split(mount, path)?;
    let attr = mount.fs().lookup(mount.caller(), dir, &name)?;
    let of_kind = kind & libc::S_IFMT == 0 || attr.kind.mode_bits() == kind & libc::S_IFMT;
    if !of_kind {
        let wants_dir = kind & libc::S_IFMT == libc::S_IFDIR;
        return Err(if wants_dir { Errno::NOTDIR } else { Errno::INVAL });
    }
    remove(mount, dir, &name, force)?;
    Ok(Some(attr.oid))
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_remove(
    sys: *mut Sys,
    path: *const c_char,
    force: bool,
    oid: *mut ObjectId,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { dfs_sys_remove_type(sys, path, force, 0, oid) }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_remove_type(
    sys: *mut Sys,
    path: *const c_char,
    force: bool,
    kind: mode_t,
    oid: *mut ObjectId,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        let gone = remove_kind(mount, &path, force, kind)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put_oid(oid, gone) };
        Ok(())
    })
}
