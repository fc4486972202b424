//! How much of what was written may be in flight to an engine. Owns the policy's names, and the window:
//! about twice what the link carries per round trip; must never know what is written where.
//!
//! # The client's side
//!
//! One [`WriteWindow`] per engine. [`WriteWindow::sent`] when a write goes out, [`WriteWindow::answered`] or
//! [`WriteWindow::failed`] when its answer has come or will not. As long as [`WriteWindow::is_open`], a
//! program need not wait for the answers.

use std::fmt;
use std::str::FromStr;

/// What may be in flight over a link of which nothing is known, in bytes: less than half a second
/// of a slow one.
const FIRST_BYTES: u64 = 64 << 10;
/// Most in flight to one engine, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Rounds over which the highest rate counts.
const ROUNDS: usize = 8;
/// Shortest round, in microseconds.
const ROUND_MIN_US: u64 = 1_000;
/// What is in flight takes no longer than this at the link's rate, in microseconds.
const TIME_MAX_US: u64 = 500_000;

/// How files are written whose data are far away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WritePolicy {
    /// Writes over long links are kept in flight.
    #[default]
    Auto,
    /// Every write waits for its answer.
    Through,
    /// Writes over any link are kept in flight: for tests. It has no name.
    Always,
}

/// A text that names no policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WritePolicyError(String);

impl fmt::Display for WritePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no write policy: use auto or through", self.0)
    }
}

impl std::error::Error for WritePolicyError {}

impl FromStr for WritePolicy {
    type Err = WritePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "through" => Ok(Self::Through),
            other => Err(WritePolicyError(other.to_owned())),
        }
    }
}

/// The window of writes in flight to one engine.
#[derive(Clone, Debug)]
pub struct WriteWindow {
    limit_bytes: u64,
    in_flight_bytes: u64,
    /// The shortest answer so far; 0 if none has come.
    round_trip_us: u64,
    round_start_us: u64,
    round_bytes: u64,
    /// Bytes per second of the last rounds.
    rates: [u64; ROUNDS],
    next_rate: usize,
}

impl Default for WriteWindow {
    fn default() -> Self {
        Self {
            limit_bytes: FIRST_BYTES,
            in_flight_bytes: 0,
            round_trip_us: 0,
            round_start_us: 0,
            round_bytes: 0,
            rates: [0; ROUNDS],
            next_rate: 0,
        }
    }
}

impl WriteWindow {
    /// What may be in flight, in bytes.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether no more is in flight than may be.
    pub const fn is_open(&self) -> bool {
        self.in_flight_bytes <= self.limit_bytes
    }

    /// The shortest round trip seen, in microseconds; 0 if none was.
    pub const fn round_trip_us(&self) -> u64 {
        self.round_trip_us
    }

    /// Something small was answered after this time, in microseconds.
    pub fn saw_round_trip(&mut self, us: u64) {
        let us = us.max(1);
        if self.round_trip_us == 0 || us < self.round_trip_us {
            self.round_trip_us = us;
        }
    }

    /// The engine is so many microseconds away by now, as other requests to it have shown; of effect where
    /// that is far more than what has been seen here.
    pub fn has_moved_away(&mut self, us: u64) {
        if (1..us / 2).contains(&self.round_trip_us) {
            self.round_trip_us = us;
        }
    }

    /// A write goes out.
    pub fn sent(&mut self, now_us: u64, bytes: u64) {
        if self.in_flight_bytes == 0 {
            // Idle time says nothing about the link.
            self.round_start_us = now_us;
            self.round_bytes = 0;
        }
        self.in_flight_bytes += bytes;
    }

    /// Its answer will not come.
    pub fn failed(&mut self, bytes: u64) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    /// Its answer has come.
    pub fn answered(&mut self, now_us: u64, sent_us: u64, bytes: u64) {
        self.failed(bytes);
        self.saw_round_trip(now_us.saturating_sub(sent_us));
        self.round_bytes += bytes;
        let round_us = now_us.saturating_sub(self.round_start_us);
        if round_us < self.round_trip_us.max(ROUND_MIN_US) {
            return;
        }
        let per_second = |bytes: u64, us: u64| u128::from(bytes) * 1_000_000 / u128::from(us);
        let rate = u64::try_from(per_second(self.round_bytes, round_us)).unwrap_or(u64::MAX);
        self.rates[self.next_rate] = rate;
        self.next_rate = (self.next_rate + 1) % ROUNDS;
        (self.round_start_us, self.round_bytes) = (now_us, 0);
        let rate = self.rates.iter().copied().max().unwrap_or(0);
        let time_us = self.round_trip_us.saturating_mul(2).min(TIME_MAX_US);
        let bytes = u128::from(rate) * u128::from(time_us) / 1_000_000;
        self.limit_bytes = u64::try_from(bytes).unwrap_or(MAX_BYTES).clamp(FIRST_BYTES, MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Writes for some time over a link with this rate in bytes per microsecond; gives how much
    /// was carried, and the window.
    fn write_over(
        round_trip_us: u64,
        rate: u64,
        piece_bytes: u64,
        time_us: u64,
    ) -> (u64, WriteWindow) {
        let mut window = WriteWindow::default();
        let (mut now_us, mut free_us, mut carried) = (0, 0, 0);
        let mut flying: VecDeque<(u64, u64)> = VecDeque::new();
        while now_us < time_us {
            now_us += 5;
            while flying.front().is_some_and(|(_, due_us)| *due_us <= now_us) {
                let (sent_us, _) = flying.pop_front().unwrap();
                window.answered(now_us, sent_us, piece_bytes);
                carried += piece_bytes;
            }
            while window.is_open() {
                window.sent(now_us, piece_bytes);
                free_us = free_us.max(now_us) + piece_bytes / rate;
                flying.push_back((now_us, free_us + round_trip_us));
            }
        }
        (carried, window)
    }

    #[test]
    fn the_window_grows_until_the_link_is_full() {
        let (carried, window) = write_over(50_000, 117, 4096, 3_000_000);
        assert!(carried > 3_000_000 * 117 * 7 / 10, "{carried}");
        let product = 50_000 * 117;
        assert!((product..product * 3).contains(&window.limit_bytes()), "{window:?}");
    }

    #[test]
    fn large_pieces_fill_it_too() {
        let (carried, _) = write_over(50_000, 117, 1 << 20, 3_000_000);
        assert!(carried > 3_000_000 * 117 * 7 / 10, "{carried}");
    }

    #[test]
    fn a_slow_link_never_has_more_to_carry_than_it_can_in_half_a_second() {
        let (_, window) = write_over(600_000, 1, 4096, 20_000_000);
        assert!(window.limit_bytes() <= 500_000, "{window:?}");
        let (_, window) = write_over(20_000, 1, 4096, 5_000_000);
        assert!(window.limit_bytes() <= 64 << 10, "{window:?}");
    }

    #[test]
    fn what_fails_is_no_longer_in_flight_and_the_bound_holds() {
        let mut window = WriteWindow::default();
        window.sent(0, 1 << 30);
        assert!(!window.is_open());
        window.failed(1 << 30);
        assert!(window.is_open());
        window.sent(0, u64::MAX / 2);
        window.answered(1, 0, u64::MAX / 2);
        window.sent(1, 1 << 40);
        window.answered(2_000_000, 1, 1 << 40);
        assert!(window.limit_bytes() <= MAX_BYTES);
    }

    #[test]
    fn policies_have_names() {
        assert_eq!("auto".parse(), Ok(WritePolicy::Auto));
        assert_eq!("through".parse(), Ok(WritePolicy::Through));
        let error = "always".parse::<WritePolicy>().unwrap_err();
        assert!(error.to_string().contains("through"));
    }

    #[test]
    fn what_other_requests_show_counts_where_it_is_far_more() {
        let mut window = WriteWindow::default();
        window.has_moved_away(50_000);
        assert_eq!(window.round_trip_us(), 0, "nothing was seen that it could have moved from");
        window.saw_round_trip(100);
        window.has_moved_away(190);
        assert_eq!(window.round_trip_us(), 100);
        window.has_moved_away(50_000);
        assert_eq!(window.round_trip_us(), 50_000);
        window.saw_round_trip(40_000);
        assert_eq!(window.round_trip_us(), 40_000);
    }
}
