//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813, sections 3.3.8 to 3.3.11).

use azekura_posix::{Attr, AttrUpdate, ChangedDir, Errno, FileKind, NewEntry};

use super::place::{Changing, Place, outcome, write_new};
use super::status::Status;
use super::types::{self, EntryArgs};
use crate::gateway::Request;
use crate::xdr::{Garbage, Reader, Writer};

const PATH_BYTES_DECODED_MAX: usize = 64 << 10;

/// `createhow3`.
enum How<'a> {
    Unchecked(AttrUpdate),
    Guarded(AttrUpdate),
    Exclusive(&'a [u8; 8]),
}

pub(super) fn create(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let entry = types::entry(args)?;
    let how = match args.u32()? {
        0 => How::Unchecked(types::settable(args)?),
        1 => How::Guarded(types::settable(args)?),
        2 => How::Exclusive(args.fixed()?),
        _ => return Err(Garbage),
    };
    answer(request, reply, entry, |place, dir, name| match how {
        How::Exclusive(verifier) => {
            let what = NewEntry::Exclusive(*verifier);
            Ok(place.fs().make_in(&place.caller, dir, name, 0, what)?)
        }
        How::Guarded(start) => make_with(place, (dir, name), &start, NewEntry::Regular),
        How::Unchecked(start) => match make_with(place, (dir, name), &start, NewEntry::Regular) {
            Err(Status::Exists) => take_existing(place, name, &start),
            other => other,
        },
    })
}

/// CREATE of a file that is there already succeeds, and may cut it.
fn take_existing(place: &Place<'_>, name: &[u8], start: &AttrUpdate) -> Result<Attr, Status> {
    let attr = place.fs().lookup(&place.caller, place.oid, name)?;
    match (attr.kind, start.size) {
        (FileKind::Regular, None) => place.attr_of(attr.oid),
        (FileKind::Regular, Some(size)) => {
            place.request().gateway.gather.flush_before_change(attr.oid)?;
            Ok(place.fs().setattr(&place.caller, attr.oid, None, &AttrUpdate::size(size))?)
        }
        _ => Err(Status::Exists),
    }
}

pub(super) fn mkdir(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let entry = types::entry(args)?;
    let start = types::settable(args)?;
    answer(request, reply, entry, |place, dir, name| {
        make_with(place, (dir, name), &start, NewEntry::Directory)
    })
}

pub(super) fn symlink(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let entry = types::entry(args)?;
    // The mode of a symlink means nothing.
    let start = AttrUpdate { mode: Some(0o777), ..types::settable(args)? };
    let text = args.opaque(PATH_BYTES_DECODED_MAX)?;
    answer(request, reply, entry, |place, dir, name| match text {
        [] => Err(Status::Invalid),
        text if text.contains(&0) => Err(Status::Invalid),
        text => make_with(place, (dir, name), &start, NewEntry::Symlink(text)),
    })
}

pub(super) fn mknod(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    const BLOCK: u32 = 3;
    const CHARACTER: u32 = 4;
    const SOCKET: u32 = 6;
    const FIFO: u32 = 7;
    let entry = types::entry(args)?;
    let kind = args.u32()?;
    let (start, what) = match kind {
        SOCKET => (types::settable(args)?, NewEntry::Socket),
        FIFO => (types::settable(args)?, NewEntry::Fifo),
        BLOCK | CHARACTER => {
            let start = types::settable(args)?;
            let device = rustix::fs::makedev(args.u32()?, args.u32()?);
            let is_block = kind == BLOCK;
            let what =
                if is_block { NewEntry::BlockDevice(device) } else { NewEntry::CharDevice(device) };
            (start, what)
        }
        // A type that is none has no further arguments.
        _ => return answer(request, reply, entry, |_, _, _| Err(Status::BadType)),
    };
    answer(request, reply, entry, |place, dir, name| make_with(place, (dir, name), &start, what))
}

/// Makes an object and gives it the attributes that it starts with.
fn make_with(
    place: &Place<'_>,
    (dir, name): (&mut ChangedDir, &[u8]),
    start: &AttrUpdate,
    what: NewEntry<'_>,
) -> Result<Attr, Status> {
    types::check_times(start)?;
    let (fs, caller) = (place.fs(), &place.caller);
    let attr = fs.make_in(caller, dir, name, start.mode.unwrap_or(0), what)?;
    let rest = AttrUpdate {
        mode: None,
        uid: start.uid.filter(|uid| *uid != attr.uid),
        gid: start.gid.filter(|gid| *gid != attr.gid),
        size: start.size.filter(|size| attr.kind == FileKind::Regular && *size != 0),
        ..*start
    };
    if rest == AttrUpdate::default() {
        return Ok(attr);
    }
    match fs.setattr(caller, attr.oid, None, &rest) {
        Ok(attr) => Ok(attr),
        // Who may make a file but not give it away has made it all the same.
        Err(Errno::PERM) => Ok(attr),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes an object, and answers for a procedure.
#[allow(clippy::unnecessary_wraps)] // It is what procedures return.
fn answer(
    request: &Request<'_>,
    reply: &mut Writer,
    entry: EntryArgs<'_>,
    make: impl FnOnce(&Place<'_>, &mut ChangedDir, &[u8]) -> Result<Attr, Status>,
) -> Result<(), Garbage> {
    let mut changing = Changing::default();
    let place = Place::of_change(request, entry.dir);
    let new = place.as_ref().map_err(|status| *status).and_then(|place| {
        let mut dir = ChangedDir::new(place.oid);
        let done = match entry.name {
            Ok(b"." | b"..") => Err(Status::Exists),
            Ok(name) => make(place, &mut dir, name),
            Err(status) => Err(status),
        };
        let ended = changing.end_directory(place, &dir);
        outcome(done, [ended])
    });
    types::status(reply, new.as_ref().map(drop).map_err(|status| *status));
    if let (Ok(place), Ok(attr)) = (&place, &new) {
        write_new(reply, place, attr);
    }
    changing.write(reply);
    Ok(())
}
