//! What a process takes from the machine that it runs on: the clocks, sleep, random numbers and
//! threads. Everything in `store`, `engine`, `rpc` and `client` that depends on time or chance asks a
//! [`Platform`] for it, so that a simulation can stand in: there, time passes only when somebody waits,
//! and chance comes from a seed. The number of the process, and memory shared with another one, are no
//! matter of chance. This crate never does file or network I/O; those have seams of their own (the store's disk, the
//! transport of `rpc`).

mod process;
mod shared_memory;
mod signal;
mod sys;
mod system;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use process::this_process;
pub use shared_memory::SharedMemory;
pub use signal::Signal;
pub use system::{System, system};

/// A platform that threads share.
pub type SharedPlatform = Arc<dyn Platform>;

/// A thread that [`Platform::spawn`] has started.
pub type Thread = std::thread::JoinHandle<()>;

/// Time since the start of 1970 (UTC), as a clock of the system shows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallTime {
    /// Whole seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds of the second, below 1,000,000,000.
    pub nanos: u32,
}

/// The machine as the code sees it: real, or simulated under a seed.
pub trait Platform: fmt::Debug + Send + Sync + 'static {
    /// The monotonic clock. In a simulation an instant is the start of the simulation plus the virtual
    /// time that has passed.
    fn now(&self) -> Instant;

    /// The wall clock, exactly.
    fn wall_time(&self) -> WallTime;

    /// The wall clock in the steps in which the kernel stamps files, so that both can be compared.
    fn coarse_wall_time(&self) -> WallTime;

    /// Lets the calling thread rest. In a simulation the virtual clock moves on instead, and whatever
    /// falls due meanwhile happens inside this call.
    fn sleep(&self, time: Duration);

    /// Fills a buffer with random bytes that nobody can foresee (in a simulation: the seed's).
    ///
    /// # Errors
    ///
    /// The system has no random numbers to give.
    fn fill_random(&self, buffer: &mut [u8]) -> io::Result<()>;

    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// The system allows no further thread; a simulation starts none, and says
    /// [`io::ErrorKind::Unsupported`]: it drives background work itself.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Thread>;

    /// Whether time passes only in [`Platform::sleep`]. One thread runs then, so that a wait for
    /// another thread has to be a sleep.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Time since an earlier instant; none if it lies ahead.
    fn elapsed(&self, since: Instant) -> Duration {
        self.now().saturating_duration_since(since)
    }
}
