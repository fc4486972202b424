//! The engine's clock. Owns the choice of clock: stamps of namespace operations come from the same
//! coarse clock that the kernel stamps data files with, so that the two can be compared.

use azekura_proto::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The exact time, for what is only ever compared with itself: changes of directories, and settings
/// of their times. In the steps of the coarse clock one could not tell which came first.
pub(crate) fn fine_now() -> Timestamp {
    let time = clock_gettime(ClockId::Realtime);
    Timestamp { secs: time.tv_sec, nanos: time.tv_nsec as u32 }
}

/// The time to stamp a change with.
pub(crate) fn now() -> Timestamp {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { secs: time.tv_sec, nanos: time.tv_nsec as u32 }
}
