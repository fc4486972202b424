//! GETATTR, SETATTR and ACCESS (RFC 1813, sections 3.3.1, 3.3.2 and 3.3.4).

use azekura_posix::{Access, FileKind, may_access};

use super::place::{Changing, Place};
use super::status::Status;
use super::types;
use crate::gateway::Request;
use crate::xdr::{Garbage, Reader, Writer};

const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;

pub(super) fn getattr(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let place = Place::of(request, types::handle(args)?);
    match place.and_then(|place| Ok((place.attr()?, place.fsid()))) {
        Ok((attr, fsid)) => {
            types::status(reply, Ok(()));
            types::attributes(reply, fsid, &attr);
        }
        Err(status) => types::status(reply, Err(status)),
    }
    Ok(())
}

pub(super) fn setattr(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let update = types::settable(args)?;
    let guard = args.optional(types::time)?;
    let mut changing = Changing::default();
    let done = Place::of_change(request, handle).and_then(|place| {
        request.gateway.gather.flush_before_change(place.oid)?;
        types::check_times(&update).or_else(|status| changing.begin(&place).and(Err(status)))?;
        let before = changing.begin(&place)?.ctime;
        let (fs, caller) = (place.fs(), &place.caller);
        let after = match guard {
            None => Some(fs.setattr(caller, place.oid, None, &update)?),
            // The file system has the exact time, of which the client knows what NFS can say.
            Some(guard) if types::is_same_time(guard, before) => {
                fs.setattr_if(caller, place.oid, &update, before)?
            }
            Some(_) => None,
        };
        changing.end_with(after.ok_or(Status::NotSync)?);
        Ok(())
    });
    types::status(reply, done);
    changing.write(reply);
    Ok(())
}

pub(super) fn access(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let wanted = args.u32()?;
    let place = Place::of(request, handle);
    let (place, attr) = match place.and_then(|place| Ok((place.attr()?, place))) {
        Ok((attr, place)) => (place, attr),
        Err(status) => {
            types::status(reply, Err(status));
            types::attributes_after(reply, 0, None);
            return Ok(());
        }
    };
    let may =
        |read, write, execute| may_access(&place.caller, &attr, Access { read, write, execute });
    let is_directory = attr.kind == FileKind::Directory;
    let mut granted = 0;
    let mut grant = |bits: u32, is_granted: bool| granted |= if is_granted { bits } else { 0 };
    grant(READ, may(true, false, false));
    grant(if is_directory { LOOKUP } else { EXECUTE }, may(false, false, true));
    if !place.export().is_read_only() {
        grant(MODIFY | EXTEND, may(false, true, false));
        grant(DELETE, is_directory && may(false, true, true));
    }
    types::status(reply, Ok(()));
    types::attributes_after(reply, place.fsid(), Some(&attr));
    reply.u32(granted & wanted);
    Ok(())
}
