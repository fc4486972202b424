//! READDIR and READDIRPLUS (RFC 1813, sections 3.3.16 and 3.3.17). Cookies are those of the file
//! system, which stay good for ever and on every gateway; so the verifier never changes.

use azekura_posix::{AttrsWanted, Credentials, FileKind, Listed};

use super::place::{Place, patient};
use super::status::Status;
use super::types;
use crate::gateway::{Request, TRANSFER_BYTES_MAX};
use crate::xdr::{Garbage, Reader, Writer};

const VERIFIER: [u8; 8] = *b"azekura1";
/// `status`, attributes, verifier, the end of the list and `eof`.
const FRAME_BYTES: usize = 4 + types::ATTR_BYTES + 8 + 4 + 4;
/// Bytes that an entry takes at least in an answer, besides its name.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;

/// How much fits into an answer.
#[derive(Clone, Copy)]
struct Room {
    /// Of all.
    bytes: usize,
    /// Of names and cookies alone.
    name_bytes: usize,
    with_attrs: bool,
}

pub(super) fn readdir(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let (cookie, verifier) = (args.u64()?, *args.fixed()?);
    let bytes = args.u32()?.min(TRANSFER_BYTES_MAX) as usize;
    let room = Room { bytes, name_bytes: bytes, with_attrs: false };
    list(request, handle, (cookie, verifier), room, reply);
    Ok(())
}

pub(super) fn readdirplus(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let (cookie, verifier) = (args.u64()?, *args.fixed()?);
    let (name_bytes, bytes) = (args.u32()? as usize, args.u32()?.min(TRANSFER_BYTES_MAX) as usize);
    list(request, handle, (cookie, verifier), Room { bytes, name_bytes, with_attrs: true }, reply);
    Ok(())
}

fn list(
    request: &Request<'_>,
    handle: &[u8],
    (cookie, verifier): (u64, [u8; 8]),
    room: Room,
    reply: &mut Writer,
) {
    let start = reply.len();
    let mut attr = None;
    let place = Place::of(request, handle);
    let done = place.as_ref().map_err(|status| *status).and_then(|place| {
        let dir = attr.insert(place.attr()?);
        if dir.kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        if cookie != 0 && verifier != VERIFIER {
            return Err(Status::BadCookie);
        }
        types::status(reply, Ok(()));
        types::attributes_after(reply, place.fsid(), Some(dir));
        reply.raw(&VERIFIER);
        list_entries(place, cookie, room, reply)
    });
    if let Err(status) = done {
        reply.truncate(start);
        types::status(reply, Err(status));
        types::attributes_after(reply, place.map_or(0, |place| place.fsid()), attr.as_ref());
    }
}

fn list_entries(
    place: &Place<'_>,
    cookie: u64,
    room: Room,
    reply: &mut Writer,
) -> Result<(), Status> {
    let Some(bytes) = room.bytes.checked_sub(FRAME_BYTES) else { return Err(Status::TooSmall) };
    let attrs = if room.with_attrs { AttrsWanted::All } else { AttrsWanted::No };
    let wanted = bytes.min(room.name_bytes) as u32;
    let page = place.fs().readdir(&place.caller, place.oid, cookie, wanted, attrs);
    let page = page.map_err(patient)?;
    let (mut left, mut names_left) = (bytes, room.name_bytes);
    let mut written = 0;
    for entry in &page.entries {
        let before = reply.len();
        write_entry(place, entry, room.with_attrs, reply)?;
        let bytes = reply.len() - before;
        let name_bytes = ENTRY_BYTES + entry.name.len();
        if bytes > left || (name_bytes > names_left && written > 0) {
            reply.truncate(before);
            break;
        }
        (left, names_left) = (left - bytes, names_left.saturating_sub(name_bytes));
        written += 1;
    }
    if written == 0 && !page.entries.is_empty() {
        return Err(Status::TooSmall);
    }
    reply.bool(false);
    reply.bool(page.end && written == page.entries.len());
    Ok(())
}

fn write_entry(
    place: &Place<'_>,
    entry: &Listed,
    with_attrs: bool,
    reply: &mut Writer,
) -> Result<(), Status> {
    let above = if entry.name == b".." { Some(place.above(&Credentials::ROOT)?) } else { None };
    let oid = above.as_ref().map_or(entry.oid, |attr| attr.oid);
    reply.bool(true);
    reply.u64(oid.inode_number());
    reply.opaque(&entry.name);
    reply.u64(entry.cookie);
    if with_attrs {
        let own = match above {
            _ if entry.name == b"." => Some(place.attr()?),
            None => place.gathered_attr_of(oid),
            above => above,
        };
        match own.as_ref().or(entry.attr.as_ref()) {
            Some(attr) => write_plus(reply, place, attr),
            // It is gone; the client finds out when it asks.
            None => reply.u64(0),
        }
    }
    Ok(())
}

/// Attributes and handle, in the other order than those of a new object.
fn write_plus(reply: &mut Writer, place: &Place<'_>, attr: &azekura_posix::Attr) {
    types::attributes_after(reply, place.fsid(), Some(attr));
    reply.bool(true);
    reply.opaque(&place.handle_of(attr.oid));
}
