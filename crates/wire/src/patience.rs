//! How long a thread looks for a message before it sleeps. Owns when that is worth it: as long as others leave the processor
//! to it, and where the last one came soon.

use std::time::{Duration, Instant};

/// A yield that takes longer has let somebody else run.
const SLOW_YIELD: Duration = Duration::from_nanos(1_500);
/// So many have run, and none of them has brought the message: the processor is wanted.
const SLOW_YIELDS_MAX: u32 = 4;
/// What takes longer than this to come, the waking included, is not looked for the next time.
const SOON: Duration = Duration::from_micros(200);

/// For how long a thread looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    most: Duration,
    /// The last message took long.
    is_lost: bool,
}

impl Patience {
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, is_lost: false }
    }

    /// Begins to look.
    pub(crate) fn begin(&self) -> Looking {
        let most = if self.is_lost { Duration::ZERO } else { self.most };
        Looking { left: most, last: None, slow_yields: 0 }
    }

    /// Sleeps for the message, and remembers how long that took where somebody looks at all.
    pub(crate) fn watch<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        if self.most.is_zero() {
            return sleep();
        }
        let begun = Instant::now();
        let slept = sleep();
        self.is_lost = begun.elapsed() > SOON;
        slept
    }
}

/// One wait, in which the thread looks and yields by turns.
#[derive(Debug)]
pub(crate) struct Looking {
    left: Duration,
    last: Option<Instant>,
    slow_yields: u32,
}

impl Looking {
    /// Whether to look once more. Asked before each look, after the yield that followed the one before.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.left.is_zero() {
            return false;
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let took = now - last;
            self.left = self.left.saturating_sub(took);
            self.slow_yields += u32::from(took > SLOW_YIELD);
        }
        !self.left.is_zero() && self.slow_yields < SLOW_YIELDS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(20);

    #[test]
    fn who_has_none_does_not_look() {
        assert!(!Patience::default().begin().goes_on());
    }

    #[test]
    fn it_ends_with_its_time() {
        let mut wait = Patience::new(MOST).begin();
        let begun = Instant::now();
        while wait.goes_on() {
            assert!(begun.elapsed() < 100 * MOST);
        }
        assert!(wait.slow_yields > 0 || begun.elapsed() >= MOST);
    }

    #[test]
    fn it_ends_when_others_want_the_processor() {
        let mut wait = Patience::new(Duration::from_secs(3600)).begin();
        let mut looks = 0;
        while wait.goes_on() {
            looks += 1;
            std::thread::sleep(2 * SLOW_YIELD);
        }
        assert_eq!(looks, SLOW_YIELDS_MAX);
    }

    #[test]
    fn what_takes_long_is_not_looked_for_the_next_time() {
        let mut patience = Patience::new(MOST);
        patience.watch(|| std::thread::sleep(2 * SOON));
        assert!(!patience.begin().goes_on());
        patience.watch(|| ());
        assert!(patience.begin().goes_on());
    }
}
