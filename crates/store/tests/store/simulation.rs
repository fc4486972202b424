//! A store under a seed: time passes when somebody sleeps, chance comes from the seed, the disk is in
//! memory, and the caller does the work of the threads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_platform::{Platform, Thread, WallTime};
use azekura_store::{Environment, SimulatedDisk, Store, StoreConfig, StoreError};
use parking_lot::Mutex;

use crate::fixture::{POOL, TARGET};

/// Random numbers that are the same on every machine (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}

#[derive(Debug)]
struct VirtualPlatform {
    start: Instant,
    passed: Mutex<Duration>,
    random: Mutex<Random>,
}

impl Platform for VirtualPlatform {
    fn now(&self) -> Instant {
        self.start + *self.passed.lock()
    }

    fn wall_time(&self) -> WallTime {
        let passed = *self.passed.lock();
        WallTime { secs: 1_800_000_000 + passed.as_secs() as i64, nanos: passed.subsec_nanos() }
    }

    fn coarse_wall_time(&self) -> WallTime {
        self.wall_time()
    }

    fn sleep(&self, time: Duration) {
        *self.passed.lock() += time;
    }

    fn fill_random(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut random = self.random.lock();
        for byte in buffer {
            *byte = random.draw() as u8;
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

/// A target on a simulated disk.
pub(crate) struct Simulated {
    pub(crate) environment: Environment,
    pub(crate) disk: SimulatedDisk,
}

impl Simulated {
    pub(crate) fn new(seed: u64) -> Self {
        let platform = Arc::new(VirtualPlatform {
            start: Instant::now(),
            passed: Mutex::default(),
            random: Mutex::new(Random(seed)),
        });
        let disk = SimulatedDisk::new(platform.clone(), seed);
        disk.make_dir(Path::new("/pool")).unwrap();
        let environment = Environment::simulated(platform, &disk);
        Self { environment, disk }
    }

    pub(crate) fn create(&self) -> Result<(), StoreError> {
        Store::create(&self.environment, Path::new("/pool/target"), POOL, TARGET)
    }

    pub(crate) fn open(&self) -> Result<Store, StoreError> {
        const KIB: u64 = 1024;
        let config =
            StoreConfig { cache_bytes: 64 * KIB, block_cache_bytes: 64 * KIB, open_files_max: 64 };
        Store::open(&self.environment, Path::new("/pool/target"), POOL, TARGET, &config)
    }
}
