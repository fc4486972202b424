//! The calls that work on names: directories, links, renames, removal.

use std::ffi::c_int;

use azekura_posix::{Access, Errno, FileKind, NewEntry, RenameMode};

use crate::call::{count, status};
use crate::container::Container;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::file::File;
use crate::pointers::{Room, Text, hand_out, handle};

/// `azekura_mkdir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_mkdir(
    container: Option<&Container>,
    path: Text<'_>,
    mode: u32,
) -> c_int {
    status("azekura_mkdir", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.create_dir(path, mode & 0o7777).map(drop).about(Subject::Path(path))
    })
}

/// `azekura_mkdirs`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_mkdirs(
    container: Option<&Container>,
    path: Text<'_>,
    mode: u32,
) -> c_int {
    status("azekura_mkdirs", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.create_dir_all(path, mode & 0o7777).map(drop).about(Subject::Path(path))
    })
}

/// `azekura_rmdir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_rmdir(container: Option<&Container>, path: Text<'_>) -> c_int {
    status("azekura_rmdir", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.remove_dir(path).about(Subject::Path(path))
    })
}

/// `azekura_unlink`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_unlink(container: Option<&Container>, path: Text<'_>) -> c_int {
    status("azekura_unlink", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.remove_file(path).about(Subject::Path(path))
    })
}

/// `azekura_remove_tree`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_remove_tree(
    container: Option<&Container>,
    path: Text<'_>,
) -> c_int {
    status("azekura_remove_tree", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.remove_dir_all(path).about(Subject::Path(path))
    })
}

/// `azekura_rename`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_rename(
    container: Option<&Container>,
    from: Text<'_>,
    to: Text<'_>,
    flags: u32,
) -> c_int {
    status("azekura_rename", || {
        let container = handle(container, "container")?;
        let (from, to) = (from.bytes("from")?, to.bytes("to")?);
        let mode = match flags {
            0 => RenameMode::Replace,
            1 => RenameMode::NoReplace,
            2 => RenameMode::Exchange,
            _ => {
                let text = format!("rename flags {flags:#x} are not supported");
                return Err(Failure::with(Errno::INVAL, text));
            }
        };
        container.names.rename(from, to, mode).about(Subject::Paths(from, to))
    })
}

/// `azekura_link`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_link(
    container: Option<&Container>,
    from: Text<'_>,
    to: Text<'_>,
) -> c_int {
    status("azekura_link", || {
        let container = handle(container, "container")?;
        let (from, to) = (from.bytes("from")?, to.bytes("to")?);
        container.names.hard_link(from, to).about(Subject::Paths(from, to))
    })
}

/// `azekura_flink`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_flink(file: Option<&File>, to: Text<'_>) -> c_int {
    status("azekura_flink", || {
        let (file, to) = (handle(file, "file")?, to.bytes("to")?);
        let oid = file.open.handle().oid();
        file.names.link_object(oid, to).about(Subject::Path(to))
    })
}

/// `azekura_symlink`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_symlink(
    container: Option<&Container>,
    text: Text<'_>,
    path: Text<'_>,
) -> c_int {
    status("azekura_symlink", || {
        let container = handle(container, "container")?;
        let (text, path) = (text.bytes("text")?, path.bytes("path")?);
        container.names.symlink(text, path).map(drop).about(Subject::Path(path))
    })
}

/// `azekura_readlink`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_readlink(
    container: Option<&Container>,
    path: Text<'_>,
    buffer: Room<'_>,
    capacity: usize,
) -> isize {
    count("azekura_readlink", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        // SAFETY: `capacity` is the room in `buffer`.
        let room = unsafe { buffer.slice(capacity, "buffer") }?;
        let link = container.names.resolve(path, false).about(Subject::Path(path))?;
        if link.kind != FileKind::Symlink {
            return Err(Failure::with(Errno::INVAL, "not a symlink")).about(Subject::Path(path));
        }
        let text = container.fs().readlink(link.oid).about(Subject::Path(path))?;
        let length = hand_out(&text, room).about(Subject::Path(path))?;
        if let Some(end) = room.get_mut(length) {
            *end = 0;
        }
        Ok(length)
    })
}

/// The kind of a new node, from the type bits of its mode.
fn node(mode: u32, device: u64) -> Outcome<NewEntry<'static>> {
    match FileKind::from_mode(mode) {
        None if mode & libc::S_IFMT == 0 => Ok(NewEntry::Regular),
        Some(FileKind::Regular) => Ok(NewEntry::Regular),
        Some(FileKind::Fifo) => Ok(NewEntry::Fifo),
        Some(FileKind::Socket) => Ok(NewEntry::Socket),
        Some(FileKind::CharDevice) => Ok(NewEntry::CharDevice(device)),
        Some(FileKind::BlockDevice) => Ok(NewEntry::BlockDevice(device)),
        Some(FileKind::Directory | FileKind::Symlink) | None => {
            let text = "use azekura_mkdir and azekura_symlink for directories and symlinks";
            Err(Failure::with(Errno::INVAL, text))
        }
    }
}

/// `azekura_mknod`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_mknod(
    container: Option<&Container>,
    path: Text<'_>,
    mode: u32,
    device: u64,
) -> c_int {
    status("azekura_mknod", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        let what = node(mode, device)?;
        container.names.make_node(path, mode & 0o7777, what).map(drop).about(Subject::Path(path))
    })
}

/// `azekura_access`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_access(
    container: Option<&Container>,
    path: Text<'_>,
    mode: c_int,
) -> c_int {
    status("azekura_access", || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
            return Err(Failure::with(Errno::INVAL, "use F_OK, or some of R_OK, W_OK, X_OK"));
        }
        let wanted = Access {
            read: mode & libc::R_OK != 0,
            write: mode & libc::W_OK != 0,
            execute: mode & libc::X_OK != 0,
        };
        container.names.access(path, wanted).about(Subject::Path(path))
    })
}
