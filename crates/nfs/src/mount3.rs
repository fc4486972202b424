//! The MOUNT protocol, version 3 (RFC 1813, appendix I): from the path of an export to the handle of its
//! root.

// All procedures have one signature, also those whose arguments cannot be garbage.
#![allow(clippy::unnecessary_wraps)]

use std::sync::atomic::Ordering;

use azekura_posix::{Errno, FileKind};

use crate::exports::Flavour;
use crate::gateway::Request;
use crate::handle::FileHandle;
use crate::mounts::Mounted;
use crate::procedure::Procedure;
use crate::xdr::{Garbage, Reader, Writer};

/// Longest path, in bytes (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;
/// In the order of [`crate::procedures::MOUNT`].
pub(crate) const PROCEDURES: &[Procedure] = &[
    Procedure::Nothing,
    Procedure::Repeatable(mnt),
    Procedure::Repeatable(dump),
    Procedure::Repeatable(umnt),
    Procedure::Repeatable(umntall),
    Procedure::Repeatable(export),
];

/// `mountstat3`, as far as it is used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Status {
    NoEntry = 2,
    Io = 5,
    Access = 13,
    NotDirectory = 20,
    NameTooLong = 63,
    ServerFault = 10_006,
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::STALE => Self::NoEntry,
            Errno::ACCESS | Errno::PERM => Self::Access,
            Errno::NOTDIR | Errno::LOOP => Self::NotDirectory,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::IO => Self::Io,
            _ => Self::ServerFault,
        }
    }
}

fn path(args: &mut Reader<'_>) -> Result<String, Garbage> {
    let path = args.opaque(PATH_BYTES_MAX)?;
    let text = std::str::from_utf8(path).map_err(|_| Garbage)?;
    Ok(if text.starts_with('/') { text.to_owned() } else { format!("/{text}") })
}

fn mnt(request: &Request<'_>, args: &mut Reader<'_>, reply: &mut Writer) -> Result<(), Garbage> {
    const AUTH_NONE: u32 = 0;
    const AUTH_SYS: u32 = 1;
    let path = path(args)?;
    match find(request, &path) {
        Ok((handle, flavours)) => {
            reply.u32(0);
            reply.opaque(&request.gateway.key.seal(handle));
            reply.u32(flavours.len() as u32);
            for flavour in flavours {
                reply.u32(match flavour {
                    Flavour::Sys => AUTH_SYS,
                    Flavour::None => AUTH_NONE,
                });
            }
            request.gateway.mounts.add(Mounted { client: request.peer, path });
        }
        Err(status) => {
            reply.u32(status as u32);
            request.gateway.metrics.refused_mounts.fetch_add(1, Ordering::Relaxed);
            let client = request.peer;
            if request.gateway.mounts.is_new_refusal(Mounted { client, path: path.clone() }) {
                tracing::warn!(%client, path, ?status, "a mount was refused");
            }
        }
    }
    Ok(())
}

/// The handle of a directory that is exported or lies below one that is.
fn find<'a>(request: &'a Request<'_>, path: &str) -> Result<(FileHandle, &'a [Flavour]), Status> {
    // Who is not let in does not learn what there is.
    let export = request.exports.find(path).ok_or(Status::Access)?;
    if !export.admits(request.peer) {
        return Err(Status::Access);
    }
    let oid = request.gateway.walk(path)?;
    if request.gateway.fs.getattr(oid)?.kind != FileKind::Directory {
        return Err(Status::NotDirectory);
    }
    Ok((FileHandle { export: export.id(), oid }, export.flavours()))
}

fn dump(request: &Request<'_>, _: &mut Reader<'_>, reply: &mut Writer) -> Result<(), Garbage> {
    for mount in request.gateway.mounts.list() {
        reply.bool(true);
        reply.opaque(mount.client.to_canonical().to_string().as_bytes());
        reply.opaque(mount.path.as_bytes());
    }
    reply.bool(false);
    Ok(())
}

fn umnt(request: &Request<'_>, args: &mut Reader<'_>, _: &mut Writer) -> Result<(), Garbage> {
    let mount = Mounted { client: request.peer, path: path(args)? };
    request.gateway.mounts.remove(|other| *other == mount);
    Ok(())
}

fn umntall(request: &Request<'_>, _: &mut Reader<'_>, _: &mut Writer) -> Result<(), Garbage> {
    request.gateway.mounts.remove(|mount| mount.client == request.peer);
    Ok(())
}

fn export(request: &Request<'_>, _: &mut Reader<'_>, reply: &mut Writer) -> Result<(), Garbage> {
    for export in request.exports.iter() {
        reply.bool(true);
        reply.opaque(export.path().as_bytes());
        for network in export.clients() {
            reply.bool(true);
            reply.opaque(network.to_string().as_bytes());
        }
        reply.bool(false);
    }
    reply.bool(false);
    Ok(())
}
