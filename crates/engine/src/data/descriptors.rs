//! Descriptors of shards' files, for clients of this host that read or write them by themselves. Owns what is
//! promised to others meanwhile: nobody's writes are answered before they are here, which would not be seen
//! through a descriptor; and while a file may be written through one, nobody is told that its data stay as they
//! are, and it gets no privileges that a write would have to take.
//!
//! Who has a descriptor is not kept: the kernel knows it, also of those that an earlier run has handed out.
//! What they are for is known of those that this run has handed out; any other may be for writing.

use std::os::fd::OwnedFd;

use azekura_proto::attr::CAPABILITY_XATTR;
use azekura_proto::message::ShardRef;
use azekura_proto::{Oid, SessionId, Status};
use azekura_store::{ShardFile, Space};

use crate::data::handed_out::Use;
use crate::namespace::attributes::load_inode;
use crate::records::record::xattr_key;
use crate::records::stored::store_status;
use crate::target::{LeaseKind, Target};

/// Set-user and set-group bits, which a write takes from a file.
const SET_ID: u16 = 0o6000;

/// Opens a shard's file for a client that reads it by itself.
///
/// # Errors
/// `NotFound` if the shard has none, `ConditionFailed` while anybody has its write lease, `Unsupported` if
/// nothing is handed out from this disk.
pub(crate) fn open(target: &Target, oid: Oid, shard: u16) -> Result<OwnedFd, Status> {
    let file = target.store.shard(oid, shard).map_err(store_status)?.ok_or(Status::NotFound)?;
    let opened = target.leases.while_unwritten((oid, shard), || {
        // Not if nobody could tell later whether it is still out.
        let has_others = file.is_open_elsewhere().ok_or(Status::Unsupported)?;
        target.handed_out.note((oid, shard), Use::Reading, has_others);
        file.open_to_read().map_err(store_status)
    });
    opened.ok_or(Status::ConditionFailed)?
}

/// Opens a shard's file for a client that reads and writes it by itself. `wait`: for the leases of others. Of a
/// file of several shards the client has that of the home before others: there it is known who writes.
///
/// # Errors
/// As [`open`]; `ConditionFailed` also while anybody else has a read lease, or the file has privileges, or the
/// disk is too full for writes that are not counted.
pub(crate) fn open_to_write(
    target: &Target,
    session: SessionId,
    data: ShardRef,
    wait: bool,
) -> Result<OwnedFd, Status> {
    let ShardRef { oid, shard, .. } = data;
    // Before one is out: the next run has to ask the kernel who has one.
    target.record_leases(LeaseKind::WriteDescriptor)?;
    let opened = target.leases.while_unused((oid, shard), session, wait, || {
        if shard == 0 && has_privileges(target, oid)? {
            return Err(Status::ConditionFailed);
        }
        let file = target.store.shard_create(oid, shard).map_err(store_status)?;
        let has_others = file.is_open_elsewhere().ok_or(Status::Unsupported)?;
        let opened = open_file(&file)?;
        target.handed_out.note((oid, shard), Use::Writing, has_others);
        Ok(opened)
    });
    opened.ok_or(Status::ConditionFailed)?
}

fn open_file(file: &ShardFile) -> Result<OwnedFd, Status> {
    file.open_to_write().map_err(store_status)?.ok_or(Status::ConditionFailed)
}

/// Whether a file has what a write must take from it.
fn has_privileges(target: &Target, oid: Oid) -> Result<bool, Status> {
    let inode = load_inode(target, oid)?;
    let has_capability = || target.store.get(Space::Xattr, &xattr_key(oid, CAPABILITY_XATTR));
    let is_capable = inode.has_xattrs && has_capability().map_err(store_status)?.is_some();
    Ok(is_capable || inode.mode & SET_ID != 0)
}

/// Whether somebody may have a descriptor of a shard's file. Asked with the leases locked, so that none is
/// handed out meanwhile.
pub(crate) fn may_be_out(target: &Target, oid: Oid, shard: u16) -> bool {
    match target.store.shard(oid, shard) {
        Ok(Some(file)) => file.is_open_elsewhere().unwrap_or(false),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Whether somebody may write to a shard's file by himself. Asked with the leases locked or a change under way,
/// so that nobody gets a descriptor meanwhile.
pub(crate) fn may_be_written(target: &Target, oid: Oid, shard: u16) -> bool {
    target.has_recorded(LeaseKind::WriteDescriptor)
        && !target.handed_out.is_for_reading((oid, shard))
        && may_be_out(target, oid, shard)
}

/// The bits of a mode that a file cannot be given just now: who writes to it past the engine would have to take
/// them away, and nobody hears of those writes.
pub(crate) fn withheld_bits(target: &Target, oid: Oid, mode: Option<u16>) -> u16 {
    let wants_any = mode.is_some_and(|mode| mode & SET_ID != 0);
    if wants_any && may_be_written(target, oid, 0) { SET_ID } else { 0 }
}

/// Has the lengths put on record that files have by now which were written past the store, and forgets those that
/// nobody has any more.
pub(crate) fn look_through(target: &Target) {
    for (key @ (oid, shard), used) in target.handed_out.all() {
        if used == Use::Writing
            && let Ok(Some(file)) = target.store.shard(oid, shard)
            && let Err(error) = file.note_length()
        {
            tracing::warn!(target = target.id.0, "a length is not on record: {error}");
        }
        target.handed_out.forget_unless(key, || may_be_out(target, oid, shard));
    }
}
