//! When memtables go to disk. Owns the thread that seals them at their size, and the brake on
//! commits when the disk cannot keep up, so that memory stays bounded. It never fails a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::batch::Tree;
use crate::error::StoreError;
use crate::kv::{KeyValues, Live};

const MIB: u64 = 1024 * 1024;
/// Sizes at which the memtables of the lasting and the passing tree are sealed, in bytes.
const LIMIT_BYTES: [u64; 2] = [8 * MIB, 4 * MIB];
/// Commits wait when a memtable has grown to so many times its limit.
const BRAKE_FACTOR: u64 = 2;
/// The database halts commits, without a way out, at four sealed memtables or thirty runs of
/// tables. Sealing waits before that.
const SEALED_MAX: usize = 2;
const RUNS_MAX: usize = 20;
const WAIT: Duration = Duration::from_millis(2);

/// How much is in the memtables, and who waits for that.
pub(crate) struct Rotation {
    pending_bytes: [AtomicU64; 2],
    asked: AtomicBool,
    stopping: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    relief: Condvar,
}

impl Rotation {
    pub(crate) fn new() -> Self {
        Self {
            pending_bytes: [AtomicU64::new(0), AtomicU64::new(0)],
            asked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            relief: Condvar::new(),
        }
    }

    /// Says how many bytes the active memtable of a tree holds.
    pub(crate) fn set_pending(&self, tree: Tree, bytes: u64) {
        self.pending_bytes[tree as usize].store(bytes, Ordering::Relaxed);
        self.relief.notify_all();
    }

    /// Counts a commit, by tree.
    pub(crate) fn add(&self, bytes: [u64; 2]) {
        let mut over = false;
        for (i, bytes) in bytes.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            let pending = self.pending_bytes[i].fetch_add(bytes, Ordering::Relaxed) + bytes;
            over |= pending > LIMIT_BYTES[i];
        }
        if over && !self.asked.swap(true, Ordering::AcqRel) {
            let _held = self.lock.lock();
            self.wake.notify_one();
        }
    }

    /// Holds a commit back while the memtables are far too large. `is_hopeless` says that nobody
    /// will make them smaller.
    pub(crate) fn throttle(&self, is_hopeless: impl Fn() -> bool) {
        while self.is_braking() && !is_hopeless() {
            let mut held = self.lock.lock();
            if self.is_braking() {
                self.relief.wait_for(&mut held, WAIT);
            }
        }
    }

    fn is_braking(&self) -> bool {
        (0..2)
            .any(|i| self.pending_bytes[i].load(Ordering::Relaxed) > BRAKE_FACTOR * LIMIT_BYTES[i])
    }

    /// Waits until a memtable is full; false when the store is closed.
    fn wait(&self) -> bool {
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

/// The thread that seals memtables, ended and joined on drop.
pub(crate) struct RotationThread {
    kv: Arc<KeyValues>,
    thread: Option<JoinHandle<()>>,
}

impl RotationThread {
    pub(crate) fn start(kv: &Arc<KeyValues>) -> Result<Self, StoreError> {
        let worker = Arc::clone(kv);
        let thread = std::thread::Builder::new()
            .name("azekura-seal".to_owned())
            .spawn(move || run(&worker))
            .map_err(|error| StoreError::system(kv.dir(), "start a thread for", error))?;
        Ok(Self { kv: Arc::clone(kv), thread: Some(thread) })
    }
}

impl Drop for RotationThread {
    fn drop(&mut self) {
        let rotation = &self.kv.rotation;
        {
            let _held = rotation.lock.lock();
            rotation.stopping.store(true, Ordering::Release);
            rotation.wake.notify_one();
        }
        if let Some(thread) = self.thread.take() {
            // It has no way to panic; and if it did, there is nothing left to do here.
            let _ = thread.join();
        }
    }
}

fn run(kv: &KeyValues) {
    while kv.rotation.wait() {
        for tree in [Tree::Lasting, Tree::Passing] {
            let pending = &kv.rotation.pending_bytes[tree as usize];
            if pending.load(Ordering::Relaxed) > LIMIT_BYTES[tree as usize] {
                seal(kv, tree);
            }
        }
    }
}

fn seal(kv: &KeyValues, tree: Tree) {
    // The database syncs its journal before it writes a table, and lets no commit pass meanwhile.
    // Done here first, that is short. A failure is kept there and fails every later sync.
    let _ = kv.sync_database();
    let Ok(live) = kv.live() else { return };
    if !wait_for_tables(kv, &live, tree) {
        return;
    }
    kv.rotation.set_pending(tree, 0);
    if let Err(error) = live.tree(tree).rotate_memtable() {
        let error = StoreError::database(kv.dir(), "seal a memtable", error);
        tracing::error!(%error, "cannot seal a memtable");
    }
    kv.gauge().set_table_bytes(live.table_bytes());
}

/// Waits until the database can take one more sealed memtable; false if it never will.
fn wait_for_tables(kv: &KeyValues, live: &Live, tree: Tree) -> bool {
    let tree = live.tree(tree);
    while tree.sealed_memtable_count() >= SEALED_MAX || tree.l0_table_count() >= RUNS_MAX {
        if kv.rotation.stopping.load(Ordering::Acquire) || live.is_poisoned() {
            return false;
        }
        std::thread::sleep(WAIT);
    }
    true
}
