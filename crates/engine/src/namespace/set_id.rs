//! Giving files the set-id bits that they are owed, once nobody can write to them past the engine any more: so
//! `tar x`, which gives a file its mode and closes it then, leaves it with them. Owns that a file gets them only if
//! its data, owner and mode are as they were when it was to have them.

use azekura_proto::Status;

use crate::data::descriptors::may_be_written;
use crate::data::owed_bits::Owed;
use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::inode::{before_change, change_inode};
use crate::node::Node;
use crate::target::Target;

/// Gives the bits to files that nobody can write to any more. To be called with no lock.
pub(crate) fn give_due(node: &Node) {
    for owed in node.owed_bits.all() {
        let Some(home) = node.local_home(owed.oid) else { continue };
        if may_be_written(home, owed.oid, 0) || !node.owed_bits.take(&owed) {
            continue;
        }
        match give(node, home, &owed) {
            // Or it was removed.
            Ok(()) | Err(Status::Stale) => {}
            Err(status) => {
                tracing::warn!(oid = %owed.oid, "it stays without its set-id bits: {status}");
            }
        }
    }
}

fn give(node: &Node, target: &Target, owed: &Owed) -> Result<(), Status> {
    // Nobody gets a descriptor meanwhile.
    let _change = before_change(target, None, owed.oid)?;
    let seen = load_inode(target, owed.oid)?;
    let attr = complete(node, target, None, owed.oid, &seen)?;
    if may_be_written(target, owed.oid, 0) || !owed.is_as_seen(&attr) {
        return Ok(());
    }
    let stamp = target.fine_now();
    change_inode(target, owed.oid, |inode| {
        if inode.guard() == seen.guard() {
            inode.mode |= owed.bits;
            inode.ctime = stamp;
        }
        Ok(())
    })
    .map(drop)
}
