//! The machine that an engine's run, or a client, believes to be on: the pool's virtual time, and
//! chance from the seed. Owns the rule that a run which has ended meanwhile does not come back from a wait.

use std::fmt;
use std::io;
use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use azekura_platform::{Platform, Thread, WallTime};
use azekura_proto::EngineId;

/// 2023-11-14 22:13:20 UTC.
const WALL_START_S: i64 = 1_700_000_000;

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A run of an engine.
    Engine(EngineId, u64),
    /// A client.
    Client,
}

/// The time and the chance that all runs of engines and all clients share.
pub(crate) trait World: Send + Sync {
    /// Virtual time since the start.
    fn elapsed(&self) -> Duration;
    /// Lets time pass. A run of an engine that has ended meanwhile does not come back.
    fn sleep_in(&self, place: Place, time: Duration);
    /// Bytes from the seed.
    fn fill_random(&self, buffer: &mut [u8]);
}

/// The platform of whoever is in the world.
pub(crate) struct WorldPlatform {
    world: Weak<dyn World>,
    place: Place,
}

impl WorldPlatform {
    pub(crate) fn new(world: Weak<dyn World>, place: Place) -> Self {
        Self { world, place }
    }

    fn elapsed(&self) -> Duration {
        self.world.upgrade().map_or(Duration::ZERO, |world| world.elapsed())
    }
}

impl fmt::Debug for WorldPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl Platform for WorldPlatform {
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
            world.sleep_in(self.place, time);
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
