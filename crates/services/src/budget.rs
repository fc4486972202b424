//! How much of what is read ahead may be in memory at once, over all files of a service. Grants; waits never.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is left.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

/// Bytes that may be in memory; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { used: Arc::default(), bytes }
    }

    /// A share, if it is there; what somebody waits for gets one in any case.
    pub(crate) fn take(&self, bytes: usize, is_waited_for: bool) -> Option<Share> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { used: Arc::clone(&self.used), bytes };
        (is_waited_for || used + bytes <= self.bytes).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back() {
        let budget = Budget::new(10);
        let first = budget.take(8, false).unwrap();
        assert!(budget.take(8, false).is_none());
        let waited_for = budget.take(8, true).unwrap();
        drop((first, waited_for));
        assert!(budget.take(10, false).is_some());
    }
}
