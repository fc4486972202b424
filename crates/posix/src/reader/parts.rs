//! Ranges of a file as requests to its shards. Owns the way between the two, the copying out, and what a
//! read of far data can come to.

use std::sync::Arc;

use azekura_client::{Fetch, Wanted};
use azekura_policy::{ByteRange, LinkEstimate};

use super::leases::ReadLeases;
use crate::layout::{FileLayout, Piece};

/// Most bytes of one request: small enough that the first bytes of a long range can be used early.
const REQUEST_BYTES: u64 = 256 * 1024;
/// The same while it is not known what the link can carry: the parts are dealt to several connections,
/// all of which are slow at first.
const FIRST_REQUEST_BYTES: u64 = 64 * 1024;

/// What a read by the file's policy came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FarRead {
    /// So many bytes lie in the buffer.
    Done(usize),
    /// The read is to be done by requests of just its bytes.
    Direct(Direct),
}

/// Why a read is done by requests of just its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direct {
    /// Files are read so, or the data are so near that nothing is gained by asking early.
    Near,
    /// This is a forked child: a thread that is not there may hold the lock of what was read ahead.
    Forked,
    /// Only the pool knows what lies behind the end that is known.
    BeyondKnownEnd,
    /// Others write to the file, or its leases cannot be had, so that nothing may be kept of it.
    NoLease,
    /// What was asked for is not there: a hole, the end of a file that was cut, or lost on the way.
    NotThere,
}

/// A part of a range: what one request brings.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Where it lies in the file.
    pub(super) range: ByteRange,
    pub(super) shard: u16,
    /// The version of the shard's data that the lease named when it was asked for.
    pub(super) version: Option<u64>,
    pub(super) fetch: Arc<Fetch>,
    /// Whether its coming has been told to the policy.
    pub(super) counted: bool,
}

impl Part {
    /// Whether its bytes may be used now: they are of the version that the lease holds for.
    pub(super) fn is_good(&self, leases: &ReadLeases) -> bool {
        self.version.is_some() && leases.version(self.shard) == self.version
    }

    /// Copies what of the part lies in a read to its place in the buffer. False if it is not there.
    pub(super) fn copy(&self, read: ByteRange, buffer: &mut [u8]) -> bool {
        let within = self.range.intersection(read);
        if within.is_empty() {
            return true;
        }
        let from = (within.offset - self.range.offset) as usize;
        let to = (within.offset - read.offset) as usize;
        self.fetch.copy(from, &mut buffer[to..to + within.bytes as usize])
    }
}

/// Cuts a range into requests, and puts them behind those that are to be sent.
pub(super) fn cut(
    layout: &FileLayout,
    leases: &ReadLeases,
    link: LinkEstimate,
    range: ByteRange,
    to_send: &mut Vec<Arc<Fetch>>,
) -> Vec<Part> {
    let request_bytes = if link.untried { FIRST_REQUEST_BYTES } else { REQUEST_BYTES };
    let part = |piece: Piece| {
        let wanted = Wanted::Data { offset: piece.local_offset, bytes: piece.bytes as u32 };
        let fetch = Fetch::new(piece.target, piece.data, wanted);
        to_send.push(Arc::clone(&fetch));
        Part {
            range: ByteRange::new(piece.offset, piece.bytes),
            shard: piece.data.shard,
            version: leases.version(piece.data.shard),
            fetch,
            counted: false,
        }
    };
    layout.pieces(range.offset, range.bytes, request_bytes).map(part).collect()
}
