//! Directories whose names are looked at one after the other, where what a listing has is believed only under a lease
//! of all names. Owns when it is worth to list one with such a lease instead of looking a name up: both take one round
//! trip, and the lease makes others wait. It asks nobody.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use azekura_proto::Oid;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 64;
/// So many looks at different names, no further apart than this, make a directory worth being listed.
const LOOKS: u32 = 2;
const APART_MAX: Duration = Duration::from_secs(2);
/// A listing that has answered so many looks was worth it: when its lease is over the next look has another.
const WORTH_LOOKS: u32 = 2;
/// Directories that are listed again beside another one, and since when they were not looked at if they are not.
const RENEWED_MAX: usize = 8;
const USED_WITHIN: Duration = Duration::from_millis(1500);
/// For this long after a listing that was of no use, or a lease that was refused, none is asked for.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Walk {
    dir: Oid,
    last: Box<[u8]>,
    at: Instant,
    /// Looks since the last listing that had to be asked for, each at another name than the one before.
    asked: u32,
    /// Looks that the last listing has answered; `None`: there was none.
    answered: Option<u32>,
    paused_until: Option<Instant>,
}

/// What else is known of a directory that is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    /// An own change has voided the last listing, which says nothing of its use.
    pub(super) is_void: bool,
    /// Somebody goes through one directory after the other, and comes to this one.
    pub(super) is_followed: bool,
}

/// What was looked at lately.
#[derive(Debug, Default)]
pub(super) struct ReliedWalks(VecDeque<Walk>);

impl ReliedWalks {
    fn walk(&mut self, dir: Oid, now: Instant) -> &mut Walk {
        let place = self.0.iter().position(|walk| walk.dir == dir);
        let walk = place.and_then(|place| self.0.remove(place)).unwrap_or_else(|| Walk {
            dir,
            last: Box::default(),
            at: now,
            asked: 0,
            answered: None,
            paused_until: None,
        });
        if self.0.len() == DIRECTORIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(walk);
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// A name is looked at that no lease tells of: whether the directory is to be listed now.
    pub(super) fn note_asked(&mut self, dir: Oid, name: &[u8], now: Instant, hint: Hint) -> bool {
        let walk = self.walk(dir, now);
        walk.answered = walk.answered.filter(|answered| *answered > 0 || !hint.is_void);
        if now.saturating_duration_since(walk.at) > APART_MAX {
            walk.asked = 0;
        }
        walk.at = now;
        if walk.asked == 0 || *walk.last != *name {
            walk.last = name.into();
            walk.asked += 1;
        }
        if walk.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        let was_worth_it = walk.answered.is_some_and(|answered| answered >= WORTH_LOOKS);
        if walk.answered == Some(0) {
            (walk.answered, walk.paused_until) = (None, Some(now + PAUSE));
            return false;
        }
        let is_worth = was_worth_it || hint.is_followed || walk.asked >= LOOKS;
        if is_worth {
            (walk.asked, walk.answered) = (0, Some(0));
        }
        is_worth
    }

    /// A listing has answered a look.
    pub(super) fn note_answered(&mut self, dir: Oid, name: &[u8], now: Instant) {
        let walk = self.walk(dir, now);
        walk.at = now;
        if *walk.last != *name {
            walk.last = name.into();
            walk.answered = walk.answered.map(|answered| answered.saturating_add(1)).or(Some(1));
        }
    }

    /// Other directories that are due to be listed again and whose listings have been worth it of late: in the exchange
    /// that lists this one they cost no round trip.
    pub(super) fn worth_renewing(
        &mut self,
        dir: Oid,
        now: Instant,
        mut is_due: impl FnMut(Oid) -> bool,
    ) -> Vec<Oid> {
        let mut worth = Vec::new();
        for walk in self.0.iter_mut().rev().filter(|walk| walk.dir != dir) {
            let is_used = walk.answered.is_some_and(|answered| answered >= WORTH_LOOKS)
                && now.saturating_duration_since(walk.at) <= USED_WITHIN
                && walk.paused_until.is_none_or(|until| until <= now);
            if is_used && is_due(walk.dir) {
                // One look at it, and it is renewed once more; none, and it is not, but was not asked for in vain.
                (walk.asked, walk.answered) = (0, Some(WORTH_LOOKS - 1));
                worth.push(walk.dir);
            }
            if worth.len() == RENEWED_MAX {
                break;
            }
        }
        worth
    }

    /// No lease is given of the names: others change them.
    pub(super) fn note_refused(&mut self, dir: Oid, now: Instant) {
        let walk = self.walk(dir, now);
        (walk.answered, walk.paused_until) = (None, Some(now + PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    const NO_HINT: Hint = Hint { is_void: false, is_followed: false };

    fn dir(serial: u64) -> Oid {
        Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
    }

    #[test]
    fn the_second_name_has_the_directory_listed_and_the_next_lease_follows_if_that_was_worth_it() {
        let (mut walks, mut now) = (ReliedWalks::default(), Instant::now());
        let looks = [b"a", b"a", b"b"].map(|name| walks.note_asked(dir(1), name, now, NO_HINT));
        assert_eq!(looks, [false, false, true]);
        for name in [b"c", b"c", b"d"] {
            walks.note_answered(dir(1), name, now);
        }
        now += Duration::from_secs(1);
        assert!(walks.note_asked(dir(1), b"e", now, NO_HINT), "at once");
        walks.note_answered(dir(1), b"f", now);
        assert!(!walks.note_asked(dir(1), b"g", now, NO_HINT), "one look was all that it answered");
        assert!(walks.note_asked(dir(1), b"h", now, NO_HINT));
        assert!(!walks.note_asked(dir(1), b"i", now, NO_HINT), "in vain");
        assert!(!walks.note_asked(dir(1), b"j", now, NO_HINT));
        now += PAUSE;
        assert!(!walks.note_asked(dir(1), b"k", now, NO_HINT), "that was another walk");
        assert!(walks.note_asked(dir(1), b"l", now, NO_HINT));
    }

    #[test]
    fn directories_that_are_looked_at_are_listed_again_together() {
        let (mut walks, mut now) = (ReliedWalks::default(), Instant::now());
        for serial in 1..=3 {
            assert!(!walks.note_asked(dir(serial), b"a", now, NO_HINT));
            assert!(walks.note_asked(dir(serial), b"b", now, NO_HINT));
        }
        for (serial, names) in [(1, &[b"c", b"d"][..]), (2, &[b"c", b"d"]), (3, &[b"c"])] {
            for name in names {
                walks.note_answered(dir(serial), *name, now);
            }
        }
        now += Duration::from_secs(1);
        assert_eq!(walks.worth_renewing(dir(1), now, |_| true), [dir(2)], "one look is no use");
        assert!(walks.worth_renewing(dir(1), now, |_| true).is_empty());
        walks.note_answered(dir(2), b"e", now);
        assert!(walks.worth_renewing(dir(1), now, |_| false).is_empty());
        assert_eq!(walks.worth_renewing(dir(1), now, |_| true), [dir(2)]);
        assert!(
            !walks.note_asked(dir(2), b"f", now, NO_HINT)
                && walks.note_asked(dir(2), b"g", now, NO_HINT)
        );
        for serial in 10..30 {
            walks.note_answered(dir(serial), b"a", now);
            walks.note_answered(dir(serial), b"b", now);
        }
        assert_eq!(walks.worth_renewing(dir(1), now, |_| true).len(), RENEWED_MAX);
        now += USED_WITHIN + Duration::from_millis(1);
        assert!(walks.worth_renewing(dir(1), now, |_| true).is_empty());
    }

    #[test]
    fn looks_that_lie_far_apart_ask_for_no_lease_and_who_is_refused_one_waits() {
        let (mut walks, mut now) = (ReliedWalks::default(), Instant::now());
        for turn in 0..10_u8 {
            assert!(!walks.note_asked(dir(1), &[turn], now, NO_HINT));
            now += APART_MAX + Duration::from_millis(1);
        }
        assert!(
            !walks.note_asked(dir(1), b"a", now, NO_HINT)
                && walks.note_asked(dir(1), b"b", now, NO_HINT)
        );
        walks.note_refused(dir(1), now);
        assert!(
            !walks.note_asked(dir(1), b"c", now, NO_HINT)
                && !walks.note_asked(dir(1), b"d", now, NO_HINT)
        );
        for serial in 2..200 {
            walks.note_asked(dir(serial), b"a", now, NO_HINT);
        }
        assert_eq!(walks.0.len(), DIRECTORIES_MAX);
    }
}
