//! FSSTAT, FSINFO and PATHCONF (RFC 1813, sections 3.3.18 to 3.3.20).

use azekura_proto::limits::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX};

use super::place::{Place, patient};
use super::types;
use crate::gateway::{Request, TRANSFER_BYTES_MAX};
use crate::xdr::{Garbage, Reader, Writer};

/// Reads and writes of a multiple of this are cheapest, in bytes.
const MULTIPLE_BYTES: u32 = 4096;
/// Answers to READDIR are best of about this size, in bytes.
const DIRECTORY_BYTES: u32 = 64 << 10;
const HAS_LINKS: u32 = 0x1;
const HAS_SYMLINKS: u32 = 0x2;
const IS_HOMOGENEOUS: u32 = 0x8;
const CAN_SET_TIME: u32 = 0x10;

pub(super) fn fsstat(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    about(request, types::handle(args)?, reply, |place, reply| {
        let attr = place.attr()?;
        let space = place.fs().statfs().map_err(patient)?;
        types::status(reply, Ok(()));
        types::attributes_after(reply, place.fsid(), Some(&attr));
        reply.u64(space.total_bytes);
        reply.u64(space.available_bytes);
        reply.u64(space.available_bytes);
        // As many objects as there is space for; each takes a few hundred bytes.
        let free_objects = space.available_bytes / 512;
        reply.u64(space.objects.saturating_add(free_objects));
        reply.u64(free_objects);
        reply.u64(free_objects);
        reply.u32(0);
        Ok(())
    });
    Ok(())
}

pub(super) fn fsinfo(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    about(request, types::handle(args)?, reply, |place, reply| {
        let config = request.gateway.config;
        let largest = config.block_bytes.unwrap_or(TRANSFER_BYTES_MAX);
        let preferred = place.fs().container().inheritance.chunk_bytes.min(largest);
        let attr = place.attr()?;
        types::status(reply, Ok(()));
        types::attributes_after(reply, place.fsid(), Some(&attr));
        for _read_then_write in 0..2 {
            reply.u32(largest);
            reply.u32(preferred);
            reply.u32(MULTIPLE_BYTES);
        }
        reply.u32(DIRECTORY_BYTES);
        reply.u64(FILE_BYTES_MAX);
        // Times are exact to the nanosecond.
        reply.u32(0);
        reply.u32(1);
        reply.u32(HAS_LINKS | HAS_SYMLINKS | IS_HOMOGENEOUS | CAN_SET_TIME);
        Ok(())
    });
    Ok(())
}

pub(super) fn pathconf(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    about(request, types::handle(args)?, reply, |place, reply| {
        let attr = place.attr()?;
        types::status(reply, Ok(()));
        types::attributes_after(reply, place.fsid(), Some(&attr));
        reply.u32(LINKS_MAX);
        reply.u32(NAME_BYTES_MAX as u32);
        let (no_trunc, chown_restricted) = (true, true);
        let (case_insensitive, case_preserving) = (false, true);
        for is in [no_trunc, chown_restricted, case_insensitive, case_preserving] {
            reply.bool(is);
        }
        Ok(())
    });
    Ok(())
}

fn about(
    request: &Request<'_>,
    handle: &[u8],
    reply: &mut Writer,
    answer: impl FnOnce(&Place<'_>, &mut Writer) -> Result<(), super::status::Status>,
) {
    let start = reply.len();
    if let Err(status) = Place::of(request, handle).and_then(|place| answer(&place, reply)) {
        reply.truncate(start);
        types::status(reply, Err(status));
        types::attributes_after(reply, 0, None);
    }
}
