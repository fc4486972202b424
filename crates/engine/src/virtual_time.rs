//! A platform for unit tests: time passes only while somebody waits, and what is to happen meanwhile
//! happens at its moment. Owns that order; there is one thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_platform::{Platform, Thread, WallTime};
use parking_lot::Mutex;

type Event = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Course {
    passed: Duration,
    /// What is still to happen, by when and in which order it was asked for.
    events: BTreeMap<(Duration, usize), Event>,
    asked: usize,
}

/// Time that passes in no time.
pub(crate) struct VirtualTime {
    begun: Instant,
    course: Mutex<Course>,
}

impl std::fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualTime").field("passed", &self.passed()).finish_non_exhaustive()
    }
}

impl VirtualTime {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), course: Mutex::default() })
    }

    /// Time that has passed since the start.
    pub(crate) fn passed(&self) -> Duration {
        self.course.lock().passed
    }

    /// Has something happen a while from now, if somebody waits that long.
    pub(crate) fn after(&self, time: Duration, event: impl FnOnce() + Send + 'static) {
        let mut course = self.course.lock();
        let key = (course.passed + time, course.asked);
        course.asked += 1;
        course.events.insert(key, Box::new(event));
    }

    fn next_event(&self, until: Duration) -> Option<Event> {
        let mut course = self.course.lock();
        let first = course.events.first_entry().filter(|event| event.key().0 <= until)?;
        let ((due, _), event) = first.remove_entry();
        course.passed = course.passed.max(due);
        Some(event)
    }
}

impl Platform for VirtualTime {
    fn now(&self) -> Instant {
        self.begun + self.passed()
    }

    fn wall_time(&self) -> WallTime {
        let passed = self.passed();
        WallTime { secs: 1_000_000_000 + passed.as_secs() as i64, nanos: passed.subsec_nanos() }
    }

    fn coarse_wall_time(&self) -> WallTime {
        self.wall_time()
    }

    fn sleep(&self, time: Duration) {
        let until = self.passed() + time;
        while let Some(event) = self.next_event(until) {
            event();
        }
        let mut course = self.course.lock();
        course.passed = course.passed.max(until);
    }

    fn fill_random(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut course = self.course.lock();
        for byte in buffer {
            course.asked += 1;
            *byte = course.asked as u8;
        }
        Ok(())
    }

    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<Thread> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
