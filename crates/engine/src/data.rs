//! Array data: reading, writing, appending and shaping the files of shards. Owns the order of an
//! append: its place is recorded before its bytes are written, so that a retry lands on the same
//! place and nobody else does.

use std::sync::Arc;

use azekura_proto::attr::FileKind;
use azekura_proto::limits::FILE_BYTES_MAX;
use azekura_proto::message::{Allocation, Answer, Reply, Request, ShardRef};
use azekura_proto::{Geometry, Oid, SessionId, Status, Timestamp};
use azekura_store::{ShardFile, Space, StoreError};

use crate::attributes::{complete, load_inode, wire_stat};
use crate::inode::widen;
use crate::leases::Granted;
use crate::node::Node;
use crate::retry::{Caller, FirstAnswer};
use crate::stored::store_status;
use crate::target::{LeaseKind, Target};
use crate::update::Update;

// By value, so that it can stand in `map_err` as it is.
#[allow(clippy::needless_pass_by_value)]
fn fail(error: StoreError) -> Status {
    store_status(&error)
}

/// Shard 0 of a file must have its inode here. Answers whether the file is wide.
fn check_file(target: &Target, data: ShardRef) -> Result<bool, Status> {
    if !data.is_file || data.shard != 0 {
        return Ok(false);
    }
    let inode = load_inode(target, data.oid)?;
    match inode.kind {
        FileKind::Regular => Ok(inode.wide),
        FileKind::Directory => Err(Status::IsDirectory),
        _ => Err(Status::Invalid),
    }
}

fn check_range(offset: u64, bytes: u64) -> Result<(), Status> {
    match offset.checked_add(bytes) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Status::FileTooBig),
    }
}

/// A read that is about to be answered.
pub(crate) struct ReadJob {
    /// Where the bytes are; `None` if the shard has no file.
    pub(crate) file: Option<Arc<ShardFile>>,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) wide: bool,
}

/// Finds what a read needs. `reader`: the session of the client that reads.
pub(crate) fn read(
    target: &Target,
    reader: Option<SessionId>,
    data: ShardRef,
    offset: u64,
    bytes: u32,
) -> Result<ReadJob, Status> {
    if bytes > azekura_proto::limits::FRAME_BULK_BYTES_MAX {
        return Err(Status::TooLarge);
    }
    let wide = check_file(target, data)?;
    target.leases.before_read((data.oid, data.shard), reader);
    let file = target.store.shard(data.oid, data.shard).map_err(fail)?;
    Ok(ReadJob { file, offset, bytes, wide })
}

/// Answer to `LeaseRead`.
pub(crate) fn lease_read(target: &Target, session: SessionId, data: ShardRef) -> Answer {
    check_file(target, data)?;
    target.record_leases(LeaseKind::Read)?;
    Ok(leased(target.leases.grant_read((data.oid, data.shard), session)))
}

/// Answer to `LeaseWrite`.
pub(crate) fn lease_write(
    target: &Target,
    session: SessionId,
    data: ShardRef,
    instead_of: Option<u64>,
) -> Answer {
    check_file(target, data)?;
    target.record_leases(LeaseKind::Write)?;
    Ok(leased(target.leases.grant_write((data.oid, data.shard), session, instead_of)))
}

fn leased(granted: Granted) -> Reply {
    Reply::Leased { lease_ms: granted.lease.as_millis() as u32, version: granted.version }
}

/// Answer to `WriteLeased`, with all of its data: what is on its way when the lease ends is not
/// carried out afterwards.
pub(crate) fn write_leased(
    target: &Target,
    writer: SessionId,
    data: ShardRef,
    (offset, epoch): (u64, u64),
    bytes: &[u8],
) -> Answer {
    check_range(offset, bytes.len() as u64)?;
    check_file(target, data)?;
    let key = (data.oid, data.shard);
    let granted = target.leases.begin_write(key, writer, epoch).ok_or(Status::ConditionFailed)?;
    let written = target
        .store
        .shard_create(data.oid, data.shard)
        .and_then(|file| file.write_at(bytes, offset))
        .map_err(fail);
    target.leases.end_write(key);
    written.map(|()| leased(granted))
}

/// Finds the file that a write goes to. `writer`: the session of the client that writes.
pub(crate) fn open_for_write(
    target: &Target,
    writer: Option<SessionId>,
    data: ShardRef,
    offset: u64,
    bytes: u64,
) -> Result<Arc<ShardFile>, Status> {
    check_range(offset, bytes)?;
    check_file(target, data)?;
    target.leases.before_write((data.oid, data.shard), writer);
    target.store.shard_create(data.oid, data.shard).map_err(fail)
}

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
    let geometry = Geometry::new(inode.chunk_bytes, node.shards(oid));
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
            let place = (offset, data.len() as u64);
            reserve_append(node, target, caller, (oid, inode.truncations), place, geometry)?;
            offset
        }
    };
    for extent in geometry.extents(offset, data.len() as u64) {
        let from = (extent.offset - offset) as usize;
        let piece = &data[from..from + extent.bytes as usize];
        let place = node.shard_target(oid, extent.shard);
        let shard = ShardRef { oid, shard: extent.shard, is_file: false };
        if let Some(local) = node.local(place) {
            local.leases.before_write((oid, extent.shard), caller.client());
            let file = local.store.shard_create(oid, extent.shard).map_err(fail)?;
            file.write_at(piece, extent.local_offset).map_err(fail)?;
        } else {
            let request = Request::Write { data: shard, offset: extent.local_offset };
            node.call_remote(place, &request, piece)?;
        }
    }
    Ok(Reply::Appended { offset })
}

/// Puts the place of an append on record.
fn reserve_append(
    node: &Node,
    target: &Target,
    caller: &Caller,
    (oid, truncations): (Oid, u32),
    (offset, bytes): (u64, u64),
    geometry: Geometry,
) -> Result<(), Status> {
    let end = offset + bytes;
    if !geometry.is_narrow(end) {
        widen(target, oid)?;
        if caller.sequence > 0 && bytes > 0 {
            // A restart finds only narrow files too short for what is on record, so a wide one is
            // made long enough first.
            let shard = geometry.last_shard(end);
            let request = Request::ShardTruncate {
                data: ShardRef { oid, shard, is_file: false },
                bytes: geometry.local_bytes(shard, end),
                exactly: true,
            };
            node.call(node.shard_target(oid, shard), &request)?;
        }
    }
    let mut update = Update::new(target);
    caller.record(&mut update, FirstAnswer::Appended { oid, offset, end, truncations });
    update.commit().map(drop)
}

/// Answer to `ShardTruncate`.
pub(crate) fn truncate(target: &Target, data: ShardRef, bytes: u64, exactly: bool) -> Answer {
    check_range(0, bytes)?;
    target.leases.before_write((data.oid, data.shard), None);
    let file = if exactly && bytes > 0 {
        Some(target.store.shard_create(data.oid, data.shard).map_err(fail)?)
    } else {
        target.store.shard(data.oid, data.shard).map_err(fail)?
    };
    if let Some(file) = file
        && (exactly || file.stat().map_err(fail)?.bytes > bytes)
    {
        file.truncate(bytes).map_err(fail)?;
    }
    Ok(Reply::Done)
}

/// Answer to `ShardStat`.
pub(crate) fn stat(target: &Target, asker: Option<SessionId>, data: ShardRef) -> Answer {
    target.leases.before_read((data.oid, data.shard), asker);
    let stat = target.store.shard_stat(data.oid, data.shard).map_err(fail)?;
    Ok(Reply::Shard(stat.map(wire_stat)))
}

/// Answer to `ShardAllocate`.
pub(crate) fn allocate(
    target: &Target,
    data: ShardRef,
    offset: u64,
    bytes: u64,
    what: Allocation,
) -> Answer {
    check_range(offset, bytes)?;
    check_file(target, data)?;
    if matches!(what, Allocation::Grow | Allocation::KeepSize) {
        target.leases.before_read((data.oid, data.shard), None);
    } else {
        target.leases.before_write((data.oid, data.shard), None);
    }
    if what == Allocation::PunchHole {
        if let Some(file) = target.store.shard(data.oid, data.shard).map_err(fail)? {
            file.punch_hole(offset, bytes).map_err(fail)?;
        }
        return Ok(Reply::Done);
    }
    let file = target.store.shard_create(data.oid, data.shard).map_err(fail)?;
    match what {
        Allocation::Grow => file.allocate(offset, bytes, false),
        Allocation::KeepSize => file.allocate(offset, bytes, true),
        Allocation::Zero => file.zero_range(offset, bytes, false),
        Allocation::ZeroKeepSize => file.zero_range(offset, bytes, true),
        Allocation::PunchHole => Ok(()),
    }
    .map_err(fail)?;
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
    let Some(file) = target.store.shard(data.oid, data.shard).map_err(fail)? else {
        return Ok(Reply::Offset(None));
    };
    let found = if hole { file.seek_hole(offset) } else { file.seek_data(offset) };
    Ok(Reply::Offset(found.map_err(fail)?))
}

/// Answer to `ShardTouch`.
pub(crate) fn touch(target: &Target, data: ShardRef, mtime: Timestamp) -> Answer {
    if let Some(file) = target.store.shard(data.oid, data.shard).map_err(fail)? {
        file.set_mtime(mtime).map_err(fail)?;
    }
    Ok(Reply::Done)
}

/// Answer to `Sync`.
pub(crate) fn sync(target: &Target, asker: Option<SessionId>, data: Option<ShardRef>) -> Answer {
    if let Some(data) = data {
        // What others have been told is written is to be durable too.
        target.leases.before_read((data.oid, data.shard), asker);
    }
    if let Some(data) = data
        && let Some(file) = target.store.shard(data.oid, data.shard).map_err(fail)?
    {
        file.sync(true).map_err(fail)?;
    }
    target.store.sync().map_err(fail)?;
    Ok(Reply::Done)
}

/// Answer to `SyncAll`.
pub(crate) fn sync_all(target: &Target) -> Answer {
    let synced = rustix::fs::open(
        &target.dir,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .and_then(rustix::fs::syncfs);
    if let Err(error) = synced {
        tracing::error!("{}: cannot make data durable: {error}", target.dir.display());
        return Err(Status::Io);
    }
    sync(target, None, None)
}

/// Answer to `ShardRemove`.
pub(crate) fn remove(target: &Target, data: ShardRef) -> Answer {
    // Never the data of a file that is there: only its reclaimer and repair ask for this.
    let alive = data.shard == 0
        && target.store.get(Space::Inode, &data.oid.to_bytes()).map_err(fail)?.is_some();
    if alive {
        return Err(Status::Busy);
    }
    target.store.shard_remove(data.oid, data.shard).map_err(fail)?;
    Ok(Reply::Done)
}
