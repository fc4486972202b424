//! LOOKUP, READLINK, REMOVE, RMDIR, RENAME and LINK (RFC 1813, sections 3.3.3, 3.3.5 and 3.3.12 to
//! 3.3.15).

use azekura_posix::{ChangedDir, Errno, FileKind, RenameMode};

use super::place::{Changing, Place, outcome};
use super::status::Status;
use super::types;
use crate::gateway::Request;
use crate::xdr::{Garbage, Reader, Writer};

pub(super) fn lookup(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let entry = types::entry(args)?;
    let place = Place::of(request, entry.dir);
    let found = place.as_ref().map_err(|status| *status).and_then(|place| {
        let name = entry.name?;
        let found = match name {
            b".." => return place.above(&place.caller),
            b"." if place.why_nothing_is_found() == Status::NotDirectory => {
                return Err(Status::NotDirectory);
            }
            name => place.fs().lookup(&place.caller, place.oid, name),
        };
        let attr = match found {
            Err(Errno::NOENT) => return Err(place.why_nothing_is_found()),
            found => found?,
        };
        if request.gateway.gather.flush_before_look(attr.oid) {
            return place.attr_of(attr.oid);
        }
        Ok(attr)
    });
    types::status(reply, found.as_ref().map(drop).map_err(|status| *status));
    if let (Ok(place), Ok(attr)) = (&place, &found) {
        reply.opaque(&place.handle_of(attr.oid));
        types::attributes_after(reply, place.fsid(), Some(attr));
    }
    write_dir(reply, place.as_ref().ok());
    Ok(())
}

/// Attributes of a directory in which nothing was changed: as old as the file system believes them.
pub(super) fn write_dir(reply: &mut Writer, place: Option<&Place<'_>>) {
    let attr = place.and_then(|place| place.fs().getattr_for(place.oid).ok());
    let fsid = place.map_or(0, Place::fsid);
    types::attributes_after(reply, fsid, attr.as_ref().map(|(attr, _)| attr));
}

pub(super) fn readlink(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let place = Place::of(request, types::handle(args)?);
    let attr = place.as_ref().ok().and_then(|place| place.attr().ok());
    let text = place.as_ref().map_err(|status| *status).and_then(|place| {
        let attr = attr.as_ref().ok_or(Status::Stale)?;
        if attr.kind != FileKind::Symlink {
            return Err(Status::Invalid);
        }
        Ok(place.fs().readlink(place.oid)?)
    });
    types::status(reply, text.as_ref().map(drop).map_err(|status| *status));
    types::attributes_after(reply, place.as_ref().map_or(0, Place::fsid), attr.as_ref());
    if let Ok(text) = text {
        reply.opaque(&text);
    }
    Ok(())
}

pub(super) fn remove(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    take_away(request, args, reply, |place, dir, name| match name {
        b"." | b".." => Err(Status::Invalid),
        _ => Ok(place.fs().unlink_in(&place.caller, dir, name)?),
    })
}

pub(super) fn rmdir(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    take_away(request, args, reply, |place, dir, name| {
        match name {
            b"." => return Err(Status::Invalid),
            b".." => return Err(Status::Exists),
            _ => place.fs().rmdir_in(&place.caller, dir, name)?,
        }
        // It may have been where an export begins.
        place.request().gateway.forget_roots();
        Ok(())
    })
}

fn take_away(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
    remove: impl FnOnce(&Place<'_>, &mut ChangedDir, &[u8]) -> Result<(), Status>,
) -> Result<(), Garbage> {
    let entry = types::entry(args)?;
    let mut changing = Changing::default();
    let done = Place::of_change(request, entry.dir).and_then(|place| {
        let mut dir = ChangedDir::new(place.oid);
        let done = entry.name.and_then(|name| remove(&place, &mut dir, name));
        let ended = changing.end_directory(&place, &dir);
        outcome(done, [ended])
    });
    types::status(reply, done);
    changing.write(reply);
    Ok(())
}

pub(super) fn rename(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let (from, to) = (types::entry(args)?, types::entry(args)?);
    let (mut changing_from, mut changing_to) = (Changing::default(), Changing::default());
    let done = Place::of_change(request, from.dir).and_then(|from_place| {
        let to_place = Place::of_change(request, to.dir)?;
        let mut from_dir = ChangedDir::new(from_place.oid);
        let mut to_dir = ChangedDir::new(to_place.oid);
        let is_same_export = from_place.export().id() == to_place.export().id();
        let done = from.name.and_then(|from_name| {
            let (from_name, to_name) = place_names(from_name, to.name?)?;
            if !is_same_export {
                return Err(Status::CrossDevice);
            }
            let (fs, caller) = (from_place.fs(), &from_place.caller);
            let (from, to) = ((&mut from_dir, from_name), (&mut to_dir, to_name));
            Ok(fs.rename_in(caller, from, to, RenameMode::Replace)?)
        });
        request.gateway.forget_roots();
        let from_ended = changing_from.end_directory(&from_place, &from_dir);
        let to_ended = changing_to.end_directory(&to_place, &to_dir);
        outcome(done, [from_ended, to_ended])
    });
    types::status(reply, done);
    changing_from.write(reply);
    changing_to.write(reply);
    Ok(())
}

fn place_names<'a>(from: &'a [u8], to: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Status> {
    let is_dot = [from, to].iter().any(|name| [&b"."[..], b".."].contains(name));
    if is_dot { Err(Status::Invalid) } else { Ok((from, to)) }
}

pub(super) fn link(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let entry = types::entry(args)?;
    let mut changing = Changing::default();
    let (mut after, mut fsid) = (None, 0);
    let done = Place::of_change(request, handle).and_then(|place| {
        fsid = place.fsid();
        let dir = Place::of_change(request, entry.dir)?;
        let mut changed = ChangedDir::new(dir.oid);
        let done = entry.name.and_then(|name| {
            if place.export().id() != dir.export().id() {
                return Err(Status::CrossDevice);
            }
            if [&b"."[..], b".."].contains(&name) {
                return Err(Status::Exists);
            }
            request.gateway.gather.flush_before_look(place.oid);
            Ok(place.fs().link_in(&place.caller, place.oid, &mut changed, name)?)
        });
        let there = done.clone().or_else(|_| place.attr());
        let ended = changing.end_directory(&dir, &changed);
        let done = outcome(done, [there.as_ref().map(drop).map_err(|status| *status), ended]);
        after = there.ok();
        done.map(drop)
    });
    types::status(reply, done);
    types::attributes_after(reply, fsid, after.as_ref());
    changing.write(reply);
    Ok(())
}
