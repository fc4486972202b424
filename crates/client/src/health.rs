//! What is known of an engine's health and distance. Owns the flags and the measure, not what follows from
//! them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use azekura_policy::Distance;
use parking_lot::Mutex;

/// So many answers are timed first, and then those of every so many ..
const TIMED_FIRST: u32 = 16;
const TIMED_EVERY: u32 = 8;
/// .. but each, where a round trip takes so many microseconds that looking at the clock is nothing.
const TIMED_FROM_US: u64 = 500;

/// An answer with much data that was late is no measure of the way, and may be all that is asked for: then something small
/// is asked for as well, once in so many microseconds.
const ASKED_EVERY_US: u64 = 200_000;

/// The health of one engine, as this client has met it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The engine was not to be reached for a whole request time-out.
    down: AtomicBool,
    distance: Mutex<Distance>,
    /// What `distance` has, to be read without the lock: about a round trip in microseconds, 0 before the
    /// first, and how often the engine was found to have moved away.
    round_trip_us: AtomicU64,
    moves: AtomicU32,
    answers: AtomicU32,
    /// When something small was last asked for because answers with much data are late.
    asked_us: AtomicU64,
    /// When the engine last answered something that was timed; 0 before the first.
    answered_us: AtomicU64,
}

impl Health {
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Notes whether the engine is down; true if that is news.
    pub(crate) fn set_down(&self, down: bool) -> bool {
        self.down.load(Ordering::Relaxed) != down && self.down.swap(down, Ordering::Relaxed) != down
    }

    /// About how long a round trip to the engine takes, in microseconds.
    pub(crate) fn round_trip_us(&self) -> Option<u64> {
        Some(self.round_trip_us.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    /// How often the engine was found to have moved away.
    pub(crate) fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }

    /// The engine has answered this session.
    pub(crate) fn note_answered(&self, now_us: u64) {
        self.answered_us.store(now_us.max(1), Ordering::Relaxed);
    }

    /// Whether the engine has answered this session within so long, as far as that was noted.
    pub(crate) fn has_answered_within(&self, now_us: u64, limit: Duration) -> bool {
        let answered_us = self.answered_us.load(Ordering::Relaxed);
        answered_us > 0 && u128::from(now_us.saturating_sub(answered_us)) < limit.as_micros()
    }

    /// Whether the answer to a small request that is about to be sent is to be timed.
    pub(crate) fn times_next(&self) -> bool {
        let count = self.answers.fetch_add(1, Ordering::Relaxed);
        count < TIMED_FIRST
            || count.is_multiple_of(TIMED_EVERY)
            || self.round_trip_us.load(Ordering::Relaxed) >= TIMED_FROM_US
    }

    /// Something small was answered at this time, or the engine was dialled, after so long.
    pub(crate) fn note_round_trip(&self, now_us: u64, took: Duration) {
        // Another thread's value is as good; and after a fork the lock may be held by one that is not there.
        let Some(mut distance) = self.distance.try_lock() else { return };
        if distance.saw(now_us, took.as_micros() as u64) {
            self.round_trip_us.store(distance.round_trip_us(), Ordering::Relaxed);
            self.moves.store(distance.moves(), Ordering::Release);
        }
    }

    /// An answer with much data has come at this time after so long. Tells whether something small is to be asked for now.
    pub(crate) fn doubts_distance(&self, now_us: u64, took: Duration) -> bool {
        let is_late =
            self.round_trip_us().is_some_and(|us| Distance::is_late(us, took.as_micros() as u64));
        let asked_us = self.asked_us.load(Ordering::Relaxed);
        is_late
            && now_us.saturating_sub(asked_us) >= ASKED_EVERY_US
            // Of several threads one asks.
            && self
                .asked_us
                .compare_exchange(asked_us, now_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Something was answered after so long that may have taken longer than a round trip: it counts only if
    /// it was quicker than what is known.
    pub(crate) fn note_at_most(&self, now_us: u64, took: Duration) {
        if self.round_trip_us().is_none_or(|us| took.as_micros() < u128::from(us)) {
            self.note_round_trip(now_us, took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_data_that_are_late_have_something_small_asked_for_now_and_then() {
        let health = Health::default();
        let late = Duration::from_millis(60);
        assert!(!health.doubts_distance(0, late), "nothing is known that it could be later than");
        health.note_round_trip(0, Duration::from_micros(200));
        assert!(!health.doubts_distance(ASKED_EVERY_US, Duration::from_millis(1)));
        assert!(health.doubts_distance(ASKED_EVERY_US, late));
        assert!(!health.doubts_distance(ASKED_EVERY_US + 1, late), "it was asked just now");
        assert!(health.doubts_distance(2 * ASKED_EVERY_US, late));
        // What came of it is believed after a while, and then nothing is late any more.
        for round in 0..20 {
            health.note_round_trip((3 + round) * ASKED_EVERY_US, Duration::from_millis(50));
        }
        assert_eq!((health.round_trip_us(), health.moves()), (Some(50_000), 1));
        assert!(!health.doubts_distance(40 * ASKED_EVERY_US, late));
    }
}
