//! Virtual time and what falls due in it. Owns the order of events: by time, and of the same time in the
//! order in which they were planned.

use std::collections::BTreeMap;
use std::time::Duration;

/// A clock that stands still unless somebody waits.
#[derive(Debug)]
pub(crate) struct Clock<E> {
    elapsed: Duration,
    planned: u64,
    due: BTreeMap<(Duration, u64), E>,
}

impl<E> Clock<E> {
    /// At the start of time, with nothing planned.
    pub(crate) fn new() -> Self {
        Self { elapsed: Duration::ZERO, planned: 0, due: BTreeMap::new() }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Plans an event.
    pub(crate) fn plan(&mut self, delay: Duration, event: E) {
        self.planned += 1;
        self.due.insert((self.elapsed + delay, self.planned), event);
    }

    /// The next event up to some time, which is the time then. `None`: nothing more falls due, and it
    /// is `until` now. Who waits may have been overtaken by whoever waits within what falls due.
    pub(crate) fn next(&mut self, until: Duration) -> Option<E> {
        match self.due.first_key_value() {
            Some(((at, _), _)) if *at <= until => {
                let ((at, _), event) = self.due.pop_first()?;
                self.elapsed = self.elapsed.max(at);
                Some(event)
            }
            _ => {
                self.elapsed = self.elapsed.max(until);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn events_come_in_the_order_of_time_and_of_planning() {
        let mut clock = Clock::new();
        for (delay, name) in [(3, "c"), (1, "a"), (3, "d"), (2, "b"), (9, "late")] {
            clock.plan(delay * SECOND, name);
        }
        let mut came = Vec::new();
        while let Some(name) = clock.next(5 * SECOND) {
            came.push((clock.elapsed().as_secs(), name));
        }
        assert_eq!(came, [(1, "a"), (2, "b"), (3, "c"), (3, "d")]);
        assert_eq!(clock.elapsed(), 5 * SECOND);
    }

    #[test]
    fn time_never_runs_backwards() {
        let mut clock = Clock::new();
        clock.plan(SECOND, "planned first");
        assert_eq!(clock.next(4 * SECOND), Some("planned first"));
        assert_eq!(clock.next(4 * SECOND), None);
        // Somebody who began to wait earlier, and less long.
        assert_eq!(clock.next(2 * SECOND), None);
        assert_eq!(clock.elapsed(), 4 * SECOND);
    }
}
