//! The calls by path. Owns what `dfs_sys_t` points at: a mount, whose calls these are with a walk of the
//! path before them.

mod data;
mod dir;
mod paths;

use std::ffi::{c_char, c_int};

use azekura_posix::{Attr, Errno, Oid};

use crate::connect::connect;
use crate::handles;
use crate::lent::{dfs_global2local_all, dfs_local2global_all};
use crate::mount::{Mount, dfs_global2local, dfs_local2global, dfs_set_prefix};
use crate::status::{dfs_call, errno_of_der};
use crate::types::{DfsAttr, Handle, Iov, c_bytes, c_text, place, put};

/// `dfs_sys_t`.
pub(crate) struct Sys {
    /// Came from `Box::into_raw`.
    mount: *mut Mount,
}

/// The mount that a caller means.
///
/// # Safety
/// `sys` is null or came from this library and is mounted for `'a`.
unsafe fn mounted<'a>(sys: *const Sys) -> Result<&'a Mount, Errno> {
    // SAFETY: the caller's promise; the mount lives as long as what holds it.
    unsafe { sys.as_ref().and_then(|sys| sys.mount.as_ref()) }.ok_or(Errno::INVAL)
}

/// The mount, and the path below its root.
///
/// # Safety
/// As [`mounted`]; `path` is null or a C string.
unsafe fn at_path<'a>(sys: *const Sys, path: *const c_char) -> Result<(&'a Mount, Vec<u8>), Errno> {
    // SAFETY: the caller's promise.
    let (mount, path) = unsafe { (mounted(sys)?, c_bytes(path).ok_or(Errno::INVAL)?) };
    Ok((mount, mount.path(path)?))
}

/// What a path leads to; a symlink at its end is followed unless `flags` say otherwise.
fn found(mount: &Mount, path: &[u8], flags: c_int) -> Result<Attr, Errno> {
    mount.names().resolve(path, flags & libc::O_NOFOLLOW == 0)
}

/// The directory that the last name of a path is in, and that name.
fn split(mount: &Mount, path: &[u8]) -> Result<(Oid, Vec<u8>), Errno> {
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    let path = &path[..path.len() - slashes];
    let at = path.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
    let (dir, name) = (&path[..=at], &path[at + 1..]);
    Ok((mount.names().resolve(dir, true)?.oid, name.to_vec()))
}

/// Gives a mount out.
///
/// # Safety
/// `out` may be written to.
unsafe fn give(mount: *mut Mount, out: *mut *mut Sys) {
    // SAFETY: the caller's promise.
    unsafe { put(out, Box::into_raw(Box::new(Sys { mount }))) };
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_connect(
    pool: *const c_char,
    _system: *const c_char,
    label: *const c_char,
    flags: c_int,
    _sys_flags: c_int,
    attr: *mut DfsAttr,
    sys: *mut *mut Sys,
) -> c_int {
    dfs_call(|| {
        if sys.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: C strings, and null or the caller's, by the contract.
        unsafe {
            let attr = place(attr);
            let mount = connect(c_text(pool), c_text(label), flags, attr.as_deref())?;
            give(Box::into_raw(mount), sys);
        }
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_disconnect(sys: *mut Sys) -> c_int {
    // SAFETY: by the contract.
    unsafe { dfs_sys_umount(sys) }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_mount(
    _pool: Handle,
    handle: Handle,
    flags: c_int,
    _sys_flags: c_int,
    sys: *mut *mut Sys,
) -> c_int {
    dfs_call(|| {
        if sys.is_null() {
            return Err(Errno::INVAL);
        }
        let open = handles::container(handle).map_err(errno_of_der)?;
        let mount = Mount::new(&open, flags)?;
        // SAFETY: not null, so the caller's to write to, by the contract.
        unsafe { give(Box::into_raw(mount), sys) };
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_umount(sys: *mut Sys) -> c_int {
    dfs_call(|| {
        if sys.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: both came from `Box::into_raw` and are not used after this, by the contract.
        unsafe {
            let sys = Box::from_raw(sys);
            drop(Box::from_raw(sys.mount));
        }
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys2base(sys: *mut Sys, dfs: *mut *mut Mount) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract. Other threads may use the mount meanwhile.
        let (sys, dfs) = unsafe { (sys.as_ref(), place(dfs)) };
        *dfs.ok_or(Errno::INVAL)? = sys.ok_or(Errno::INVAL)?.mount;
        Ok(())
    })
}

/// The mount as the calls of `dfs_*` take it.
///
/// # Safety
/// As [`mounted`].
unsafe fn base(sys: *const Sys) -> *mut Mount {
    // SAFETY: the caller's promise.
    unsafe { sys.as_ref() }.map_or(std::ptr::null_mut(), |sys| sys.mount)
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_set_prefix(sys: *mut Sys, prefix: *const c_char) -> c_int {
    // SAFETY: by the contract.
    unsafe { dfs_set_prefix(base(sys), prefix) }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_local2global(sys: *mut Sys, iov: *mut Iov) -> c_int {
    // SAFETY: by the contract.
    unsafe { dfs_local2global(base(sys), iov) }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_global2local(
    pool: Handle,
    handle: Handle,
    flags: c_int,
    _sys_flags: c_int,
    iov: Iov,
    sys: *mut *mut Sys,
) -> c_int {
    if sys.is_null() {
        return libc::EINVAL;
    }
    let mut mount = std::ptr::null_mut();
    // SAFETY: by the contract; the mount is given out only if there is one.
    unsafe {
        let rc = dfs_global2local(pool, handle, flags, iov, &raw mut mount);
        if rc == 0 {
            give(mount, sys);
        }
        rc
    }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_local2global_all(sys: *mut Sys, iov: *mut Iov) -> c_int {
    // SAFETY: by the contract.
    unsafe { dfs_local2global_all(base(sys), iov) }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_global2local_all(
    flags: c_int,
    _sys_flags: c_int,
    iov: Iov,
    sys: *mut *mut Sys,
) -> c_int {
    if sys.is_null() {
        return libc::EINVAL;
    }
    let mut mount = std::ptr::null_mut();
    // SAFETY: by the contract; the mount is given out only if there is one.
    unsafe {
        let rc = dfs_global2local_all(flags, iov, &raw mut mount);
        if rc == 0 {
            give(mount, sys);
        }
        rc
    }
}
