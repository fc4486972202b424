//! Connections that have fallen far behind the others to their engine. Owns what counts as that, and knows no connection.
//! A reader that does something else for a while leaves its sockets full; a sender that measures the way (BBR) takes that
//! for the way's, and goes on as slowly for seconds, while whoever reads in order waits for it. A new connection is faster
//! after some round trips. Where all are slow nothing is done: then it is not theirs.

/// So many round trips are looked at.
const ROUND_TRIPS: u64 = 3;
/// A connection that has brought so much before, in bytes ..
const GROWN_BYTES: u64 = 64 << 10;
/// .. is slow with less than this in such a time: one that grows as it should brings nearly twice as much. With nothing at
/// all it is not: then the engine is still looking for what was asked for.
const SLOW_BYTES: u64 = 256 << 10;
/// If another one has brought so many times as much, and a MiB.
const TIMES: u64 = 8;
const FAST_BYTES: u64 = 1 << 20;
/// Shorter ways are not looked at, in microseconds: what a connection has lost there it soon has again.
const FAR_US: u64 = 5_000;
/// An engine is given up so many connections at most, whatever becomes of them.
const REPLACED_MAX: u32 = 32;

/// The time that is looked at.
#[derive(Debug, Default)]
pub(super) struct Lap {
    since_us: u64,
    last_us: u64,
    /// How many connections were given up so far.
    replaced: u32,
}

/// What a connection has done in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InLap {
    /// What it has brought.
    pub(super) bytes: u64,
    /// It was no young connection at the beginning, and has had something under way since.
    is_busy: bool,
}

impl InLap {
    /// A connection at the beginning of a lap, that has brought so much before.
    pub(super) fn begin(is_idle: bool, brought_bytes: u64) -> Self {
        Self { bytes: 0, is_busy: !is_idle && brought_bytes >= GROWN_BYTES }
    }

    /// It has nothing under way.
    pub(super) fn note_idle(&mut self) {
        self.is_busy = false;
    }
}

impl Lap {
    /// To be asked whenever something was waited for. Where a lap is over gives those of the connections that have
    /// fallen far behind; another one begins with that.
    pub(super) fn look<N>(
        &mut self,
        now_us: u64,
        round_trip_us: u64,
        all: impl Iterator<Item = (N, InLap)> + Clone,
    ) -> Option<Vec<N>> {
        let last_us = std::mem::replace(&mut self.last_us, now_us);
        // Nobody has looked for a while: what was before does not count.
        let is_broken = now_us.saturating_sub(last_us) > round_trip_us;
        let is_over = now_us.saturating_sub(self.since_us) >= ROUND_TRIPS * round_trip_us;
        if round_trip_us < FAR_US || !is_broken && !is_over {
            return None;
        }
        self.since_us = now_us;
        let mut slow = Vec::new();
        if !is_broken && self.replaced < REPLACED_MAX {
            slow.extend(slow_among(all));
        }
        self.replaced += slow.len() as u32;
        Some(slow)
    }
}

/// Those that have fallen far behind.
fn slow_among<N>(all: impl Iterator<Item = (N, InLap)> + Clone) -> impl Iterator<Item = N> {
    let most = all.clone().map(|(_, in_lap)| in_lap.bytes).max().unwrap_or(0);
    let slow = move |&InLap { bytes, is_busy }: &InLap| {
        let is_far_behind = most >= FAST_BYTES.max(bytes * TIMES);
        is_busy && (1..SLOW_BYTES).contains(&bytes) && is_far_behind
    };
    all.filter(move |(_, in_lap)| slow(in_lap)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lap_is_over_after_some_round_trips_and_begins_anew_after_a_pause() {
        let fast = InLap { bytes: FAST_BYTES, is_busy: true };
        let all = [(1, fast), (2, InLap { bytes: 9_000, is_busy: true })];
        let mut lap = Lap { since_us: 100_000, last_us: 100_000, replaced: 0 };
        let mut look = |now_us| lap.look(now_us, 50_000, all.into_iter());
        assert_eq!((look(150_000), look(200_000)), (None, None));
        assert_eq!(look(250_000), Some(vec![2]));
        assert_eq!(look(300_000), None);
        assert_eq!(look(351_000), Some(Vec::new()), "nobody has looked for a while");
        assert_eq!((look(401_000), look(451_000)), (None, None));
        assert_eq!(look(501_000), Some(vec![2]));
        lap.replaced = REPLACED_MAX;
        let mut look = |now_us, round_trip_us| lap.look(now_us, round_trip_us, all.into_iter());
        assert_eq!(look(551_000, FAR_US - 1), None, "it is near");
        assert_eq!(look(552_000, FAR_US), Some(Vec::new()), "there were enough");
    }

    #[test]
    fn slow_is_what_brings_little_beside_another_and_had_enough_to_do() {
        let in_lap = |bytes, is_busy| InLap { bytes, is_busy };
        let slow = |all: &[InLap]| slow_among(all.iter().copied().enumerate()).collect::<Vec<_>>();
        let fast = in_lap(FAST_BYTES, true);
        assert_eq!(slow(&[fast, in_lap(9_000, true), in_lap(SLOW_BYTES, true)]), [1]);
        assert!(slow(&[fast, in_lap(9_000, false)]).is_empty());
        assert!(slow(&[fast, in_lap(0, true)]).is_empty(), "the engine may be looking for it");
        assert!(slow(&[fast, in_lap(FAST_BYTES / TIMES + 1, true)]).is_empty());
        assert!(slow(&[in_lap(FAST_BYTES - 1, true), in_lap(9_000, true)]).is_empty());
        assert!(slow(&[]).is_empty());
    }
}
