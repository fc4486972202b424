//! Requests that may wait for long, and the interrupts that end their waiting. An interrupt may
//! overtake its request, so that those that fit none are remembered for a while. Bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Most requests that wait at once.
const WAITING_MAX: usize = 1024;
/// Interrupts remembered whose request is not known (yet).
const EARLY_MAX: usize = 1024;

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, Arc<AtomicBool>>,
    early: VecDeque<u64>,
    closed: bool,
}

/// Who waits.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
}

/// A request that waits; dropping it says that it does no longer.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    unique: u64,
    interrupted: Arc<AtomicBool>,
}

impl Waiter {
    /// Whether it should give up.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.state.lock().waiting.remove(&self.unique);
    }
}

impl Waiters {
    /// Request `unique` begins to wait; `None` if too many do.
    pub(crate) fn enter(self: &Arc<Self>, unique: u64) -> Option<Waiter> {
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            return None;
        }
        let early = state.early.iter().position(|&other| other == unique);
        if let Some(place) = early {
            state.early.remove(place);
        }
        let interrupted = Arc::new(AtomicBool::new(early.is_some() || state.closed));
        state.waiting.insert(unique, Arc::clone(&interrupted));
        Some(Waiter { waiters: Arc::clone(self), unique, interrupted })
    }

    /// Whoever sent request `unique` does not want to wait.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.state.lock();
        if let Some(interrupted) = state.waiting.get(&unique) {
            interrupted.store(true, Ordering::Relaxed);
            return;
        }
        if state.early.len() >= EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    /// Nobody is to wait any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting.values().for_each(|interrupted| interrupted.store(true, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_finds_its_request_before_and_after() {
        let waiters = Arc::new(Waiters::default());
        waiters.interrupt(5);
        assert!(waiters.enter(5).unwrap().is_interrupted());
        // It was used up, and so was the request's place.
        let again = waiters.enter(5).unwrap();
        assert!(!again.is_interrupted());
        waiters.interrupt(5);
        assert!(again.is_interrupted());
    }

    #[test]
    fn waiting_and_remembering_are_bounded() {
        let waiters = Arc::new(Waiters::default());
        let all: Vec<_> = (0..WAITING_MAX as u64).map(|unique| waiters.enter(unique)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(waiters.enter(u64::MAX).is_none());
        drop(all);
        for unique in 0..3 * EARLY_MAX as u64 {
            waiters.interrupt(unique);
        }
        assert_eq!(waiters.state.lock().early.len(), EARLY_MAX);
        waiters.close();
        assert!(waiters.enter(u64::MAX).unwrap().is_interrupted());
    }
}
