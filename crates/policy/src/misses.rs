//! Reads of one open file that began where nothing was known to be read next, and nothing had been asked for. Owns how
//! much time such a read costs whoever reads: a round trip, if he waits for each of them; less, if several threads wait at
//! the same time.

use std::collections::VecDeque;

/// The last ones, by which that is judged.
const LAST: usize = 8;

/// When such reads came, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Misses(VecDeque<u64>);

impl Misses {
    /// One more comes now.
    pub(crate) fn note(&mut self, now_us: u64) {
        if self.0.len() == LAST {
            self.0.pop_front();
        }
        self.0.push_back(now_us);
    }

    /// The time from one of them to the next, in microseconds: a round trip where that is not known better.
    pub(crate) fn every_us(&self, now_us: u64, round_trip_us: u64) -> u64 {
        match self.0.front() {
            Some(first) if self.0.len() == LAST => {
                round_trip_us.min(now_us.saturating_sub(*first) / (LAST as u64 - 1))
            }
            _ => round_trip_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reader_waits_for_each_and_several_for_all_at_once() {
        let (mut one, mut several) = (Misses::default(), Misses::default());
        for read in 0..20 {
            one.note(read * 60_000);
            several.note(read / 8 * 60_000);
        }
        assert_eq!(one.every_us(19 * 60_000, 50_000), 50_000);
        assert_eq!(several.every_us(2 * 60_000, 50_000), 60_000 / 7);
        let mut few = Misses::default();
        (1..LAST).for_each(|_| few.note(0));
        assert_eq!(few.every_us(0, 50_000), 50_000, "that may be chance");
    }
}
