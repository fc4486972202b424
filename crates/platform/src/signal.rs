//! Waiting for another thread. Owns the rule that such a wait is a sleep where one thread plays all
//! parts; callers look at their condition again after each wait, as with any condition variable.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};

use crate::Platform;

/// A condition variable whose timed waits pass virtual time in a simulation.
#[derive(Debug, Default)]
pub struct Signal {
    condvar: Condvar,
}

impl Signal {
    /// One without waiting threads.
    pub const fn new() -> Self {
        Self { condvar: Condvar::new() }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.condvar.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.condvar.notify_all();
    }

    /// Gives the lock back until somebody notifies or `limit` has passed; true if time is up. In a
    /// simulation all of `limit` passes, with the lock given back.
    pub fn wait_for<T: ?Sized>(
        &self,
        platform: &dyn Platform,
        guard: &mut MutexGuard<'_, T>,
        limit: Duration,
    ) -> bool {
        if platform.is_simulated() {
            MutexGuard::unlocked(guard, || platform.sleep(limit));
            return true;
        }
        self.condvar.wait_for(guard, limit).timed_out()
    }

    /// Like [`Signal::wait_for`], until an instant.
    pub fn wait_until<T: ?Sized>(
        &self,
        platform: &dyn Platform,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> bool {
        let left = deadline.saturating_duration_since(platform.now());
        if left.is_zero() {
            return true;
        }
        self.wait_for(platform, guard, left)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;

    use super::*;
    use crate::{System, Thread, WallTime};

    #[derive(Debug)]
    struct Virtual(Instant, AtomicU64);

    impl Platform for Virtual {
        fn now(&self) -> Instant {
            self.0 + Duration::from_millis(self.1.load(Ordering::Relaxed))
        }
        fn wall_time(&self) -> WallTime {
            WallTime::default()
        }
        fn coarse_wall_time(&self) -> WallTime {
            WallTime::default()
        }
        fn sleep(&self, time: Duration) {
            self.1.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        }
        fn fill_random(&self, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<Thread> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn is_simulated(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_wait_in_a_simulation_passes_the_whole_time_at_once() {
        let platform = Virtual(Instant::now(), AtomicU64::new(0));
        let (signal, lock) = (Signal::new(), Mutex::new(()));
        let begun = platform.now();
        let mut guard = lock.lock();
        assert!(signal.wait_until(&platform, &mut guard, begun + Duration::from_secs(3600)));
        assert_eq!(platform.elapsed(begun), Duration::from_secs(3600));
        assert!(signal.wait_until(&platform, &mut guard, begun), "an instant in the past");
        assert_eq!(platform.elapsed(begun), Duration::from_secs(3600));
    }

    #[test]
    fn a_notified_thread_goes_on_before_its_time_is_up() {
        let shared = std::sync::Arc::new((Signal::new(), Mutex::new(false)));
        let other = std::sync::Arc::clone(&shared);
        let work = move || {
            *other.1.lock() = true;
            other.0.notify_all();
        };
        let mut done = shared.1.lock();
        let thread = System.spawn("notifier", Box::new(work)).unwrap();
        let deadline = System.now() + Duration::from_secs(60);
        while !*done && !shared.0.wait_until(&System, &mut done, deadline) {}
        assert!(*done);
        drop(done);
        thread.join().unwrap();
    }
}
