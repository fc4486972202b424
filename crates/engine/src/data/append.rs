//! Appending to a file. Owns the order of an append: its place is recorded before its bytes are
//! written, so that a retry lands on the same place and nobody else does.

use azekura_proto::attr::FileKind;
use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::{Layout, Oid, Status};

use crate::data::shards::check_range;
use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::inode::set_striped;
use crate::node::Node;
use crate::records::record::Inode;
use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::target::Target;

/// Answer to `Append`, with all of its data.
pub(crate) fn append(
    node: &Node,
    target: &Target,
    caller: &Caller,
    oid: Oid,
    data: &[u8],
) -> Answer {
    let _size_guard = target.lock_size(oid);
    let inode = load_inode(target, oid)?;
    if inode.kind != FileKind::Regular {
        return Err(Status::Invalid);
    }
    let layout = node.layout(oid, inode.chunk_bytes);
    let offset = match caller.first_answer(&target.store)? {
        Some(FirstAnswer::Appended { oid: first, offset, truncations, .. }) if first == oid => {
            if truncations != inode.truncations {
                // It was carried out, and cut since: writing it again would undo the cut.
                return Ok(Reply::Appended { offset });
            }
            offset
        }
        Some(_) => return Err(Status::Invalid),
        None => {
            let offset = complete(node, target, caller.client(), oid, &inode)?.size;
            check_range(offset, data.len() as u64)?;
            reserve(node, target, caller, (layout, &inode), (offset, data.len() as u64))?;
            offset
        }
    };
    for piece in layout.pieces(offset, data.len() as u64, u64::MAX) {
        let bytes = &data[piece.within(offset)];
        let shard = piece.data.shard;
        if let Some(local) = node.local(piece.target) {
            local.leases.before_write((oid, shard), caller.client());
            let file = local.store.shard_create(oid, shard).map_err(store_status)?;
            file.write_at(bytes, piece.local_offset).map_err(store_status)?;
        } else {
            let request = Request::Write { data: piece.data, offset: piece.local_offset };
            node.call_remote(piece.target, &request, bytes)?;
        }
    }
    Ok(Reply::Appended { offset })
}

/// Puts the place of an append on record.
fn reserve(
    node: &Node,
    target: &Target,
    caller: &Caller,
    (layout, inode): (Layout, &Inode),
    (offset, bytes): (u64, u64),
) -> Result<(), Status> {
    let (oid, geometry) = (layout.oid(), layout.geometry());
    let end = offset + bytes;
    if !geometry.is_within_first_chunk(end) {
        set_striped(target, oid)?;
        if caller.sequence > 0 && bytes > 0 {
            // A restart finds only unstriped files too short for what is on record, so a striped one is
            // made long enough first.
            let shard = geometry.last_shard(end);
            let request = Request::ShardTruncate {
                data: layout.shard(shard),
                bytes: geometry.local_bytes(shard, end),
                exactly: true,
            };
            node.call(layout.target(shard), &request)?;
        }
    }
    let mut update = Update::new(target);
    let truncations = inode.truncations;
    caller.record(&mut update, FirstAnswer::Appended { oid, offset, end, truncations });
    update.commit().map(drop)
}
