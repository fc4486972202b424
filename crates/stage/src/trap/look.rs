//! Looking at what is in a map without its content: attributes, symlinks, permissions. Owns the form in which
//! the kernel answers; a file that has not come looks as it will when it has.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use azekura_proto::FileKind;
use azekura_proto::staging::{Attributes, MapKind};
use libc::{c_int, statx};
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::caller::{Caller, errno};
use super::calls::Room;
use super::maps::{Maps, Settled, own_path};
use super::open::look;
use super::places::Place;
use crate::sys::memory::{self, Plain as _};

const TYPE_BITS: u16 = libc::S_IFMT as u16;
/// Of what has not come: what a file system commonly says.
const BLOCK_BYTES: u32 = 4096;
/// The longest value of an extended attribute, and list of their names.
const XATTR_BYTES_MAX: u64 = 64 * 1024;

/// The attributes of what is at a place.
pub(super) fn attributes(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    follow: bool,
    mask: u32,
) -> Result<statx, Errno> {
    see(maps, caller, place, follow, mask).map(|(found, _)| found)
}

/// The same, and what may be done in the map that it lies in; that is none for what lies outside of all.
fn see(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    follow: bool,
    mask: u32,
) -> Result<(statx, Option<MapKind>), Errno> {
    let mask = mask | libc::STATX_TYPE;
    if let Some(fd) = find_in_tree(maps, place, follow) {
        let found = statx_at(fd.as_fd(), b"", libc::AT_EMPTY_PATH, mask)?;
        // A directory of the tree is not the one at home.
        if found.stx_mode & TYPE_BITS != libc::S_IFDIR as u16 {
            return Ok(as_at_home(found, Some(maps.of(place).kind)));
        }
    }
    match look(maps, place, follow)? {
        Settled::Local(path) => {
            let found = statx_at(CWD, &path, libc::AT_SYMLINK_NOFOLLOW, mask)?;
            Ok(as_at_home(found, maps.kind_of(&path)))
        }
        Settled::Outside(path) => {
            let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
            Ok((statx_at(CWD, &caller.path_here(&path), flags, mask)?, None))
        }
        Settled::Away { attributes, inode, kind } => {
            Ok((statx_of(&attributes, inode, maps.of(place).device), Some(kind)))
        }
    }
}

fn find_in_tree(maps: &Maps, place: &Place, follow: bool) -> Option<OwnedFd> {
    let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
    maps.open_in_tree(place, flags)
}

pub(super) fn statx_at(
    dir: BorrowedFd,
    path: &[u8],
    flags: c_int,
    mask: u32,
) -> Result<statx, Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    memory::statx(dir, &path, flags, mask).map_err(|error| errno(&error))
}

/// A file that is only read has one name at home; on the node, its list may hold another.
fn as_at_home(mut found: statx, kind: Option<MapKind>) -> (statx, Option<MapKind>) {
    let is_regular = found.stx_mode & TYPE_BITS == libc::S_IFREG as u16;
    if is_regular && kind == Some(MapKind::ReadOnly) {
        found.stx_nlink = 1;
    }
    (found, kind)
}

/// What the kernel would say of a file that has come.
fn statx_of(attributes: &Attributes, inode: u64, device: (u32, u32)) -> statx {
    let mut made = statx::zeroed();
    made.stx_mask = libc::STATX_BASIC_STATS;
    made.stx_blksize = BLOCK_BYTES;
    // A directory with one link has no known number of subdirectories (as on btrfs).
    made.stx_nlink = 1;
    made.stx_uid = rustix::process::geteuid().as_raw();
    made.stx_gid = rustix::process::getegid().as_raw();
    made.stx_mode = (attributes.kind.mode_bits() | attributes.mode) as u16;
    made.stx_ino = inode;
    made.stx_size = attributes.size;
    made.stx_blocks = attributes.size.div_ceil(u64::from(BLOCK_BYTES)) * 8;
    made.stx_mtime.tv_sec = attributes.mtime.secs;
    made.stx_mtime.tv_nsec = attributes.mtime.nanos;
    made.stx_atime = made.stx_mtime;
    made.stx_ctime = made.stx_mtime;
    (made.stx_dev_major, made.stx_dev_minor) = device;
    made
}

/// The same in the older form.
pub(super) fn stat_of(found: &statx) -> libc::stat {
    let mut made = libc::stat::zeroed();
    made.st_dev = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    made.st_rdev = libc::makedev(found.stx_rdev_major, found.stx_rdev_minor);
    made.st_ino = found.stx_ino;
    made.st_nlink = found.stx_nlink.into();
    made.st_mode = found.stx_mode.into();
    made.st_uid = found.stx_uid;
    made.st_gid = found.stx_gid;
    made.st_size = found.stx_size as i64;
    made.st_blksize = found.stx_blksize.into();
    made.st_blocks = found.stx_blocks as i64;
    (made.st_atime, made.st_atime_nsec) = (found.stx_atime.tv_sec, found.stx_atime.tv_nsec.into());
    (made.st_mtime, made.st_mtime_nsec) = (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into());
    (made.st_ctime, made.st_ctime_nsec) = (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec.into());
    made
}

/// Whether the caller may do what it asks about, as access(2) says it.
pub(super) fn access(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    mode: u32,
    follow: bool,
) -> Result<(), Errno> {
    if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) as u32 != 0 {
        return Err(Errno::INVAL);
    }
    let (found, kind) = see(maps, caller, place, follow, libc::STATX_BASIC_STATS)?;
    if mode & libc::W_OK as u32 != 0 && kind == Some(MapKind::ReadOnly) {
        return Err(Errno::ROFS);
    }
    // The bits of access(2) are those of a mode.
    let bits = u32::from(found.stx_mode);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let allowed = if uid == 0 {
        let is_directory = found.stx_mode & TYPE_BITS == libc::S_IFDIR as u16;
        if is_directory || bits & 0o111 != 0 { 7 } else { 6 }
    } else if uid == found.stx_uid {
        bits >> 6
    } else if gid == found.stx_gid {
        bits >> 3
    } else {
        bits
    };
    if mode & !allowed == 0 { Ok(()) } else { Err(Errno::ACCESS) }
}

/// The text of a symlink.
pub(super) fn read_link(maps: &Maps, caller: &Caller, place: &Place) -> Result<Vec<u8>, Errno> {
    if let Some(fd) = find_in_tree(maps, place, false) {
        return link_text(fd.as_fd(), b"");
    }
    match look(maps, place, false)? {
        Settled::Local(path) => link_text(CWD, &path),
        Settled::Outside(path) => link_text(CWD, &caller.path_here(&path)),
        Settled::Away { attributes, .. } if attributes.kind == FileKind::Symlink => {
            Ok(attributes.link)
        }
        Settled::Away { .. } => Err(Errno::INVAL),
    }
}

fn link_text(dir: BorrowedFd, path: &[u8]) -> Result<Vec<u8>, Errno> {
    match rustix::fs::readlinkat(dir, path, Vec::new()) {
        Ok(text) => Ok(text.into_bytes()),
        // So the kernel says of a descriptor that is none of a symlink.
        Err(Errno::NOENT) if path.is_empty() => Err(Errno::INVAL),
        Err(error) => Err(error),
    }
}

/// What is on the file system of a place, if there is something at that place.
pub(super) fn file_system(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
) -> Result<libc::statfs, Errno> {
    attributes(maps, caller, place, true, 0)?;
    memory::statfs(maps.of(place).tree.as_fd()).map_err(|error| errno(&error))
}

/// An extended attribute's value (with a name), or all names.
pub(super) fn extended(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    follow: bool,
    name: Option<&[u8]>,
) -> Result<Vec<u8>, Errno> {
    let path = match find_in_tree(maps, place, follow) {
        Some(fd) => return extended_at(&own_path(&fd), true, name),
        None => match look(maps, place, follow)? {
            Settled::Local(path) => path,
            Settled::Outside(path) => caller.path_here(&path),
            // They do not travel.
            Settled::Away { .. } if name.is_some() => return Err(Errno::NODATA),
            Settled::Away { .. } => return Ok(Vec::new()),
        },
    };
    extended_at(&path, follow, name)
}

fn extended_at(path: &[u8], follow: bool, name: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
    use rustix::fs::{getxattr, lgetxattr, listxattr, llistxattr};
    let mut value = vec![0_u8; XATTR_BYTES_MAX as usize];
    let bytes = match (name, follow) {
        (Some(name), true) => getxattr(path, name, &mut value[..]),
        (Some(name), false) => lgetxattr(path, name, &mut value[..]),
        (None, true) => listxattr(path, &mut value[..]),
        (None, false) => llistxattr(path, &mut value[..]),
    }?;
    value.truncate(bytes);
    Ok(value)
}

/// Puts bytes where the caller wants them and returns their number; with no room, only the number.
pub(super) fn put_sized(caller: &Caller, into: Room, bytes: &[u8]) -> Result<i64, Errno> {
    if into.bytes != 0 {
        if bytes.len() as u64 > into.bytes {
            return Err(Errno::RANGE);
        }
        caller.put_bytes(into.address, bytes)?;
    }
    Ok(bytes.len() as i64)
}

/// Whether a call with these flags follows a symlink at the end of its path.
pub(super) fn follows(flags: c_int) -> bool {
    !AtFlags::from_bits_retain(flags as u32).contains(AtFlags::SYMLINK_NOFOLLOW)
}
