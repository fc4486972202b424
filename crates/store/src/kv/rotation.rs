//! When memtables go to disk. Owns the count of what is in them, the call for sealing them at their
//! size, and the brake on commits when the disk cannot keep up, so that memory stays bounded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use azekura_platform::{Platform, Signal};
use parking_lot::{Condvar, Mutex};

use super::space::Tree;

const MIB: u64 = 1024 * 1024;
/// Commits wait when a memtable has grown to so many times its limit.
const BRAKE_FACTOR: u64 = 2;
/// Between two looks of a commit that is held back.
const WAIT: Duration = Duration::from_millis(2);

/// Size at which the memtable of a tree is sealed, in bytes.
fn limit_bytes(tree: Tree) -> u64 {
    match tree {
        Tree::Lasting => 8 * MIB,
        Tree::Passing => 4 * MIB,
    }
}

/// How much is in the memtables, and who waits for that.
pub(crate) struct Rotation {
    pending_bytes: [AtomicU64; 2],
    asked: AtomicBool,
    stopping: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    relief: Signal,
}

impl Rotation {
    pub(crate) fn new() -> Self {
        Self {
            pending_bytes: [AtomicU64::new(0), AtomicU64::new(0)],
            asked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            relief: Signal::new(),
        }
    }

    /// Says how many bytes the active memtable of a tree holds. After a kill it may be full from the
    /// start: then no commit passes the brake that could call for sealing it.
    pub(crate) fn set_pending(&self, tree: Tree, bytes: u64) {
        self.pending_bytes[tree as usize].store(bytes, Ordering::Relaxed);
        if self.is_full(tree) {
            self.ask();
        }
        self.relief.notify_all();
    }

    /// Calls for sealing what is full.
    fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            let _held = self.lock.lock();
            self.wake.notify_one();
        }
    }

    /// Counts a commit, by tree.
    pub(crate) fn add(&self, bytes: [u64; 2]) {
        let mut over = false;
        for tree in Tree::ALL {
            let bytes = bytes[tree as usize];
            if bytes > 0 {
                self.pending_bytes[tree as usize].fetch_add(bytes, Ordering::Relaxed);
                over |= self.is_full(tree);
            }
        }
        if over {
            self.ask();
        }
    }

    /// Whether commits have to wait since the memtables are far too large.
    pub(crate) fn is_braking(&self) -> bool {
        Tree::ALL.iter().any(|tree| self.pending(*tree) > BRAKE_FACTOR * limit_bytes(*tree))
    }

    /// Whether the memtable of a tree has to be sealed.
    pub(crate) fn is_full(&self, tree: Tree) -> bool {
        self.pending(tree) > limit_bytes(tree)
    }

    /// Holds a commit back for a while, unless the brake is off.
    pub(crate) fn wait_for_relief(&self, platform: &dyn Platform) {
        let mut held = self.lock.lock();
        if self.is_braking() {
            self.relief.wait_for(platform, &mut held, WAIT);
        }
    }

    fn pending(&self, tree: Tree) -> u64 {
        self.pending_bytes[tree as usize].load(Ordering::Relaxed)
    }

    /// Tells the thread that seals to end.
    pub(crate) fn stop(&self) {
        let _held = self.lock.lock();
        self.stopping.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until a memtable is full; false when the store is closed.
    pub(crate) fn wait(&self) -> bool {
        let mut held = self.lock.lock();
        while !self.asked.swap(false, Ordering::AcqRel) {
            if self.stopping.load(Ordering::Acquire) {
                return false;
            }
            self.wake.wait(&mut held);
        }
        !self.stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_that_is_full_from_the_start_is_sealed() {
        let rotation = Rotation::new();
        rotation.set_pending(Tree::Lasting, limit_bytes(Tree::Lasting));
        assert!(!rotation.asked.load(Ordering::Relaxed));
        rotation.set_pending(Tree::Lasting, BRAKE_FACTOR * limit_bytes(Tree::Lasting) + 1);
        assert!(rotation.is_braking() && rotation.asked.load(Ordering::Relaxed));
        assert!(rotation.wait(), "whoever seals has something to do");
    }
}
