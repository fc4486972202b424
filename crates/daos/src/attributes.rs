//! Calls about the attributes of open objects: owner, times and length, extended attributes, the text of
//! a symlink, and what an object is.

use std::ffi::{c_char, c_int, c_void};

use azekura_posix::{AttrUpdate, Errno, FileKind, RenameMode, SetTime, Timestamp, XattrMode};
use libc::mode_t;

use crate::class::id_of;
use crate::mount::{Mount, mounted};
use crate::names::{followed, name_or_parent};
use crate::object::{Object, flags_of, name_of, opened, parent_of};
use crate::stat::{fill_stat, mode_of};
use crate::status::dfs_call;
use crate::types::{ObjectId, ObjectInfo, c_bytes, items, place};

/// What `dfs_osetattr` is to change.
const SET_MODE: c_int = 1;
const SET_ATIME: c_int = 1 << 1;
const SET_MTIME: c_int = 1 << 2;
const SET_SIZE: c_int = 1 << 3;
const SET_UID: c_int = 1 << 4;
const SET_GID: c_int = 1 << 5;
/// All of these.
const SET_ALL: c_int = (1 << 6) - 1;

/// A time as `utimensat` takes it; `None` where it stays.
pub(crate) fn time_of(secs: i64, nanos: i64) -> Result<Option<SetTime>, Errno> {
    match nanos {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        0..1_000_000_000 => Ok(Some(SetTime::At(Timestamp { secs, nanos: nanos as u32 }))),
        _ => Err(Errno::INVAL),
    }
}

/// The change that a `stat` structure describes.
pub(crate) fn update_of(stat: &libc::stat, flags: c_int) -> Result<AttrUpdate, Errno> {
    if flags & !SET_ALL != 0 {
        return Err(Errno::INVAL);
    }
    let has = |flag| flags & flag != 0;
    let size = u64::try_from(stat.st_size).map_err(|_| Errno::INVAL);
    Ok(AttrUpdate {
        mode: has(SET_MODE).then_some(stat.st_mode & 0o7777),
        uid: has(SET_UID).then_some(stat.st_uid),
        gid: has(SET_GID).then_some(stat.st_gid),
        size: has(SET_SIZE).then_some(size).transpose()?,
        atime: if has(SET_ATIME) { time_of(stat.st_atime, stat.st_atime_nsec)? } else { None },
        mtime: if has(SET_MTIME) { time_of(stat.st_mtime, stat.st_mtime_nsec)? } else { None },
        ..AttrUpdate::default()
    })
}

/// The owners that `chown` is to set; all ones stand for the one that it has.
pub(crate) fn owners(uid: u32, gid: u32) -> AttrUpdate {
    let given = |id| (id != u32::MAX).then_some(id);
    AttrUpdate { uid: given(uid), gid: given(gid), ..AttrUpdate::default() }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_osetattr(
    dfs: *mut Mount,
    object: *mut Object,
    stat: *mut libc::stat,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: null or the caller's, by the contract.
        let stat = unsafe { place(stat) }.ok_or(Errno::INVAL)?;
        mount.check_writable()?;
        let update = update_of(stat, flags)?;
        let file = object.file().ok();
        let attr = mount.fs().setattr(mount.caller(), object.oid(), file, &update)?;
        fill_stat(stat, &attr);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_chown(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    uid: u32,
    gid: u32,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_or_parent(name)?) };
        mount.check_writable()?;
        let oid = match name {
            Some(name) if flags & libc::O_NOFOLLOW != 0 => {
                mount.fs().lookup(mount.caller(), dir, name)?.oid
            }
            name => followed(mount, dir, name)?,
        };
        mount.fs().setattr(mount.caller(), oid, None, &owners(uid, gid)).map(drop)
    })
}

/// How a value is set.
pub(crate) fn xattr_mode(flags: c_int) -> Result<XattrMode, Errno> {
    match flags {
        0 => Ok(XattrMode::Set),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::INVAL),
    }
}

/// Gives bytes out: only how many there are where the caller has no room yet.
///
/// # Safety
/// `bytes` is null or has the room at `to`, if that is not null, and may be written to.
pub(crate) unsafe fn hand_out(found: &[u8], to: *mut u8, bytes: *mut u64) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { place(bytes) }.ok_or(Errno::INVAL)?;
    let room = std::mem::replace(bytes, found.len() as u64);
    if to.is_null() || room == 0 {
        return Ok(());
    }
    if room < found.len() as u64 {
        return Err(Errno::RANGE);
    }
    // SAFETY: there is room for so many, as was just checked.
    unsafe { to.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
    Ok(())
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_setxattr(
    dfs: *mut Mount,
    object: *mut Object,
    name: *const c_char,
    value: *const c_void,
    bytes: u64,
    flags: c_int,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: a C string, and so many bytes, by the contract.
        let (name, value) = unsafe { (c_bytes(name), items(value.cast::<u8>(), bytes as usize)) };
        let (name, value) = (name.ok_or(Errno::INVAL)?, value.ok_or(Errno::INVAL)?);
        mount.check_writable()?;
        mount.fs().setxattr(mount.caller(), object.oid(), name, value, xattr_mode(flags)?)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_getxattr(
    dfs: *mut Mount,
    object: *mut Object,
    name: *const c_char,
    value: *mut c_void,
    bytes: *mut u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: a C string, by the contract.
        let name = unsafe { c_bytes(name) }.ok_or(Errno::INVAL)?;
        let found = mount.fs().getxattr(mount.caller(), object.oid(), name)?;
        // SAFETY: by the contract.
        unsafe { hand_out(&found, value.cast(), bytes) }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_removexattr(
    dfs: *mut Mount,
    object: *mut Object,
    name: *const c_char,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: a C string, by the contract.
        let name = unsafe { c_bytes(name) }.ok_or(Errno::INVAL)?;
        mount.check_writable()?;
        mount.fs().removexattr(mount.caller(), object.oid(), name)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_listxattr(
    dfs: *mut Mount,
    object: *mut Object,
    names: *mut c_char,
    bytes: *mut u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        let found = mount.fs().listxattr(mount.caller(), object.oid())?;
        // SAFETY: by the contract.
        unsafe { hand_out(&found, names.cast(), bytes) }
    })
}

/// Gives the text of a symlink out as a C string, cut to the room that there is; `bytes` becomes the room
/// that all of it takes.
///
/// # Safety
/// As [`hand_out`].
pub(crate) unsafe fn hand_out_text(
    mut text: Vec<u8>,
    to: *mut c_char,
    bytes: *mut u64,
) -> Result<(), Errno> {
    text.push(0);
    // SAFETY: the caller's promise.
    let bytes = unsafe { place(bytes) }.ok_or(Errno::INVAL)?;
    let room = std::mem::replace(bytes, text.len() as u64);
    if to.is_null() || room == 0 {
        return Ok(());
    }
    let count = text.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    // SAFETY: there is room for so many.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
    Ok(())
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_get_symlink_value(
    object: *mut Object,
    text: *mut c_char,
    bytes: *mut u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let object = unsafe { opened(object) }?;
        if object.kind() != FileKind::Symlink {
            return Err(Errno::INVAL);
        }
        let found = object.fs().readlink(object.oid())?;
        // SAFETY: by the contract.
        unsafe { hand_out_text(found, text, bytes) }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj2id(object: *mut Object, id: *mut ObjectId) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let object = unsafe { opened(object) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        *unsafe { place(id) }.ok_or(Errno::INVAL)? = ObjectId::of(object.oid());
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_get_mode(object: *mut Object, mode: *mut mode_t) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let object = unsafe { opened(object) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let mode = unsafe { place(mode) }.ok_or(Errno::INVAL)?;
        *mode = mode_of(&object.fs().getattr(object.oid())?);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_get_chunk_size(object: *mut Object, bytes: *mut u64) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let object = unsafe { opened(object) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let bytes = unsafe { place(bytes) }.ok_or(Errno::INVAL)?;
        object.file()?;
        *bytes = object.fs().getattr(object.oid())?.chunk_bytes.into();
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_get_info(
    dfs: *mut Mount,
    object: *mut Object,
    info: *mut ObjectInfo,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: null or the caller's to write to, by the contract.
        let info = unsafe { place(info) }.ok_or(Errno::INVAL)?;
        let attr = mount.fs().getattr(object.oid())?;
        let defaults = attr.inheritance.unwrap_or(mount.fs().container().inheritance);
        *info = ObjectInfo {
            class: id_of(object.oid().class()),
            chunk_bytes: attr.chunk_bytes.into(),
            dir_class: id_of(defaults.dir_class),
            file_class: id_of(defaults.file_class),
            id: ObjectId::of(object.oid()),
        };
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_dup(
    dfs: *mut Mount,
    object: *mut Object,
    flags: c_int,
    other: *mut *mut Object,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: null or the caller's to write to, by the contract.
        let other = unsafe { place(other) }.ok_or(Errno::INVAL)?;
        let attr = mount.fs().getattr(object.oid())?;
        *other = Box::into_raw(Object::open(mount, &attr, flags_of(flags & libc::O_ACCMODE))?);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_exchange(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    other_parent: *mut Object,
    other_name: *const c_char,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (one, one_name) = unsafe { (parent_of(mount, parent)?, name_of(name)?) };
        // SAFETY: by the contract.
        let (two, two_name) = unsafe { (parent_of(mount, other_parent)?, name_of(other_name)?) };
        mount.check_writable()?;
        let mode = RenameMode::Exchange;
        mount.fs().rename(mount.caller(), one, one_name, two, two_name, mode)
    })
}
