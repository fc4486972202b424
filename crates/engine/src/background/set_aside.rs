//! Records that could not be dealt with. Owns when each is tried again: after a second at first, and ever
//! more rarely then, so that one that always fails does not keep the others waiting.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_proto::Status;
use azekura_store::Space;
use parking_lot::Mutex;

/// First and longest time before a record is tried again.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Records that are remembered; further ones are tried with each round.
const RECORDS_MAX: usize = 16 * 1024;

#[derive(Debug)]
struct Failed {
    next: Instant,
    wait: Duration,
}

/// The records of one target that are set aside.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    records: Mutex<HashMap<(Space, Vec<u8>), Failed>>,
}

impl SetAside {
    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.records.lock().len() as u64
    }

    /// Whether a record is to be tried now.
    pub(crate) fn is_due(&self, space: Space, key: &[u8], now: Instant) -> bool {
        let records = self.records.lock();
        // Nearly always there are none, and no key is made.
        records.is_empty()
            || records.get(&(space, key.to_vec())).is_none_or(|failed| now >= failed.next)
    }

    /// Notes what came of a record: it is set aside, or set aside no longer.
    pub(crate) fn note(&self, space: Space, key: &[u8], now: Instant, outcome: Result<(), Status>) {
        let mut records = self.records.lock();
        let Err(status) = outcome else {
            if !records.is_empty() {
                records.remove(&(space, key.to_vec()));
            }
            return;
        };
        let shown = key.escape_ascii();
        tracing::warn!(
            "record {shown} of {space:?} cannot be dealt with and is set aside: {status}"
        );
        if records.len() >= RECORDS_MAX {
            return;
        }
        let failed = records
            .entry((space, key.to_vec()))
            .and_modify(|failed| failed.wait = (failed.wait * 2).min(WAIT.1))
            .or_insert(Failed { next: now, wait: WAIT.0 });
        failed.next = now + failed.wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_fails_is_tried_ever_more_rarely() {
        let (set_aside, begun) = (SetAside::default(), Instant::now());
        let (space, key) = (Space::Reclaim, b"key");
        let mut tried = Vec::new();
        for second in 0..40 {
            let now = begun + Duration::from_secs(second);
            if set_aside.is_due(space, key, now) {
                tried.push(second);
                set_aside.note(space, key, now, Err(Status::Io));
            }
            assert!(set_aside.is_due(space, b"other", now));
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31]);
        assert_eq!(set_aside.count(), 1);
        set_aside.note(space, key, begun, Ok(()));
        assert_eq!(set_aside.count(), 0);
        assert!(set_aside.is_due(space, key, begun));
    }
}
