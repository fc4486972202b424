//! Extended attributes, by path and by handle.

use std::ffi::c_int;

use azekura_posix::{Errno, XattrMode};

use crate::call::{count, status};
use crate::container::Container;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::file::File;
use crate::pointers::{Bytes, Room, Text, hand_out, handle};

fn mode(flags: c_int) -> Outcome<XattrMode> {
    match flags {
        0 => Ok(XattrMode::Set),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Failure::with(Errno::INVAL, "use 0, XATTR_CREATE or XATTR_REPLACE")),
    }
}

/// `azekura_getxattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_getxattr(
    container: Option<&Container>,
    path: Text<'_>,
    name: Text<'_>,
    value: Room<'_>,
    capacity: usize,
) -> isize {
    count("azekura_getxattr", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        let name = name.bytes("name")?;
        // SAFETY: `capacity` is the room in `value`.
        let room = unsafe { value.slice(capacity, "value") }?;
        let found = container.names.get_xattr(path, name).about(Subject::Path(path))?;
        hand_out(&found, room).about(Subject::Path(path))
    })
}

/// `azekura_fgetxattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fgetxattr(
    file: Option<&File>,
    name: Text<'_>,
    value: Room<'_>,
    capacity: usize,
) -> isize {
    count("azekura_fgetxattr", || {
        let (file, name) = (handle(file, "file")?, name.bytes("name")?);
        // SAFETY: `capacity` is the room in `value`.
        let room = unsafe { value.slice(capacity, "value") }?;
        let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
        let found = fs.getxattr(file.names.caller(), oid, name).about(file.subject())?;
        hand_out(&found, room).about(file.subject())
    })
}

/// `azekura_setxattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_setxattr(
    container: Option<&Container>,
    path: Text<'_>,
    name: Text<'_>,
    value: Bytes<'_>,
    bytes: usize,
    flags: c_int,
) -> c_int {
    status("azekura_setxattr", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        let name = name.bytes("name")?;
        // SAFETY: `bytes` is the length of `value`.
        let value = unsafe { value.slice(bytes, "value") }?;
        container.names.set_xattr(path, name, value, mode(flags)?).about(Subject::Path(path))
    })
}

/// `azekura_fsetxattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fsetxattr(
    file: Option<&File>,
    name: Text<'_>,
    value: Bytes<'_>,
    bytes: usize,
    flags: c_int,
) -> c_int {
    status("azekura_fsetxattr", || {
        let (file, name) = (handle(file, "file")?, name.bytes("name")?);
        // SAFETY: `bytes` is the length of `value`.
        let value = unsafe { value.slice(bytes, "value") }?;
        let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
        fs.setxattr(file.names.caller(), oid, name, value, mode(flags)?).about(file.subject())
    })
}

/// `azekura_listxattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_listxattr(
    container: Option<&Container>,
    path: Text<'_>,
    names: Room<'_>,
    capacity: usize,
) -> isize {
    count("azekura_listxattr", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        // SAFETY: `capacity` is the room in `names`.
        let room = unsafe { names.slice(capacity, "names") }?;
        let found = container.names.list_xattrs(path).about(Subject::Path(path))?;
        hand_out(&found, room).about(Subject::Path(path))
    })
}

/// `azekura_flistxattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_flistxattr(
    file: Option<&File>,
    names: Room<'_>,
    capacity: usize,
) -> isize {
    count("azekura_flistxattr", || {
        let file = handle(file, "file")?;
        // SAFETY: `capacity` is the room in `names`.
        let room = unsafe { names.slice(capacity, "names") }?;
        let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
        let found = fs.listxattr(file.names.caller(), oid).about(file.subject())?;
        hand_out(&found, room).about(file.subject())
    })
}

/// `azekura_removexattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_removexattr(
    container: Option<&Container>,
    path: Text<'_>,
    name: Text<'_>,
) -> c_int {
    status("azekura_removexattr", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.remove_xattr(path, name.bytes("name")?).about(Subject::Path(path))
    })
}

/// `azekura_fremovexattr`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fremovexattr(file: Option<&File>, name: Text<'_>) -> c_int {
    status("azekura_fremovexattr", || {
        let (file, name) = (handle(file, "file")?, name.bytes("name")?);
        let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
        fs.removexattr(file.names.caller(), oid, name).about(file.subject())
    })
}
