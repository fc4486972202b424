//! What several procedures have in their arguments or results (RFC 1813, section 2.6): handles, names,
//! attributes and weak cache consistency data.

use azekura_posix::{Attr, AttrUpdate, ChangeMark, FileKind, SetTime, Timestamp};

use super::status::Status;
use crate::xdr::{Garbage, Reader, Writer};

/// Longest `nfs_fh3`, in bytes.
const HANDLE_BYTES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 255;
/// A name longer than that is no name but garbage.
const NAME_BYTES_DECODED_MAX: usize = 64 << 10;
/// Bytes of `post_op_attr` with attributes in it.
pub(crate) const ATTR_BYTES: usize = 4 + 84;

/// `diropargs3`: a directory's handle, and a name in it or what is wrong with that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryArgs<'a> {
    pub(crate) dir: &'a [u8],
    pub(crate) name: Result<&'a [u8], Status>,
}

/// `nfs_fh3`.
pub(crate) fn handle<'a>(args: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    args.opaque(HANDLE_BYTES_MAX)
}

/// `diropargs3`. What is no name at all is answered with `NFS3ERR_ACCES` (section 3.2).
pub(crate) fn entry<'a>(args: &mut Reader<'a>) -> Result<EntryArgs<'a>, Garbage> {
    let dir = handle(args)?;
    let name = args.opaque(NAME_BYTES_DECODED_MAX)?;
    let name = if name.is_empty() || name.iter().any(|byte| [0, b'/'].contains(byte)) {
        Err(Status::Access)
    } else if name.len() > NAME_BYTES_MAX {
        Err(Status::NameTooLong)
    } else {
        Ok(name)
    };
    Ok(EntryArgs { dir, name })
}

/// `NFS3ERR_INVAL` for times that are none.
pub(crate) fn check_times(update: &AttrUpdate) -> Result<(), Status> {
    let is_time = |time: &Option<SetTime>| match time {
        Some(SetTime::At(time)) => time.nanos < 1_000_000_000,
        None | Some(SetTime::Now) => true,
    };
    if is_time(&update.atime) && is_time(&update.mtime) { Ok(()) } else { Err(Status::Invalid) }
}

/// `sattr3`, with times as they came: see [`check_times`].
pub(crate) fn settable(args: &mut Reader<'_>) -> Result<AttrUpdate, Garbage> {
    Ok(AttrUpdate {
        mode: args.optional(Reader::u32)?.map(|mode| mode & 0o7777),
        uid: args.optional(Reader::u32)?,
        gid: args.optional(Reader::u32)?,
        size: args.optional(Reader::u64)?,
        atime: set_time(args)?,
        mtime: set_time(args)?,
        ..AttrUpdate::default()
    })
}

fn set_time(args: &mut Reader<'_>) -> Result<Option<SetTime>, Garbage> {
    Ok(match args.u32()? {
        0 => None,
        1 => Some(SetTime::Now),
        2 => Some(SetTime::At(time(args)?)),
        _ => return Err(Garbage),
    })
}

/// `nfstime3`.
pub(crate) fn time(args: &mut Reader<'_>) -> Result<Timestamp, Garbage> {
    let (seconds, nanos) = (args.u32()?, args.u32()?);
    Ok(Timestamp { secs: i64::from(seconds), nanos })
}

/// What `nfstime3` can say of a time: of one before the epoch or after 2106 the nearest.
fn shown(time: Timestamp) -> (u32, u32) {
    match u32::try_from(time.secs) {
        Ok(seconds) => (seconds, time.nanos),
        Err(_) if time.secs < 0 => (0, 0),
        Err(_) => (u32::MAX, 999_999_999),
    }
}

fn put_time(reply: &mut Writer, time: Timestamp) {
    let (seconds, nanos) = shown(time);
    reply.u32(seconds);
    reply.u32(nanos);
}

/// Whether a client that was told one of two times cannot tell it from the other.
pub(crate) fn is_same_time(one: Timestamp, other: Timestamp) -> bool {
    shown(one) == shown(other)
}

/// `NFS3_OK` or why not.
pub(crate) fn status(reply: &mut Writer, status: Result<(), Status>) {
    reply.u32(status.map_or_else(|status| status as u32, |()| 0));
}

/// `fattr3`. `fsid`: of the export.
pub(crate) fn attributes(reply: &mut Writer, fsid: u64, attr: &Attr) {
    reply.u32(match attr.kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    });
    reply.u32(u32::from(attr.mode));
    reply.u32(attr.nlink);
    reply.u32(attr.uid);
    reply.u32(attr.gid);
    reply.u64(attr.size);
    reply.u64(attr.blocks_512 * 512);
    let is_device = matches!(attr.kind, FileKind::BlockDevice | FileKind::CharDevice);
    let device = if is_device { attr.rdev } else { 0 };
    reply.u32(rustix::fs::major(device));
    reply.u32(rustix::fs::minor(device));
    reply.u64(fsid);
    reply.u64(attr.oid.inode_number());
    put_time(reply, attr.atime);
    put_time(reply, attr.mtime);
    put_time(reply, attr.ctime);
}

/// `post_op_attr`.
pub(crate) fn attributes_after(reply: &mut Writer, fsid: u64, attr: Option<&Attr>) {
    reply.bool(attr.is_some());
    if let Some(attr) = attr {
        attributes(reply, fsid, attr);
    }
}

/// `wcc_data`, as far as it is known.
pub(crate) fn consistency(
    reply: &mut Writer,
    fsid: u64,
    before: Option<ChangeMark>,
    after: Option<&Attr>,
) {
    reply.bool(before.is_some());
    if let Some(before) = before {
        reply.u64(before.size);
        put_time(reply, before.mtime);
        put_time(reply, before.ctime);
    }
    attributes_after(reply, fsid, after);
}
