//! Set-id bits that files were to be given while somebody could write to them past the engine, where nobody would
//! hear of the write that takes them away. Owns which files those are, and what each was then; when one gets its
//! bits is decided elsewhere. What is owed ends with the run of the engine: such a file stays without.

use std::sync::atomic::{AtomicUsize, Ordering};

use azekura_proto::{Attr, Oid, Timestamp};
use parking_lot::Mutex;

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

/// What a file is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owed {
    pub(crate) oid: Oid,
    pub(crate) bits: u16,
    seen: Seen,
}

/// The files of this engine that are to get set-id bits.
#[derive(Debug, Default)]
pub(crate) struct OwedBits {
    owed: Mutex<Vec<Owed>>,
    /// How many; lets requests pass without the lock while it is 0.
    count: AtomicUsize,
}

impl Seen {
    fn of(attr: &Attr) -> Self {
        let Attr { uid, gid, mode, size, mtime, .. } = *attr;
        Self { owner: (uid, gid), mode, bytes: size, mtime }
    }
}

impl Owed {
    /// Whether a file that has these attributes now was neither written nor given another owner or mode since.
    /// Linux makes the time of last write exact for whoever has looked at it from 6.13 on; before, a second write
    /// within one tick of the clock does not show.
    pub(crate) fn is_as_seen(&self, attr: &Attr) -> bool {
        Seen::of(attr) == self.seen
    }
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
    pub(crate) fn take(&self, taken: &Owed) -> bool {
        self.change(|owed| {
            let before = owed.len();
            owed.retain(|owed| owed != taken);
            owed.len() < before
        })
    }

    pub(crate) fn all(&self) -> Vec<Owed> {
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
