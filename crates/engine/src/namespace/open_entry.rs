//! Opening what a name leads to, for clients that read far files: the entry, the lease, the attributes under it
//! and the file's last bytes by one request. Owns the order in which they are looked at: whatever is told is
//! as it is while the lease holds.

use std::time::Duration;

use azekura_proto::layout::Piece;
use azekura_proto::limits::{BROUGHT_FILE_BYTES_MAX, NAME_BYTES_MAX};
use azekura_proto::message::{Answer, Reply};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, FileKind, Layout, Oid, Status};

use crate::data::files::{ReadLeased, lease_shards};
use crate::data::leases::Granted;
use crate::data::shards::read_bytes;
use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::entries::find_entry;
use crate::node::Node;
use crate::requests::bulk::Bulk;
use crate::requests::sessions::Session;
use crate::target::Target;

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
        let (attr, others, brought_bytes) = (None, Vec::new(), None);
        return Ok(Reply::Opened { entry, attr, lease_ms: 0, version: 0, others, brought_bytes });
    };
    let leased = if wanted.lease && entry.kind == FileKind::Regular {
        lease_shards(node, home, session.id, entry.oid)?
    } else {
        let granted = Granted { lease: Duration::ZERO, version: 0 };
        ReadLeased { granted, others: Vec::new(), inode: load_inode(home, entry.oid)? }
    };
    let ReadLeased { granted, others, inode } = leased;
    // Only what is looked at after the grant is what the lease promises.
    let attr = complete(node, home, Some(session.id), entry.oid, &inode)?;
    let is_leased = !granted.lease.is_zero() && (!attr.striped || !others.is_empty());
    let brought_bytes =
        if is_leased { bring(node, session, &attr, wanted.bring_bytes, bulk) } else { None };
    if matches!(entry.kind, FileKind::Regular | FileKind::Directory) {
        // Last, since nobody would give it back after a failure; under the lock, so that an unlink sees it.
        let _state = home.lock();
        load_inode(home, entry.oid)?;
        node.sessions.open(session, entry.oid)?;
    }
    let lease_ms = granted.lease.as_millis() as u32;
    let (attr, version) = (Some(Box::new(attr)), granted.version);
    Ok(Reply::Opened { entry, attr, lease_ms, version, others, brought_bytes })
}

/// Reads what comes with the opening of a file whose shards are here; gives how many there are before a hole. What cannot be had
/// is left to whoever reads it.
fn bring(
    node: &Node,
    session: &Session,
    attr: &Attr,
    wanted_bytes: u32,
    bulk: &mut Bulk<'_, '_>,
) -> Option<u32> {
    let layout = Layout::of_file(node.placement(), attr.oid, attr.chunk_bytes);
    let start = layout.geometry().brought(attr.size, wanted_bytes);
    let Piece { target, data, local_offset, bytes, .. } =
        layout.pieces(start, attr.size - start, BROUGHT_FILE_BYTES_MAX.into()).next()?;
    let range = (local_offset, bytes as u32);
    let shard = (data.oid, data.shard);
    read_bytes(node, node.local(target)?, Some(session.id), shard, range, bulk).ok()
}
