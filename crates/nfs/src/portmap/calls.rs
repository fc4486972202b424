//! The procedures of the port mapper, version 2 (RFC 1833, section 3).

use super::mappings::Mapping;
use crate::gateway::Request;
use crate::xdr::{Garbage, Reader, Writer};

/// The list is the gateway's own; nobody adds to it or takes from it.
pub(super) fn refuse(
    _: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    args.fixed::<16>()?;
    reply.bool(false);
    Ok(())
}

pub(super) fn getport(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let (program, _version, protocol, _port) = (args.u32()?, args.u32()?, args.u32()?, args.u32()?);
    reply.u32(u32::from(request.gateway.mappings.read().port_of(program, protocol)));
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // It is what procedures return.
pub(super) fn dump(
    request: &Request<'_>,
    _: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    for Mapping { program, protocol, port } in &request.gateway.mappings.read().0 {
        reply.bool(true);
        reply.u32s(&[program.number, program.version, *protocol as u32, u32::from(*port)]);
    }
    reply.bool(false);
    Ok(())
}
