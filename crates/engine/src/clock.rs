//! The engine's stamps. Owns the choice of clock: stamps of namespace operations come from the same
//! coarse clock that the kernel stamps data files with, so that the two can be compared.

use azekura_platform::{Platform, WallTime};
use azekura_proto::Timestamp;

/// The exact time, for what is only ever compared with itself: changes of directories, and settings
/// of their times. In the steps of the coarse clock one could not tell which came first.
pub(crate) fn fine_now(platform: &dyn Platform) -> Timestamp {
    stamp(platform.wall_time())
}

/// The time to stamp a change with.
pub(crate) fn now(platform: &dyn Platform) -> Timestamp {
    stamp(platform.coarse_wall_time())
}

fn stamp(time: WallTime) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}
