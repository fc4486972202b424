//! Set-id bits that files were to be given while somebody could write to them past the engine, where nobody would
//! hear of the write that takes them away. Owns which files those are, and that one gets its bits once nobody can
//! write so any more, and only if its data, owner and mode are as they were then. So `tar x`, which gives a file its
//! mode and closes it then, leaves it with the bits.
//!
//! What is owed ends with the run of the engine: such a file stays without. That a file was written is known by its
//! time of last write, which Linux makes exact for whoever has looked at it from 6.13 on; before, a second write within
//! one tick of the clock does not show.

use std::sync::atomic::{AtomicUsize, Ordering};

use azekura_proto::attr::AttrChange;
use azekura_proto::{Attr, Oid, Status, Timestamp};
use parking_lot::Mutex;

use crate::data::descriptors::may_be_written;
use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::inode::{before_change, change_inode};
use crate::node::Node;
use crate::target::Target;

/// More files than this are not remembered: each is looked at with every request.
const OWED_MAX: usize = 64;

/// What a file was when it was to get its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    owner: (u32, u32),
    mode: u16,
    bytes: u64,
    mtime: Timestamp,
}

impl Seen {
    fn of(attr: &Attr) -> Self {
        let Attr { uid, gid, mode, size, mtime, .. } = *attr;
        Self { owner: (uid, gid), mode, bytes: size, mtime }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owed {
    oid: Oid,
    bits: u16,
    seen: Seen,
}

/// The files of this engine that are to get set-id bits.
#[derive(Debug, Default)]
pub(crate) struct OwedBits {
    owed: Mutex<Vec<Owed>>,
    /// How many; lets requests pass without the lock while it is 0.
    count: AtomicUsize,
}

impl OwedBits {
    /// A file has these attributes now, and is to get `bits` later; those and no others.
    pub(crate) fn set(&self, attr: &Attr, bits: u16) {
        if bits == 0 && self.is_empty() {
            return;
        }
        self.change(|owed| {
            owed.retain(|owed| owed.oid != attr.oid);
            if bits != 0 {
                owed.truncate(OWED_MAX - 1);
                owed.insert(0, Owed { oid: attr.oid, bits, seen: Seen::of(attr) });
            }
        });
    }

    /// Whether this was owed, which it is no more.
    fn take(&self, taken: &Owed) -> bool {
        self.change(|owed| {
            let before = owed.len();
            owed.retain(|owed| owed != taken);
            owed.len() < before
        })
    }

    fn all(&self) -> Vec<Owed> {
        if self.is_empty() { Vec::new() } else { self.owed.lock().clone() }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<Owed>) -> R) -> R {
        let mut owed = self.owed.lock();
        let result = change(&mut owed);
        self.count.store(owed.len(), Ordering::Release);
        result
    }
}

/// The bits that a file is owed still once its attributes have changed so: those that it is owed now, after a change
/// of nothing but times.
pub(crate) fn owed_after(
    node: &Node,
    target: &Target,
    oid: Oid,
    change: &AttrChange,
) -> Result<u16, Status> {
    let AttrChange { mode, uid, gid, size, clear_mode_bits, .. } = change;
    if (mode, uid, gid, size, *clear_mode_bits) != (&None, &None, &None, &None, 0) {
        return Ok(0);
    }
    match node.owed_bits.all().iter().find(|owed| owed.oid == oid) {
        Some(owed) if is_as_seen(node, target, owed)? => Ok(owed.bits),
        _ => Ok(0),
    }
}

/// Gives the bits to files that nobody can write to any more. To be called with no lock.
pub(crate) fn give_due(node: &Node) {
    for owed in node.owed_bits.all() {
        let Some(home) = node.local_home(owed.oid) else { continue };
        if may_be_written(home, owed.oid, 0) || !node.owed_bits.take(&owed) {
            continue;
        }
        if let Err(status) = give(node, home, &owed) {
            tracing::warn!(oid = %owed.oid, "it stays without its set-id bits: {status}");
        }
    }
}

fn give(node: &Node, target: &Target, owed: &Owed) -> Result<(), Status> {
    // Nobody gets a descriptor meanwhile.
    let _change = before_change(target, None, owed.oid)?;
    if may_be_written(target, owed.oid, 0) || !is_as_seen(node, target, owed)? {
        return Ok(());
    }
    let stamp = target.fine_now();
    change_inode(target, owed.oid, |inode| {
        if (inode.uid, inode.gid) == owed.seen.owner && inode.mode == owed.seen.mode {
            inode.mode |= owed.bits;
            inode.ctime = stamp;
        }
        Ok(())
    })
    .map(drop)
}

fn is_as_seen(node: &Node, target: &Target, owed: &Owed) -> Result<bool, Status> {
    match load_inode(target, owed.oid) {
        Ok(inode) => Ok(Seen::of(&complete(node, target, None, owed.oid, &inode)?) == owed.seen),
        // It was removed.
        Err(Status::Stale) => Ok(false),
        Err(status) => Err(status),
    }
}
