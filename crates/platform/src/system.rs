//! The platform of a real process. Owns the choice of the kernel's clocks.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::{Platform, SharedPlatform, Thread, WallTime};

/// The kernel's clocks, random numbers and threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

/// The real platform, one for the whole process.
pub fn system() -> SharedPlatform {
    static SYSTEM: OnceLock<Arc<System>> = OnceLock::new();
    Arc::clone(SYSTEM.get_or_init(|| Arc::new(System))) as SharedPlatform
}

impl Platform for System {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_time(&self) -> WallTime {
        read_clock(ClockId::Realtime)
    }

    fn coarse_wall_time(&self) -> WallTime {
        read_clock(ClockId::RealtimeCoarse)
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn fill_random(&self, buffer: &mut [u8]) -> io::Result<()> {
        getrandom::fill(buffer).map_err(io::Error::other)
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Thread> {
        std::thread::Builder::new().name(name.to_owned()).spawn(|| {
            run_where_the_process_may();
            work();
        })
    }
}

/// A thread inherits the processors of the one that starts it, which may have been kept to a single one
/// for a reason of its own.
fn run_where_the_process_may() {
    // Where it may not be set, the thread stays where it is: slower, not wrong.
    if let Ok(processors) = sched_getaffinity(Some(getpid())) {
        let _ = sched_setaffinity(None, &processors);
    }
}

fn read_clock(clock: ClockId) -> WallTime {
    let time = clock_gettime(clock);
    WallTime { secs: time.tv_sec, nanos: time.tv_nsec as u32 }
}
