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

/// A change that was made longer ago than this does not tell the time.
const CHANGE_AGE_MAX: Duration = Duration::from_secs(1);

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

    /// Something was changed at this time of the engine's, as it has told a moment ago: so much later it is there now, at
    /// least. That serves where nothing younger is known, unless what was counted on here shows that the change was made
    /// a while ago.
    pub(super) fn note_change(&mut self, changed: Timestamp, told: Moment) {
        if self.is_wanted(told)
            && self.time(told).is_some_and(|(counted, _)| counted <= changed.after(CHANGE_AGE_MAX))
        {
            self.set(changed, told);
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

    #[test]
    fn a_change_that_was_just_made_tells_the_time_where_nothing_younger_is_known() {
        let now = Instant::now();
        let at = |secs| Moment {
            engine: Some(EngineId(0)),
            round_trip: Duration::from_millis(50),
            now: now + Duration::from_secs(secs),
        };
        let time = |secs| Timestamp { secs, nanos: 0 };
        let mut clocks = Clocks::default();
        clocks.note_change(time(99), at(0));
        assert_eq!(clocks.time(at(0)), None, "it may be of long ago");
        clocks.set(time(100), at(0));
        clocks.note_change(time(109), at(10));
        assert_eq!(clocks.time(at(10)), Some((time(110), true)));
        clocks.note_change(time(168), at(70));
        assert_eq!(clocks.time(at(70)), Some((time(170), false)), "it was made a while ago");
        clocks.note_change(time(169), at(70));
        assert_eq!(clocks.time(at(71)), Some((time(170), true)));
    }
}
