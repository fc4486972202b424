//! What is known of an engine's health and distance. Owns the flags, not what follows from them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The health of one engine, as this client has met it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The engine was not to be reached for a whole request time-out.
    down: AtomicBool,
    /// The quickest dialling in microseconds, about a round trip; 0 before the first.
    dialled_us: AtomicU64,
}

impl Health {
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Notes whether the engine is down; true if that is news.
    pub(crate) fn set_down(&self, down: bool) -> bool {
        self.down.load(Ordering::Relaxed) != down && self.down.swap(down, Ordering::Relaxed) != down
    }

    /// How long the quickest dialling of the engine has taken, in microseconds: about a round trip.
    pub(crate) fn dialled_us(&self) -> Option<u64> {
        Some(self.dialled_us.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    pub(crate) fn note_dialled(&self, took: Duration) {
        let us = (took.as_micros() as u64).max(1);
        let quicker = |known: u64| (known == 0 || us < known).then_some(us);
        // Another thread's value is as good.
        let _known = self.dialled_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, quicker);
    }
}
