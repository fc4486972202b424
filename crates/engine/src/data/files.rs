//! Files as a whole: data and attributes by one request to the file's home, for clients that keep none of
//! them open, or leases with attributes for those that do. Owns the order in which both are looked at, and
//! that a write is carried out only under the attributes by which it was judged. It never judges permissions
//! itself, and knows only the home's part of a file's data.

use azekura_proto::attr::{ChangeMark, FileGuard, FileKind};
use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use azekura_proto::message::{Answer, Reply};
use azekura_proto::{Geometry, Oid, SessionId, Status};
use azekura_store::ShardFile;

use crate::data::descriptors;
use crate::data::leases::Granted;
use crate::data::shards::{check_range, read_bytes};
use crate::namespace::attributes::{at_home, complete, load_inode};
use crate::node::Node;
use crate::records::record::Inode;
use crate::records::stored::store_status;
use crate::requests::bulk::Bulk;
use crate::target::{LeaseKind, Target};

/// Writes up to this size keep other writers of the file away, so that it is known how the file was
/// before. They are all here then: nobody waits for a peer meanwhile.
const HELD_BYTES_MAX: u32 = 64 * 1024;

fn regular(target: &Target, oid: Oid) -> Result<Inode, Status> {
    let inode = load_inode(target, oid)?;
    match inode.kind {
        FileKind::Regular => Ok(inode),
        FileKind::Directory => Err(Status::IsDirectory),
        _ => Err(Status::Invalid),
    }
}

/// How many of the bytes from `offset` on can lie in one run at home, by the file's own chunk size.
fn at_home_from(node: &Node, oid: Oid, inode: &Inode, offset: u64) -> u64 {
    let geometry = Geometry::new(inode.chunk_bytes, node.shards(oid));
    if geometry.shards() == 1 { u64::MAX } else { geometry.chunk_bytes().saturating_sub(offset) }
}

/// Answer to `ReadFile`. `reader`: the session of the client that reads.
pub(crate) fn read(
    node: &Node,
    target: &Target,
    reader: Option<SessionId>,
    oid: Oid,
    (offset, bytes): (u64, u32),
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    if bytes > FRAME_BULK_BYTES_MAX {
        return Err(Status::TooLarge);
    }
    // Who may read is judged by what was so before the bytes were looked at: a secret that is gone by
    // the time that the file is opened to all must not be shown. Its length is looked at afterwards, so
    // that a file which becomes shorter meanwhile ends where the bytes end.
    let inode = regular(target, oid)?;
    let here = at_home_from(node, oid, &inode, offset).min(u64::from(bytes)) as u32;
    let bytes = match here {
        0 => 0,
        here => read_bytes(node, target, reader, (oid, 0), (offset, here), bulk)?,
    };
    let attr = complete(node, target, reader, oid, &inode)?;
    let is_short = bytes < here && offset.saturating_add(bytes.into()) < attr.size;
    if is_short
        && !inode.striped
        && let Some(file) = target.store.shard(oid, 0).map_err(store_status)?
    {
        return read_held(oid, &inode, &file, (offset, here), bulk);
    }
    Ok(Reply::FileData { bytes, attr: Box::new(attr) })
}

/// Reads while nobody writes: the file has grown between a look at its bytes and one at its length.
fn read_held(
    oid: Oid,
    inode: &Inode,
    file: &ShardFile,
    (offset, bytes): (u64, u32),
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    let held = file.hold();
    let read = file.read_at(bulk.room(bytes as usize), offset).map_err(store_status)?;
    let stat = file.stat().map_err(store_status)?;
    drop(held);
    bulk.send_room(read);
    let attr = Box::new(at_home(oid, inode, Some(stat)));
    Ok(Reply::FileData { bytes: read as u32, attr })
}

/// Answer to `LeaseFile`.
pub(crate) fn lease(node: &Node, target: &Target, session: SessionId, oid: Oid) -> Answer {
    regular(target, oid)?;
    let ReadLeased { granted, others, inode } = lease_shards(node, target, session, oid)?;
    // Only what is looked at after that is what the leases promise.
    let attr = Box::new(complete(node, target, Some(session), oid, &inode)?);
    let lease_ms = granted.lease.as_millis() as u32;
    Ok(Reply::FileLeased { lease_ms, version: granted.version, others, attr })
}

/// Read leases of a file's shards.
pub(crate) struct ReadLeased {
    /// Of the home's.
    pub(crate) granted: Granted,
    /// The versions of the others, if they are leased as well.
    pub(crate) others: Vec<u64>,
    /// The inode as it is under the home's lease.
    pub(crate) inode: Inode,
}

/// Leases the home's shard of a regular file for reading, and the others of one that is striped, if they are here
/// and have not to be waited for: whoever is far away asks for them at once otherwise.
pub(crate) fn lease_shards(
    node: &Node,
    home: &Target,
    session: SessionId,
    oid: Oid,
) -> Result<ReadLeased, Status> {
    let lease = |target: &Target, shard| -> Result<Granted, Status> {
        target.record_leases(LeaseKind::Read)?;
        let others_write = || descriptors::may_be_written(target, oid, shard);
        Ok(target.leases.grant_read((oid, shard), session, others_write))
    };
    let granted = lease(home, 0)?;
    let inode = load_inode(home, oid)?;
    let mut others = Vec::new();
    if granted.lease.is_zero() || !inode.striped {
        return Ok(ReadLeased { granted, others, inode });
    }
    let at_hand = |shard| {
        let target = node.local(node.shard_target(oid, shard))?;
        (!target.leases.would_wait((oid, shard), Some(session))).then_some((target, shard))
    };
    let shards: Option<Vec<_>> = (1..node.shards(oid)).map(at_hand).collect();
    for (target, shard) in shards.unwrap_or_default() {
        let granted = lease(target, shard)?;
        if granted.lease.is_zero() {
            others.clear();
            break;
        }
        others.push(granted.version);
    }
    Ok(ReadLeased { granted, others, inode })
}

/// Answer to `WriteFile`. `writer`: the session of the client that writes.
pub(crate) fn write(
    node: &Node,
    target: &Target,
    writer: Option<SessionId>,
    oid: Oid,
    (offset, guard): (u64, &FileGuard),
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    let bytes = u64::from(bulk.bytes());
    check_range(offset, bytes)?;
    let inode = regular(target, oid)?;
    if inode.guard() != *guard {
        return Err(Status::ConditionFailed);
    }
    if bytes > at_home_from(node, oid, &inode, offset) {
        return Err(Status::Invalid);
    }
    let before = if bulk.bytes() <= HELD_BYTES_MAX {
        let data = bulk.take_all()?;
        let _change = target.leases.before_write((oid, 0), writer);
        let was_there = target.store.shard(oid, 0).map_err(store_status)?.is_some();
        let file = target.store.shard_create(oid, 0).map_err(store_status)?;
        let mark = write_held(oid, &inode, &file, was_there, (offset, data))?;
        let is_alone = !inode.striped && !descriptors::may_be_written(target, oid, 0);
        is_alone.then_some(mark)
    } else {
        let _change = target.leases.before_write((oid, 0), writer);
        let file = target.store.shard_create(oid, 0).map_err(store_status)?;
        bulk.take_pieces(|piece, at| file.write_at(piece, offset + at).map_err(store_status))?;
        None
    };
    // Looked up anew: the file may have been striped since, and be longer than is known here.
    let inode = regular(target, oid)?;
    let attr = Box::new(complete(node, target, writer, oid, &inode)?);
    Ok(Reply::Written { before, attr })
}

/// Writes while nobody else does; gives how the file was before.
fn write_held(
    oid: Oid,
    inode: &Inode,
    file: &ShardFile,
    was_there: bool,
    (offset, data): (u64, &[u8]),
) -> Result<ChangeMark, Status> {
    let held = file.hold();
    let stat = file.stat().map_err(store_status)?;
    // Made by this write or by another one just now, it has no time of its own yet.
    let counts = was_there || stat.bytes > 0;
    let mark = ChangeMark::of(&at_home(oid, inode, counts.then_some(stat)));
    held.write_at(data, offset).map_err(store_status)?;
    Ok(mark)
}
