//! How far an engine is, as its answers show while a program runs. Owns when that is decided anew: what
//! comes quickly says at once that the engine is near, since nothing answers sooner than it can; that it
//! has moved away is believed only after answers have been late for a while, all of them, so that a busy
//! engine is not taken for a far one and nothing goes back and forth. Must never ask for anything to
//! measure.

/// Answers must have been late for so long, in microseconds ..
const LATE_US: u64 = 2_000_000;
/// .. and have been so many ..
const LATE_SAMPLES: u32 = 8;
/// .. and all of them this many times as late as what is known ..
const LATE_TIMES: u64 = 4;
/// .. and as this, in microseconds. A near engine with too much to do is as late as the shortest of ways.
const LATE_FROM_US: u64 = 2_000;

/// The distance of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distance {
    /// 0 while unknown.
    round_trip_us: u64,
    moves: u32,
    late_since_us: u64,
    late_samples: u32,
    late_smallest_us: u64,
}

impl Distance {
    /// The round trip as it is known, in microseconds; 0 while it is not.
    pub const fn round_trip_us(&self) -> u64 {
        self.round_trip_us
    }

    /// How often the engine was found to have moved away.
    pub const fn moves(&self) -> u32 {
        self.moves
    }

    /// Whether an answer that took so many microseconds was late, where a round trip takes as many as that.
    pub fn is_late(round_trip_us: u64, took_us: u64) -> bool {
        took_us >= round_trip_us.saturating_mul(LATE_TIMES).max(LATE_FROM_US)
    }

    /// Something small was answered at this time after so long, both in microseconds. Tells whether that
    /// changes what is known.
    pub fn saw(&mut self, now_us: u64, took_us: u64) -> bool {
        let took_us = took_us.max(1);
        let is_late = Self::is_late(self.round_trip_us, took_us);
        if self.round_trip_us == 0 || !is_late {
            self.late_samples = 0;
            let is_news = self.round_trip_us == 0 || took_us < self.round_trip_us;
            if is_news {
                self.round_trip_us = took_us;
            }
            return is_news;
        }
        if self.late_samples == 0 {
            (self.late_since_us, self.late_smallest_us) = (now_us, u64::MAX);
        }
        self.late_samples = self.late_samples.saturating_add(1);
        self.late_smallest_us = self.late_smallest_us.min(took_us);
        if self.late_samples < LATE_SAMPLES || now_us.saturating_sub(self.late_since_us) < LATE_US {
            return false;
        }
        self.round_trip_us = self.late_smallest_us;
        self.moves = self.moves.wrapping_add(1);
        self.late_samples = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// What is known after answers that came so often for so long, each after `took_us`.
    fn after(
        distance: &mut Distance,
        from_us: u64,
        for_us: u64,
        every_us: u64,
        took_us: u64,
    ) -> u64 {
        for now_us in (from_us..from_us + for_us).step_by(every_us as usize) {
            distance.saw(now_us, took_us);
        }
        distance.round_trip_us()
    }

    #[test]
    fn one_quick_answer_says_that_an_engine_is_near() {
        let mut distance = Distance::default();
        assert!(distance.saw(0, 50_000) && !distance.saw(1, 60_000));
        assert!(distance.saw(2, 100));
        assert_eq!((distance.round_trip_us(), distance.moves()), (100, 0));
    }

    #[test]
    fn an_engine_that_has_moved_away_is_known_after_a_while() {
        let mut distance = Distance::default();
        distance.saw(0, 100);
        assert_eq!(after(&mut distance, SECOND, LATE_US, SECOND / 20, 50_000), 100);
        assert_eq!(after(&mut distance, SECOND + LATE_US, SECOND, SECOND / 20, 50_000), 50_000);
        assert_eq!(distance.moves(), 1);
        // And back, at once.
        assert!(distance.saw(10 * SECOND, 90));
        assert_eq!((distance.round_trip_us(), distance.moves()), (90, 1));
    }

    #[test]
    fn a_busy_engine_is_not_taken_for_a_far_one() {
        let mut distance = Distance::default();
        distance.saw(0, 100);
        for now_us in (0..60 * SECOND).step_by(10_000) {
            // Most answers are late, one each second is not.
            distance.saw(now_us, if now_us % SECOND == 0 { 120 } else { 9_000 });
        }
        assert_eq!((distance.round_trip_us(), distance.moves()), (100, 0));
        // Nor is one by a few answers, however late and far between.
        distance.saw(60 * SECOND, 110);
        for turn in 0..5 {
            distance.saw((100 + turn * 10) * SECOND, 500_000);
        }
        assert_eq!(distance.moves(), 0);
    }

    #[test]
    fn what_is_little_slower_changes_nothing() {
        for (known_us, later_us) in [(40_000, 150_000), (60, 1_900)] {
            let mut distance = Distance::default();
            distance.saw(0, known_us);
            assert_eq!(after(&mut distance, 0, 60 * SECOND, SECOND / 10, later_us), known_us);
        }
    }
}
