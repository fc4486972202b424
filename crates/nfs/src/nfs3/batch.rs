//! Calls that only look, as several have come together over one connection: GETATTR, and READ of few
//! bytes. Owns that they cost one round trip to each engine; each is answered as it would be by itself.

use std::sync::Arc;

use azekura_posix::{Attr, Errno, ObjectRead, ReadRequest, Result as FileResult};

use super::place::Place;
use super::status::Status;
use super::{data, types};
use crate::exports::Exports;
use crate::gateway::{Asker, Gateway, Request};
use crate::procedures::NFS;
use crate::rpc::{self, Call};
use crate::xdr::{Garbage, Writer};

const GETATTR: u32 = 1;
const READ: u32 = 6;
/// Longer reads are not asked for together with others: their bytes would have to be copied.
const READ_BYTES_MAX: u32 = 16 << 10;

/// What a call looks at.
#[derive(Clone, Copy, Debug)]
enum Look<'c> {
    Attributes { handle: &'c [u8] },
    Data { handle: &'c [u8], offset: u64, bytes: usize },
}

impl<'c> Look<'c> {
    fn of(call: &Call<'c>) -> Option<Self> {
        if (call.program, call.version) != (NFS.number, NFS.version) {
            return None;
        }
        let mut args = call.args;
        let mut decode = || -> Result<Option<Self>, Garbage> {
            Ok(match call.procedure {
                GETATTR => Some(Self::Attributes { handle: types::handle(&mut args)? }),
                READ => {
                    let handle = types::handle(&mut args)?;
                    let (offset, bytes) = (args.u64()?, args.u32()?);
                    let data = Self::Data { handle, offset, bytes: bytes as usize };
                    (bytes <= READ_BYTES_MAX).then_some(data)
                }
                _ => None,
            })
        };
        // What cannot be decoded is refused by itself.
        decode().ok().flatten()
    }

    fn handle(&self) -> &'c [u8] {
        match self {
            Self::Attributes { handle } | Self::Data { handle, .. } => handle,
        }
    }
}

/// Whether a call can be answered together with others of its kind.
pub(crate) fn can_be_batched(call: &Call<'_>) -> bool {
    Look::of(call).is_some()
}

/// What has become of a look.
enum Seen {
    Attributes(Attr),
    Data(ObjectRead, std::ops::Range<usize>),
    /// It has to be looked at alone.
    Unclear,
}

/// Answers calls that can be batched. Tells by how many bytes, each; 0 for one that has to be answered by
/// itself.
pub(crate) fn answer(
    gateway: &Gateway,
    asker: Asker<'_>,
    exports: &Arc<Exports>,
    calls: &[Call<'_>],
    replies: &mut Writer,
) -> Vec<usize> {
    let requests: Vec<Request<'_>> =
        calls.iter().map(|call| Request::new(gateway, asker, call, Arc::clone(exports))).collect();
    let looks: Vec<_> = calls.iter().filter_map(Look::of).collect();
    debug_assert_eq!(looks.len(), calls.len());
    let places: Vec<_> = requests
        .iter()
        .zip(&looks)
        .map(|(request, look)| Place::of(request, look.handle()))
        .collect();
    for place in places.iter().flatten() {
        gateway.gather.flush_before_look(place.oid);
    }
    let mut memory = Vec::new();
    let mut seen = look_at(gateway, &looks, &places, &mut memory).into_iter();
    let mut lengths = Vec::with_capacity(calls.len());
    for (call, place) in calls.iter().zip(&places) {
        let start = replies.len();
        match place {
            Err(status) => answer_one(call, replies, |reply| refuse(call, *status, reply)),
            Ok(place) => match seen.next() {
                Some(Seen::Attributes(attr)) => answer_one(call, replies, |reply| {
                    types::status(reply, Ok(()));
                    types::attributes(reply, place.fsid(), &attr);
                }),
                Some(Seen::Data(read, range)) => answer_one(call, replies, |reply| {
                    data::write_read(reply, place.fsid(), &read, &memory[range]);
                }),
                Some(Seen::Unclear) | None => {}
            },
        }
        lengths.push(replies.len() - start);
    }
    lengths
}

fn answer_one(call: &Call<'_>, replies: &mut Writer, write: impl FnOnce(&mut Writer)) {
    let start = rpc::begin_reply(replies, call.xid);
    write(replies);
    rpc::finish_reply(replies, start);
}

fn refuse(call: &Call<'_>, status: Status, reply: &mut Writer) {
    types::status(reply, Err(status));
    if call.procedure == READ {
        types::attributes_after(reply, 0, None);
    }
}

/// What the looks with a place bring, in their order.
fn look_at(
    gateway: &Gateway,
    looks: &[Look<'_>],
    places: &[Result<Place<'_>, Status>],
    memory: &mut Vec<u8>,
) -> Vec<Seen> {
    let good =
        || looks.iter().zip(places).filter_map(|(look, place)| Some((look, place.as_ref().ok()?)));
    let mut oids = Vec::new();
    let mut all_bytes = 0;
    for (look, place) in good() {
        match look {
            Look::Attributes { .. } => oids.push(place.oid),
            Look::Data { bytes, .. } => all_bytes += bytes,
        }
    }
    memory.resize(all_bytes, 0);
    let mut rest = memory.as_mut_slice();
    let mut reads = Vec::new();
    for (look, place) in good() {
        if let Look::Data { offset, bytes, .. } = look {
            let (buffer, behind) = rest.split_at_mut(*bytes);
            rest = behind;
            reads.push(ReadRequest {
                caller: &place.caller,
                oid: place.oid,
                offset: *offset,
                buffer,
            });
        }
    }
    let mut attrs =
        if oids.is_empty() { Vec::new() } else { gateway.fs.getattrs(&oids) }.into_iter();
    let mut data =
        if reads.is_empty() { Vec::new() } else { gateway.fs.read_objects(&mut reads) }.into_iter();
    let mut at = 0;
    good()
        .map(|(look, _)| match look {
            Look::Attributes { .. } => clear(attrs.next()).map_or(Seen::Unclear, Seen::Attributes),
            Look::Data { bytes, .. } => {
                let start = at;
                at += bytes;
                clear(data.next()).map_or(Seen::Unclear, |read| {
                    let range = start..start + read.bytes;
                    Seen::Data(read, range)
                })
            }
        })
        .collect()
}

/// What was seen. What went wrong is found again by itself, where it is known why.
fn clear<T>(result: Option<FileResult<T>>) -> Option<T> {
    result.and_then(|seen| seen.map_err(|errno: Errno| tracing::trace!(%errno, "in a batch")).ok())
}
