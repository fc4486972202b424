//! Calls about names: make, remove, move, and attributes. Owns how a parent and a name are given.

use std::ffi::{c_char, c_int};

use azekura_posix::{Access, Attr, AttrUpdate, Errno, NewEntry, Oid, RenameMode, Timestamp};
use libc::mode_t;

use crate::mount::{Mount, mounted};
use crate::object::{Object, layout_of, mode_of, opened};
use crate::status::dfs_call;
use crate::types::{ObjectId, c_bytes, place};

/// Any of these bits in a mask asks for more than whether the name is there.
const MASK_BITS: c_int = libc::R_OK | libc::W_OK | libc::X_OK;

/// The directory that a caller means; null is the root.
///
/// # Safety
/// `parent` is null or open.
pub(crate) unsafe fn parent_of(mount: &Mount, parent: *const Object) -> Result<Oid, Errno> {
    if parent.is_null() {
        return Ok(mount.fs().root());
    }
    // SAFETY: the caller's promise.
    unsafe { opened(parent) }?.directory()
}

/// One name; `EINVAL` for a path or none.
///
/// # Safety
/// `name` is null or a C string that lives for `'a`.
pub(crate) unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8], Errno> {
    // SAFETY: the caller's promise.
    match unsafe { c_bytes(name) } {
        None | Some(b"") => Err(Errno::INVAL),
        Some(name) if name.contains(&b'/') => Err(Errno::INVAL),
        Some(name) => Ok(name),
    }
}

/// As [`name_of`]; `None` where the parent itself is meant.
///
/// # Safety
/// As [`name_of`].
unsafe fn name_or_parent<'a>(name: *const c_char) -> Result<Option<&'a [u8]>, Errno> {
    // SAFETY: the caller's promise.
    match unsafe { c_bytes(name) } {
        None | Some(b"/") => Ok(None),
        // SAFETY: the caller's promise.
        Some(_) => unsafe { name_of(name) }.map(Some),
    }
}

fn timespec(time: Timestamp) -> (i64, i64) {
    (time.secs, i64::from(time.nanos))
}

/// Attributes as `stat` has them.
pub(crate) fn fill_stat(stat: &mut libc::stat, attr: &Attr) {
    // SAFETY: all fields are integers, for which zero is a value.
    *stat = unsafe { std::mem::zeroed() };
    stat.st_dev = u64::from(attr.oid.container().0);
    stat.st_ino = attr.oid.inode_number();
    stat.st_mode = mode_of(attr);
    stat.st_nlink = attr.nlink.into();
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev;
    stat.st_size = attr.size.cast_signed();
    stat.st_blocks = attr.blocks_512.cast_signed();
    stat.st_blksize = attr.chunk_bytes.into();
    (stat.st_atime, stat.st_atime_nsec) = timespec(attr.atime);
    (stat.st_mtime, stat.st_mtime_nsec) = timespec(attr.mtime);
    (stat.st_ctime, stat.st_ctime_nsec) = timespec(attr.ctime);
}

/// Gives an object id out, if the caller wants it.
///
/// # Safety
/// `place` is null or may be written to.
unsafe fn put_oid(out: *mut ObjectId, oid: Option<Oid>) {
    // SAFETY: the caller's promise.
    if let Some(out) = unsafe { place(out) } {
        let value = oid.map_or(0, |oid| u128::from_be_bytes(oid.to_bytes()));
        *out = ObjectId { lo: value as u64, hi: (value >> 64) as u64 };
    }
}

/// The object that a name leads to, if the caller wants to know.
fn oid_if(wanted: bool, mount: &Mount, dir: Oid, name: &[u8]) -> Option<Oid> {
    // Whether the name is there, the call itself finds out.
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
        let layout = layout_of(class_id, 0)?;
        let what = NewEntry::Directory;
        mount.fs().make_as(mount.caller(), dir, name, mode & 0o7777, what, layout).map(drop)
    })
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
        match mount.fs().unlink(mount.caller(), dir, name) {
            Err(Errno::ISDIR) => match mount.fs().rmdir(mount.caller(), dir, name) {
                Err(Errno::NOTEMPTY) if force => mount.names().at(dir).remove_dir_all(name)?,
                other => other?,
            },
            other => other?,
        }
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
fn followed(mount: &Mount, dir: Oid, name: Option<&[u8]>) -> Result<Oid, Errno> {
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
