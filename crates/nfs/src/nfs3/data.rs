//! READ, WRITE and COMMIT (RFC 1813, sections 3.3.6, 3.3.7 and 3.3.21).

use azekura_posix::ObjectRead;

use super::place::{Changing, Place, patient};
use super::status::Status;
use super::types::{self, ATTR_BYTES};
use crate::gateway::{Request, TRANSFER_BYTES_MAX};
use crate::gather::Stability;
use crate::xdr::{Garbage, Reader, Writer};

const STATUS_BYTES: usize = 4;
/// `count`, `eof` and the length of the data.
const READ_HEAD_BYTES: usize = STATUS_BYTES + ATTR_BYTES + 4 + 4 + 4;

pub(super) fn read(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let (offset, count) = (args.u64()?, args.u32()?.min(TRANSFER_BYTES_MAX));
    let start = reply.len();
    let place = Place::of(request, handle);
    let done = place.as_ref().map_err(|status| *status).and_then(|place| {
        request.gateway.gather.flush_before_look(place.oid);
        // The data go to their place behind what is known only once they are read.
        reply.take(READ_HEAD_BYTES);
        let data = reply.take(count as usize);
        let read = place.fs().read_object(&place.caller, place.oid, offset, data);
        Ok((read.map_err(patient)?, place.fsid()))
    });
    reply.truncate(start);
    match done {
        Ok((read, fsid)) => {
            types::status(reply, Ok(()));
            types::attributes_after(reply, fsid, Some(&read.attr));
            reply.u32(read.bytes as u32);
            reply.bool(read.at_end);
            reply.u32(read.bytes as u32);
            debug_assert_eq!(reply.len() - start, READ_HEAD_BYTES);
            reply.take(read.bytes);
            reply.pad(read.bytes);
        }
        Err(status) => {
            types::status(reply, Err(status));
            let attr = place.as_ref().ok().and_then(|place| place.attr().ok());
            types::attributes_after(reply, place.as_ref().map_or(0, Place::fsid), attr.as_ref());
        }
    }
    Ok(())
}

/// A whole answer to READ, whose data lie elsewhere.
pub(super) fn write_read(reply: &mut Writer, fsid: u64, read: &ObjectRead, data: &[u8]) {
    types::status(reply, Ok(()));
    types::attributes_after(reply, fsid, Some(&read.attr));
    reply.u32(data.len() as u32);
    reply.bool(read.at_end);
    reply.opaque(data);
}

pub(super) fn write(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let (offset, count) = (args.u64()?, args.u32()?);
    let wanted = match args.u32()? {
        0 => Stability::Unstable,
        1 => Stability::Data,
        2 => Stability::File,
        _ => return Err(Garbage),
    };
    let data = args.opaque(TRANSFER_BYTES_MAX as usize)?;
    if data.len() != count as usize {
        return Err(Garbage);
    }
    let mut changing = Changing::default();
    let done = Place::of_change(request, handle).and_then(|place| {
        let written = request.gateway.gather.write(&place.caller, place.oid, offset, data, wanted);
        let written = match written {
            Ok(written) => written,
            Err(errno) => {
                let status = patient(errno);
                changing.set(place.fsid(), None, None);
                changing.end(&place);
                return Err(status);
            }
        };
        changing.set(place.fsid(), written.before, written.after);
        Ok((written.bytes, written.stability, written.verifier))
    });
    types::status(reply, done.as_ref().map(drop).map_err(|status| *status));
    changing.write(reply);
    if let Ok((bytes, stability, verifier)) = done {
        reply.u32(bytes as u32);
        reply.u32(stability as u32);
        reply.raw(&verifier);
    }
    Ok(())
}

pub(super) fn commit(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let handle = types::handle(args)?;
    let (_offset, _count) = (args.u64()?, args.u32()?);
    let mut changing = Changing::default();
    let done = Place::of_change(request, handle).and_then(|place| {
        let committed = request.gateway.gather.commit(place.oid).map_err(patient)?;
        changing.set(place.fsid(), committed.before, Some(committed.after));
        Ok(committed.verifier)
    });
    types::status(reply, done.as_ref().map(drop).map_err(|status: &Status| *status));
    changing.write(reply);
    if let Ok(verifier) = done {
        reply.raw(&verifier);
    }
    Ok(())
}
