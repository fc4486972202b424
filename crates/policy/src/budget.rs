//! The memory that read-ahead may take in a whole process, shared by its files. Owns the count of
//! bytes taken; must never let it pass the limit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all files of a process may hold read ahead, together.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: u64,
    taken_bytes: AtomicU64,
}

impl Budget {
    /// A budget of `limit_bytes`.
    pub const fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, taken_bytes: AtomicU64::new(0) }
    }

    /// Bytes taken now.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Takes `bytes`; tells whether they were there. Takes all or nothing.
    pub fn take(&self, bytes: u64) -> bool {
        self.taken_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes)
            })
            .is_ok()
    }

    /// Gives back `bytes` taken before.
    pub fn give_back(&self, bytes: u64) {
        let less = |taken: u64| Some(taken.saturating_sub(bytes));
        let before = self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        debug_assert!(before.is_ok_and(|taken| taken >= bytes), "more given back than taken");
    }

    /// What a file that holds `own_bytes` may hold now: its own and half of what is free, so that
    /// a file that comes later finds room too.
    pub(crate) fn allowance_bytes(&self, own_bytes: u64) -> u64 {
        own_bytes + self.limit_bytes.saturating_sub(self.taken_bytes()) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn never_passes_its_limit() {
        let budget = Budget::new(100);
        assert!(budget.take(60));
        assert!(!budget.take(41));
        assert!(budget.take(40));
        assert_eq!(budget.allowance_bytes(40), 40);
        budget.give_back(60);
        assert_eq!(budget.allowance_bytes(40), 70);
    }
}
