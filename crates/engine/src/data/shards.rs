//! Array data of one target: reading, writing and shaping the files of shards. Owns which reads are
//! copied and which are sent from the file, and who is waited for before data are looked at or changed.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use azekura_proto::attr::FileKind;
use azekura_proto::limits::{FILE_BYTES_MAX, LEASED_WRITE_BYTES_MAX, READ_BULK_BYTES_MAX};
use azekura_proto::message::{Allocation, Answer, Reply, ShardRef};
use azekura_proto::{Oid, SessionId, Status, Timestamp};
use azekura_store::Space;

use crate::data::descriptors;
use crate::namespace::attributes::{load_inode, wire_stat};
use crate::namespace::leased_names;
use crate::node::Node;
use crate::records::stored::store_status;
use crate::requests::bulk::{Bulk, FileRange};
use crate::target::{LeaseKind, Target};

/// Reads up to this size are copied, which costs less than a second system call.
const COPY_MAX: u32 = 32 * 1024;

/// Shard 0 of a file must have its inode here. Answers whether the file is striped.
fn check_file(target: &Target, data: ShardRef) -> Result<bool, Status> {
    if !data.is_file || data.shard != 0 {
        return Ok(false);
    }
    let inode = load_inode(target, data.oid)?;
    match inode.kind {
        FileKind::Regular => Ok(inode.striped),
        FileKind::Directory => Err(Status::IsDirectory),
        _ => Err(Status::Invalid),
    }
}

pub(crate) fn check_range(offset: u64, bytes: u64) -> Result<(), Status> {
    match offset.checked_add(bytes) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Status::FileTooBig),
    }
}

/// Answer to `Read`. `reader`: the session of the client that reads.
pub(crate) fn read(
    node: &Node,
    target: &Target,
    reader: Option<SessionId>,
    data: ShardRef,
    (offset, bytes): (u64, u32),
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    if bytes > READ_BULK_BYTES_MAX {
        return Err(Status::TooLarge);
    }
    let striped = check_file(target, data)?;
    let bytes = read_bytes(node, target, reader, (data.oid, data.shard), (offset, bytes), bulk)?;
    Ok(Reply::Data { bytes, striped })
}

/// Puts bytes of a shard into what is answered; gives how many there are.
pub(crate) fn read_bytes(
    node: &Node,
    target: &Target,
    reader: Option<SessionId>,
    (oid, shard): (Oid, u16),
    (offset, bytes): (u64, u32),
    bulk: &mut Bulk<'_, '_>,
) -> Result<u32, Status> {
    target.leases.before_read((oid, shard), reader);
    let Some(file) = target.store.shard(oid, shard).map_err(store_status)? else {
        return Ok(0);
    };
    let bytes = if bytes <= COPY_MAX || file.descriptor().is_none() {
        let read = file.read_at(bulk.room(bytes as usize), offset).map_err(store_status)?;
        bulk.send_room(read);
        read as u32
    } else {
        let bytes = file.readable(offset, u64::from(bytes)).map_err(store_status)? as u32;
        if bytes > 0 {
            bulk.send_file(FileRange { file, offset, bytes });
        }
        bytes
    };
    node.metrics.read_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    Ok(bytes)
}

/// Answer to `ShardDescriptor` and `ShardWriteDescriptor`: what `open` gives.
pub(crate) fn descriptor(
    node: &Node,
    target: &Target,
    data: ShardRef,
    bulk: &mut Bulk<'_, '_>,
    open: impl FnOnce() -> Result<OwnedFd, Status>,
) -> Answer {
    if !data.is_file {
        return Err(Status::Invalid);
    }
    check_file(target, data)?;
    bulk.send_descriptor(open()?);
    node.metrics.descriptors.fetch_add(1, Ordering::Relaxed);
    Ok(Reply::Done)
}

/// Answer to `LeaseRead`.
pub(crate) fn lease_read(target: &Target, session: SessionId, data: ShardRef) -> Answer {
    check_file(target, data)?;
    target.record_leases(LeaseKind::Read)?;
    if !data.is_file {
        // Of names, for which nobody has waited yet.
        target.leases.before_look_up((data.oid, data.shard), Some(session));
    }
    let others_write = || data.is_file && descriptors::may_be_written(target, data.oid, data.shard);
    Ok(target.leases.grant_read((data.oid, data.shard), session, others_write).into())
}

/// Answer to `LeaseWrite`.
pub(crate) fn lease_write(
    target: &Target,
    session: SessionId,
    data: ShardRef,
    instead_of: Option<u64>,
) -> Answer {
    if !data.is_file {
        return leased_names::lease(target, session, data, instead_of);
    }
    check_file(target, data)?;
    target.record_leases(LeaseKind::Write)?;
    let ShardRef { oid, shard, .. } = data;
    // Who reads past the engine would miss what is answered early.
    let others_look = || descriptors::may_be_out(target, oid, shard);
    Ok(target.leases.grant_write((oid, shard), session, instead_of, others_look).into())
}

/// Answer to `WriteLeased`. All of the data have to be here first: what is on its way when the lease
/// ends is not carried out afterwards.
pub(crate) fn write_leased(
    target: &Target,
    writer: SessionId,
    data: ShardRef,
    (offset, epoch): (u64, u64),
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    if bulk.bytes() > LEASED_WRITE_BYTES_MAX {
        return Err(Status::TooLarge);
    }
    let bytes = bulk.take_all()?;
    check_range(offset, bytes.len() as u64)?;
    check_file(target, data)?;
    let key = (data.oid, data.shard);
    let granted = target.leases.begin_write(key, writer, epoch).ok_or(Status::ConditionFailed)?;
    let written = target
        .store
        .shard_create(data.oid, data.shard)
        .and_then(|file| file.write_at(bytes, offset))
        .map_err(store_status);
    target.leases.end_write(key, epoch);
    written.map(|()| granted.into())
}

/// Answer to `Write`. `writer`: the session of the client that writes.
pub(crate) fn write(
    target: &Target,
    writer: Option<SessionId>,
    data: ShardRef,
    offset: u64,
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    check_range(offset, u64::from(bulk.bytes()))?;
    check_file(target, data)?;
    let _change = target.leases.before_write((data.oid, data.shard), writer);
    let file = target.store.shard_create(data.oid, data.shard).map_err(store_status)?;
    bulk.take_pieces(|piece, at| file.write_at(piece, offset + at).map_err(store_status))?;
    Ok(Reply::Done)
}

/// Answer to `ShardTruncate`.
pub(crate) fn truncate(target: &Target, data: ShardRef, bytes: u64, exactly: bool) -> Answer {
    check_range(0, bytes)?;
    let _change = target.leases.before_write((data.oid, data.shard), None);
    let file = if exactly && bytes > 0 {
        Some(target.store.shard_create(data.oid, data.shard).map_err(store_status)?)
    } else {
        target.store.shard(data.oid, data.shard).map_err(store_status)?
    };
    if let Some(file) = file
        && (exactly || file.stat().map_err(store_status)?.bytes > bytes)
    {
        file.truncate(bytes).map_err(store_status)?;
    }
    Ok(Reply::Done)
}

/// Answer to `ShardExtend`.
pub(crate) fn extend(
    target: &Target,
    data: ShardRef,
    (from, to): (u64, u64),
    token: u64,
) -> Answer {
    check_range(0, to)?;
    if from > to {
        return Err(Status::Invalid);
    }
    let _change = target.leases.before_write((data.oid, data.shard), None);
    let file = target.store.shard_create(data.oid, data.shard).map_err(store_status)?;
    if file.extend(from, to, token).map_err(store_status)? {
        Ok(Reply::Done)
    } else {
        Err(Status::ConditionFailed)
    }
}

/// Answer to `ShardStat`.
pub(crate) fn stat(target: &Target, asker: Option<SessionId>, data: ShardRef) -> Answer {
    target.leases.before_read((data.oid, data.shard), asker);
    let stat = target.store.shard_stat(data.oid, data.shard).map_err(store_status)?;
    Ok(Reply::Shard(stat.map(wire_stat)))
}

/// Answer to `ShardAllocate`. `writer`: the session of the client that asks for it.
pub(crate) fn allocate(
    target: &Target,
    writer: Option<SessionId>,
    data: ShardRef,
    (offset, bytes): (u64, u64),
    what: Allocation,
) -> Answer {
    check_range(offset, bytes)?;
    check_file(target, data)?;
    let key = (data.oid, data.shard);
    let _change = if what == Allocation::KeepSize {
        target.leases.before_read(key, writer);
        None
    } else {
        Some(target.leases.before_write(key, writer))
    };
    if what == Allocation::PunchHole {
        if let Some(file) = target.store.shard(data.oid, data.shard).map_err(store_status)? {
            file.punch_hole(offset, bytes).map_err(store_status)?;
        }
        return Ok(Reply::Done);
    }
    let file = target.store.shard_create(data.oid, data.shard).map_err(store_status)?;
    match what {
        Allocation::Grow => file.allocate(offset, bytes, false),
        Allocation::KeepSize => file.allocate(offset, bytes, true),
        Allocation::Zero => file.zero_range(offset, bytes, false),
        Allocation::ZeroKeepSize => file.zero_range(offset, bytes, true),
        Allocation::PunchHole => Ok(()),
    }
    .map_err(store_status)?;
    Ok(Reply::Done)
}

/// Answer to `ShardSeek`.
pub(crate) fn seek(
    target: &Target,
    asker: Option<SessionId>,
    data: ShardRef,
    offset: u64,
    hole: bool,
) -> Answer {
    check_file(target, data)?;
    target.leases.before_read((data.oid, data.shard), asker);
    let Some(file) = target.store.shard(data.oid, data.shard).map_err(store_status)? else {
        return Ok(Reply::Offset(None));
    };
    let found = if hole { file.seek_hole(offset) } else { file.seek_data(offset) };
    Ok(Reply::Offset(found.map_err(store_status)?))
}

/// Answer to `ShardTouch`. `asker`: the session that sets the time.
pub(crate) fn touch(
    target: &Target,
    asker: Option<SessionId>,
    data: ShardRef,
    mtime: Timestamp,
) -> Answer {
    // Writes that were answered before this must not be later than it.
    target.leases.before_read((data.oid, data.shard), asker);
    if let Some(file) = target.store.shard(data.oid, data.shard).map_err(store_status)? {
        file.set_mtime(mtime).map_err(store_status)?;
    }
    Ok(Reply::Done)
}

/// Answer to `Sync`.
pub(crate) fn sync(
    target: &Target,
    asker: Option<SessionId>,
    data: Option<ShardRef>,
    data_only: bool,
) -> Answer {
    if let Some(data) = data {
        if data.is_file && data.shard == 0 {
            // What is lost, as after a loss of power, is not durable.
            load_inode(target, data.oid)?;
        }
        // What others have been told is written is to be durable too.
        target.leases.before_read((data.oid, data.shard), asker);
    }
    if let Some(data) = data
        && let Some(file) = target.store.shard(data.oid, data.shard).map_err(store_status)?
    {
        file.sync(data_only).map_err(store_status)?;
    }
    target.store.sync().map_err(store_status)?;
    Ok(Reply::Done)
}

/// Answer to `SyncAll`.
pub(crate) fn sync_all(target: &Target) -> Answer {
    target.store.sync_file_system().map_err(|error| {
        tracing::error!("cannot make data durable: {error}");
        Status::Io
    })?;
    sync(target, None, None, true)
}

/// Answer to `ShardRemove`.
pub(crate) fn remove(target: &Target, data: ShardRef) -> Answer {
    // Never the data of a file that is there: only its reclaimer and repair ask for this.
    let alive = data.shard == 0
        && target.store.get(Space::Inode, &data.oid.to_bytes()).map_err(store_status)?.is_some();
    if alive {
        return Err(Status::Busy);
    }
    let removed = if data.is_file {
        target.store.shard_remove_freed(data.oid, data.shard)
    } else {
        target.store.shard_remove(data.oid, data.shard)
    };
    removed.map_err(store_status)?;
    Ok(Reply::Done)
}
