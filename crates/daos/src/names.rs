//! Calls about names: make, remove, move, and attributes.

use std::ffi::{c_char, c_int};

use azekura_posix::{Access, AttrUpdate, Errno, NewEntry, Oid, RenameMode};
use libc::mode_t;

use crate::mount::{Mount, mounted};
use crate::object::{Object, name_of, opened, parent_of, striping_of};
use crate::stat::fill_stat;
use crate::status::dfs_call;
use crate::types::{ObjectId, c_bytes, place};

/// Any of these bits in a mask asks for more than whether the name is there.
const MASK_BITS: c_int = libc::R_OK | libc::W_OK | libc::X_OK;

/// As [`name_of`]; `None` where the parent itself is meant.
///
/// # Safety
/// As [`name_of`].
pub(crate) unsafe fn name_or_parent<'a>(name: *const c_char) -> Result<Option<&'a [u8]>, Errno> {
    // SAFETY: the caller's promise.
    match unsafe { c_bytes(name) } {
        None | Some(b"/") => Ok(None),
        // SAFETY: the caller's promise.
        Some(_) => unsafe { name_of(name) }.map(Some),
    }
}

/// Gives an object id out, if the caller wants it.
///
/// # Safety
/// `place` is null or may be written to.
pub(crate) unsafe fn put_oid(out: *mut ObjectId, oid: Option<Oid>) {
    // SAFETY: the caller's promise.
    if let Some(out) = unsafe { place(out) } {
        *out = oid.map_or(ObjectId::NONE, ObjectId::of);
    }
}

/// The object that a name leads to, if the caller wants to know.
fn oid_if(wanted: bool, mount: &Mount, dir: Oid, name: &[u8]) -> Option<Oid> {
    // Where the lookup fails, the call itself tells why.
    if wanted {
        mount.fs().lookup(mount.caller(), dir, name).ok().map(|attr| attr.oid)
    } else {
        None
    }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_mkdir(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    mode: mode_t,
    class_id: u32,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_of(name)?) };
        mount.check_writable()?;
        let striping = striping_of(class_id, 0)?;
        let what = NewEntry::Directory;
        mount.fs().make_as(mount.caller(), dir, name, mode & 0o7777, what, striping).map(drop)
    })
}

/// Removes anything; with `force` also a directory that is not empty.
pub(crate) fn remove(mount: &Mount, dir: Oid, name: &[u8], force: bool) -> Result<(), Errno> {
    match mount.fs().unlink(mount.caller(), dir, name) {
        Err(Errno::ISDIR) => match mount.fs().rmdir(mount.caller(), dir, name) {
            Err(Errno::NOTEMPTY) if force => mount.names().at(dir).remove_dir_all(name),
            other => other,
        },
        other => other,
    }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_remove(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    force: bool,
    oid: *mut ObjectId,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_of(name)?) };
        mount.check_writable()?;
        let gone = oid_if(!oid.is_null(), mount, dir, name);
        remove(mount, dir, name, force)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put_oid(oid, gone) };
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_move(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    new_parent: *mut Object,
    new_name: *const c_char,
    oid: *mut ObjectId,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (from, from_name) = unsafe { (parent_of(mount, parent)?, name_of(name)?) };
        // SAFETY: by the contract.
        let (to, to_name) = unsafe { (parent_of(mount, new_parent)?, name_of(new_name)?) };
        mount.check_writable()?;
        let gone = oid_if(!oid.is_null(), mount, to, to_name);
        let mode = RenameMode::Replace;
        mount.fs().rename(mount.caller(), from, from_name, to, to_name, mode)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put_oid(oid, gone) };
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_stat(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    stat: *mut libc::stat,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_or_parent(name)?) };
        // SAFETY: null or the caller's to write to, by the contract.
        let stat = unsafe { place(stat) }.ok_or(Errno::INVAL)?;
        let attr = match name {
            Some(name) => mount.fs().lookup(mount.caller(), dir, name)?,
            None => mount.fs().getattr(dir)?,
        };
        fill_stat(stat, &attr);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_ostat(
    dfs: *mut Mount,
    object: *mut Object,
    stat: *mut libc::stat,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: null or the caller's to write to, by the contract.
        let stat = unsafe { place(stat) }.ok_or(Errno::INVAL)?;
        fill_stat(stat, &mount.fs().getattr(object.oid())?);
        Ok(())
    })
}

/// What a name leads to, symlinks followed.
pub(crate) fn followed(mount: &Mount, dir: Oid, name: Option<&[u8]>) -> Result<Oid, Errno> {
    match name {
        Some(name) => mount.names().at(dir).resolve(name, true).map(|attr| attr.oid),
        None => Ok(dir),
    }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_access(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    mask: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_or_parent(name)?) };
        if mask & !MASK_BITS != 0 {
            return Err(Errno::INVAL);
        }
        let oid = followed(mount, dir, name)?;
        if mask == libc::F_OK {
            return if name.is_none() { mount.fs().getattr(oid).map(drop) } else { Ok(()) };
        }
        if mask & libc::W_OK != 0 {
            mount.check_writable()?;
        }
        let wanted = Access {
            read: mask & libc::R_OK != 0,
            write: mask & libc::W_OK != 0,
            execute: mask & libc::X_OK != 0,
        };
        mount.fs().access(mount.caller(), oid, wanted)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_chmod(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    mode: mode_t,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_or_parent(name)?) };
        mount.check_writable()?;
        let update = AttrUpdate { mode: Some(mode & 0o7777), ..AttrUpdate::default() };
        let oid = followed(mount, dir, name)?;
        mount.fs().setattr(mount.caller(), oid, None, &update).map(drop)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_update_parent(
    object: *mut Object,
    other: *mut Object,
    name: *const c_char,
) -> c_int {
    dfs_call(|| {
        // An object is known by its id, whatever it is called and wherever.
        // SAFETY: by the contract.
        unsafe {
            opened(object)?;
            opened(other)?;
            if !name.is_null() {
                name_of(name)?;
            }
        }
        Ok(())
    })
}
