//! Descriptors of shards' files, for clients of this host that read them by themselves. Owns that none is out
//! while somebody's writes are answered before they are here: only those would not be seen through one, since
//! whatever else changes a file does so here, and to the same file.
//!
//! Who has a descriptor is not kept: the kernel knows it, also of those that an earlier run has handed out.

use std::os::fd::OwnedFd;

use azekura_proto::{Oid, Status};

use crate::records::stored::store_status;
use crate::target::Target;

/// Opens a shard's file for a client that reads it by itself.
///
/// # Errors
/// `NotFound` if the shard has none, `ConditionFailed` while anybody has its write lease, `Unsupported` if
/// nothing is handed out from this disk.
pub(crate) fn open(target: &Target, oid: Oid, shard: u16) -> Result<OwnedFd, Status> {
    let file = target.store.shard(oid, shard).map_err(store_status)?.ok_or(Status::NotFound)?;
    let opened = target.leases.while_unwritten((oid, shard), || {
        // Not if nobody could tell later whether it is still out.
        file.is_open_elsewhere().ok_or(Status::Unsupported)?;
        file.open_to_read().map_err(store_status)
    });
    opened.ok_or(Status::ConditionFailed)?
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
