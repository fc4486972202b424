//! For how long programs have waited for far files, from which their own pace is told. Owns the sum, and nothing of what
//! is waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azekura_platform::SharedPlatform;

/// How long has been waited, by all threads together.
#[derive(Debug)]
pub(crate) struct Waits {
    us: AtomicU64,
    platform: SharedPlatform,
}

impl Waits {
    pub(super) fn new(platform: SharedPlatform) -> Self {
        Self { us: AtomicU64::new(0), platform }
    }

    /// Does something for which the program waits.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = self.platform.now();
        let done = work();
        let took = self.platform.now().saturating_duration_since(begun);
        self.us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        done
    }

    /// All that there was so far.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_micros(self.us.load(Ordering::Relaxed))
    }
}
