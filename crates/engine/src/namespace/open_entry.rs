//! Opening what a name leads to, for clients that read far files: the entry, the lease, the attributes under it
//! and the file's last bytes by one request. Owns the order in which they are looked at: whatever is told is
//! as it is while the lease holds.

use std::time::Duration;

use azekura_proto::limits::{BROUGHT_BYTES_MAX, NAME_BYTES_MAX};
use azekura_proto::message::{Answer, Reply};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, FileKind, Oid, Status};

use crate::data::descriptors;
use crate::data::leases::Granted;
use crate::data::shards::read_bytes;
use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::entries::find_entry;
use crate::node::Node;
use crate::requests::bulk::Bulk;
use crate::requests::sessions::Session;
use crate::target::{LeaseKind, Target};

/// What is wanted of a regular file beside that it is open.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) lease: bool,
    pub(crate) bring_bytes: u32,
}

/// Answer to `OpenEntry`.
pub(crate) fn open_entry(
    node: &Node,
    target: &Target,
    session: &Session,
    (dir, name): (Oid, &[u8]),
    wanted: Wanted,
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    let mut gone = None;
    loop {
        let found = find_entry(node, target, Some(session.id), (dir, name))?;
        let entry = found.ok_or(Status::NotFound)?;
        if gone == Some(entry) {
            // It leads nowhere.
            return Err(Status::NotFound);
        }
        match open_found(node, session, entry, wanted, bulk) {
            // Removed since the entry was read; another may have its name.
            Err(Status::Stale) => gone = Some(entry),
            answer => return answer,
        }
    }
}

fn open_found(
    node: &Node,
    session: &Session,
    entry: Entry,
    wanted: Wanted,
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    let Some(home) = node.local_home(entry.oid) else {
        let (attr, brought_bytes) = (None, None);
        return Ok(Reply::Opened { entry, attr, lease_ms: 0, version: 0, brought_bytes });
    };
    let mut granted = Granted { lease: Duration::ZERO, version: 0 };
    if wanted.lease && entry.kind == FileKind::Regular {
        home.record_leases(LeaseKind::Read)?;
        let others_write = || descriptors::may_be_written(home, entry.oid, 0);
        granted = home.leases.grant_read((entry.oid, 0), session.id, others_write);
    }
    // Only what is looked at after the grant is what the lease promises.
    let inode = load_inode(home, entry.oid)?;
    let attr = complete(node, home, Some(session.id), entry.oid, &inode)?;
    let brought_bytes = if granted.lease.is_zero() {
        None
    } else {
        bring(node, home, session, &attr, wanted.bring_bytes, bulk)
    };
    if matches!(entry.kind, FileKind::Regular | FileKind::Directory) {
        // Last, since nobody would give it back after a failure; under the lock, so that an unlink sees it.
        let _state = home.lock();
        load_inode(home, entry.oid)?;
        node.sessions.open(session, entry.oid)?;
    }
    let lease_ms = granted.lease.as_millis() as u32;
    let (attr, version) = (Some(Box::new(attr)), granted.version);
    Ok(Reply::Opened { entry, attr, lease_ms, version, brought_bytes })
}

/// Reads the last bytes of a file that lies at home as a whole; gives how many there are before a hole. What
/// cannot be had is left to whoever reads it.
fn bring(
    node: &Node,
    home: &Target,
    session: &Session,
    attr: &Attr,
    bytes: u32,
    bulk: &mut Bulk<'_, '_>,
) -> Option<u32> {
    let bytes = attr.size.min(bytes.min(BROUGHT_BYTES_MAX).into());
    if attr.striped || bytes == 0 {
        return None;
    }
    let range = (attr.size - bytes, bytes as u32);
    read_bytes(node, home, Some(session.id), (attr.oid, 0), range, bulk).ok()
}
