//! Waiting for what another thread of this process does. Owns that nobody is woken where nobody waits,
//! and that nothing which is done in between is missed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Rings when something has been done.
#[derive(Debug, Default)]
pub(super) struct Bell {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Something has been done, under a lock that [`Bell::wait`]'s condition takes too: a waiter that
    /// looked before that has said so before.
    pub(super) fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _locked = self.lock.lock();
            self.rung.notify_all();
        }
    }

    /// Waits until something is the case, as long as `limit` at most. Tells whether it is.
    pub(super) fn wait(&self, limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        if limit.is_zero() {
            return is_so();
        }
        let deadline = Instant::now() + limit;
        let mut locked = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let so = loop {
            if is_so() {
                break true;
            }
            if self.rung.wait_until(&mut locked, deadline).timed_out() {
                break is_so();
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        so
    }
}
