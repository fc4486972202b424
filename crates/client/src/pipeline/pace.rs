//! How fast a connection brings what is under way on it. Owns the measure, and knows no connection: a read that is
//! dealt to several is over when the slowest has brought its part.

/// From so many bytes on something is known.
const KNOWN_BYTES: u64 = 512 << 10;
/// The last so many bytes count, and at most as many before them.
const LATE_BYTES: u64 = 2 << 20;
/// What nobody has waited for may have lain there for any time, unless it follows within this, in microseconds.
const AT_ONCE_US: u64 = 1_000;
/// What a connection that is as fast as the others is dealt, and the bounds for one that is not: the slowest goes on
/// showing what it can.
const SHARE: u64 = 16;
const SHARE_MIN: u64 = SHARE / 2;
const SHARE_MAX: u64 = SHARE * 2;

/// What was seen of a connection.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When something came last, if more was under way.
    last_us: Option<u64>,
    bytes: u64,
    us: u64,
}

impl Pace {
    /// So many bytes have come. `waited`: somebody has waited for them; `goes_on`: more is under way.
    pub(super) fn note(&mut self, now_us: u64, bytes: u64, waited: bool, goes_on: bool) {
        let last_us = std::mem::replace(&mut self.last_us, goes_on.then_some(now_us));
        let Some(last_us) = last_us else { return };
        let took_us = now_us.saturating_sub(last_us);
        if waited || took_us <= AT_ONCE_US {
            self.bytes += bytes;
            self.us += took_us;
        }
        if self.bytes > 2 * LATE_BYTES {
            self.bytes /= 2;
            self.us /= 2;
        }
    }

    /// In bytes per second; `None` while that is not known.
    pub(super) fn bytes_per_second(&self) -> Option<u64> {
        let is_known = self.bytes >= KNOWN_BYTES && self.us > 0;
        is_known.then(|| self.bytes.saturating_mul(1_000_000) / self.us)
    }

    /// How much it is dealt beside others, which bring so much on the average: [`SHARE`] where nothing is known.
    pub(super) fn share(&self, mean: Option<u64>) -> u64 {
        let known = self.bytes_per_second().zip(mean.filter(|mean| *mean > 0));
        known.map_or(SHARE, |(own, mean)| {
            (own.saturating_mul(SHARE) / mean).clamp(SHARE_MIN, SHARE_MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Brings pieces of 256 KiB, one after so many microseconds.
    fn bring(pace: &mut Pace, from_us: u64, each_us: u64) -> u64 {
        for piece in 0..8 {
            pace.note(from_us + piece * each_us, 256 << 10, true, piece < 7);
        }
        from_us + 7 * each_us
    }

    #[test]
    fn what_comes_in_a_row_counts_and_waiting_for_the_first_does_not() {
        let mut pace = Pace::default();
        assert_eq!(pace.bytes_per_second(), None);
        let end_us = bring(&mut pace, 50_000, 10_000);
        assert_eq!(pace.bytes_per_second(), Some((256 << 10) * 100));
        bring(&mut pace, end_us + 1_000_000, 10_000);
        assert_eq!(pace.bytes_per_second(), Some((256 << 10) * 100));
        // Nobody was there for a while.
        pace.note(9_000_000, 1, true, true);
        pace.note(9_900_000, 256 << 10, false, true);
        assert_eq!(pace.bytes_per_second(), Some((256 << 10) * 100));
    }

    #[test]
    fn the_faster_is_dealt_more_within_bounds() {
        let (mut fast, mut slow) = (Pace::default(), Pace::default());
        assert_eq!(fast.share(Some(1)), SHARE);
        bring(&mut fast, 0, 5_000);
        bring(&mut slow, 0, 20_000);
        let rate = |pace: &Pace| pace.bytes_per_second().unwrap();
        let mean = rate(&fast).midpoint(rate(&slow));
        assert_eq!(fast.share(Some(mean)), SHARE * 8 / 5);
        assert_eq!(slow.share(Some(mean)), SHARE_MIN);
        assert_eq!(fast.share(Some(rate(&slow))), SHARE_MAX);
        assert_eq!(fast.share(None), SHARE);
    }
}
