//! The time of each engine as it is counted on here from when it was told last. Owns for how long that is certainly not
//! later than what the engine's own clock shows when something that is sent now arrives there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_proto::{EngineId, Timestamp};

/// From this round trip on, and for so many of them, the engine's time as it is counted on here is certainly not later
/// than that of the engine when a change arrives there: by then two clocks have drifted apart by less than the way
/// there takes, ordinary ones by less than half of that.
const LIFE_FROM: Duration = Duration::from_millis(5);
const LIFE_ROUND_TRIPS: u32 = 4000;
/// Not longer in any case, since somebody may set its clock.
const LIFE_MAX: Duration = Duration::from_secs(60);

/// Now, and how far away the engine is that something is sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// `None` for one that the pool does not have.
    pub(crate) engine: Option<EngineId>,
    pub(crate) round_trip: Duration,
    pub(crate) now: Instant,
}

/// What engines have told of their time, and when that was.
#[derive(Debug, Default)]
pub(super) struct Clocks(HashMap<EngineId, (Timestamp, Instant)>);

impl Clocks {
    /// An engine's time was this a moment ago, or later.
    pub(super) fn set(&mut self, time: Timestamp, told: Moment) {
        if let Some(engine) = told.engine {
            self.0.insert(engine, (time, told.now));
        }
    }

    /// Whether to be told the time anew is of use: whoever is near cannot count on it, but has to know some.
    pub(super) fn is_wanted(&self, at: Moment) -> bool {
        self.time(at).is_none_or(|(_, is_new)| !is_new && !life(at.round_trip).is_zero())
    }

    /// The engine's time as it is counted on here, and whether it is not later than it will be there.
    pub(super) fn time(&self, at: Moment) -> Option<(Timestamp, bool)> {
        let (time, told) = self.0.get(&at.engine?)?;
        let age = at.now.saturating_duration_since(*told);
        Some((time.after(age), age < life(at.round_trip)))
    }
}

/// For how long the engine's time is counted on.
fn life(round_trip: Duration) -> Duration {
    let life = if round_trip < LIFE_FROM { Duration::ZERO } else { round_trip * LIFE_ROUND_TRIPS };
    life.min(LIFE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_own_time_and_it_is_counted_on_for_a_while() {
        let now = Instant::now();
        let told = |engine| Moment {
            engine: Some(EngineId(engine)),
            round_trip: Duration::from_millis(10),
            now,
        };
        let mut clocks = Clocks::default();
        clocks.set(Timestamp { secs: 100, nanos: 0 }, told(0));
        clocks.set(Timestamp { secs: 50, nanos: 7 }, told(1));
        let later = |engine, secs| Moment { now: now + Duration::from_secs(secs), ..told(engine) };
        assert_eq!(clocks.time(later(0, 3)), Some((Timestamp { secs: 103, nanos: 0 }, true)));
        assert_eq!(clocks.time(later(1, 3)), Some((Timestamp { secs: 53, nanos: 7 }, true)));
        assert_eq!(clocks.time(later(1, 41)), Some((Timestamp { secs: 91, nanos: 7 }, false)));
        assert_eq!(clocks.time(later(2, 3)), None);
        let near = Moment { round_trip: Duration::from_millis(4), ..told(0) };
        assert_eq!(clocks.time(near), Some((Timestamp { secs: 100, nanos: 0 }, false)));
        let wanted = [told(0), later(0, 41), later(2, 3), near].map(|at| clocks.is_wanted(at));
        assert_eq!(wanted, [false, true, true, false]);
        assert_eq!(clocks.time(Moment { engine: None, ..near }), None);
    }
}
