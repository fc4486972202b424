//! The machine that an engine's run believes to be on: the pool's virtual time, and chance from the
//! seed. Owns the rule that a run which has ended meanwhile does not come back from a wait.

use std::fmt;
use std::io;
use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use azekura_platform::{Platform, Thread, WallTime};
use azekura_proto::EngineId;

/// 2023-11-14 22:13:20 UTC.
const WALL_START_S: i64 = 1_700_000_000;

/// The time and the chance that all runs of engines share.
pub(crate) trait World: Send + Sync {
    /// Virtual time since the start.
    fn elapsed(&self) -> Duration;
    /// Lets time pass for one run of an engine, which does not come back if it has ended.
    fn sleep_in(&self, engine: EngineId, run: u64, time: Duration);
    /// Bytes from the seed.
    fn fill_random(&self, buffer: &mut [u8]);
}

/// The platform of one run of an engine.
pub(crate) struct RunPlatform {
    world: Weak<dyn World>,
    engine: EngineId,
    run: u64,
}

impl RunPlatform {
    pub(crate) fn new(world: Weak<dyn World>, engine: EngineId, run: u64) -> Self {
        Self { world, engine, run }
    }

    fn elapsed(&self) -> Duration {
        self.world.upgrade().map_or(Duration::ZERO, |world| world.elapsed())
    }
}

impl fmt::Debug for RunPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of engine {}", self.run, self.engine.0)
    }
}

impl Platform for RunPlatform {
    fn now(&self) -> Instant {
        // Which instant it is nobody can tell; only differences count.
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + self.elapsed()
    }

    fn wall_time(&self) -> WallTime {
        let elapsed = self.elapsed();
        WallTime { secs: WALL_START_S + elapsed.as_secs() as i64, nanos: elapsed.subsec_nanos() }
    }

    fn coarse_wall_time(&self) -> WallTime {
        let now = self.wall_time();
        WallTime { nanos: now.nanos - now.nanos % 4_000_000, ..now }
    }

    fn sleep(&self, time: Duration) {
        if let Some(world) = self.world.upgrade().filter(|_| !std::thread::panicking()) {
            world.sleep_in(self.engine, self.run, time);
        }
    }

    fn fill_random(&self, buffer: &mut [u8]) -> io::Result<()> {
        let world = self.world.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        world.fill_random(buffer);
        Ok(())
    }

    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<Thread> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
