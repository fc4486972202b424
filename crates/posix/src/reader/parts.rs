//! Ranges of a file as requests to its shards. Owns the way between the two, and the copying out.

use std::sync::Arc;

use azekura_client::{Fetch, Wanted, pieces};
use azekura_policy::{ByteRange, LinkEstimate};
use azekura_proto::message::ShardRef;

use super::leases::Leases;
use crate::{FileSystem, OpenFile};

/// Most bytes of one request: small enough that the first bytes of a long range can be used early.
const REQUEST_BYTES: u64 = 256 * 1024;
/// The same while it is not known what the link can carry: the parts are dealt to several connections,
/// all of which are slow at first.
const FIRST_REQUEST_BYTES: u64 = 64 * 1024;

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
    /// Whether its bytes may be used now.
    pub(super) fn is_good(&self, leases: &Leases) -> bool {
        self.version.is_some() && leases.version(self.shard) == self.version
    }
}

/// Cuts a range into requests, which are not sent yet.
pub(super) fn cut(
    fs: &FileSystem,
    file: &OpenFile,
    leases: &Leases,
    link: LinkEstimate,
    range: ByteRange,
) -> Vec<Part> {
    let request_bytes = if link.untried { FIRST_REQUEST_BYTES } else { REQUEST_BYTES };
    let mut parts = Vec::new();
    for extent in pieces(file.geometry(), range.offset, range.bytes) {
        let data = ShardRef { oid: file.oid(), shard: extent.shard, is_file: true };
        let target = fs.shard_target(file.oid(), extent.shard);
        let mut done = 0;
        while done < extent.bytes {
            let bytes = (extent.bytes - done).min(request_bytes);
            let wanted = Wanted::Data { offset: extent.local_offset + done, bytes: bytes as u32 };
            parts.push(Part {
                range: ByteRange::new(extent.offset + done, bytes),
                shard: extent.shard,
                version: leases.version(extent.shard),
                fetch: Fetch::new(target, data, wanted),
                counted: false,
            });
            done += bytes;
        }
    }
    parts
}

/// The requests of parts.
pub(super) fn fetches(parts: &[Part]) -> Vec<Arc<Fetch>> {
    parts.iter().map(|part| Arc::clone(&part.fetch)).collect()
}

/// Copies what of a part lies in a read to its place in the buffer. False if it is not there.
pub(super) fn copy(part: &Part, read: ByteRange, buffer: &mut [u8]) -> bool {
    let common = part.range.intersection(read);
    if common.is_empty() {
        return true;
    }
    let from = (common.offset - part.range.offset) as usize;
    let to = (common.offset - read.offset) as usize;
    part.fetch.copy(from, &mut buffer[to..to + common.bytes as usize])
}
