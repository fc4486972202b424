//! How far a pool is, where that decides by which way a command reaches it. Asks the pool only if nothing is on record.

use std::time::Duration;

use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_posix::{FileSystem, FsConfig};

use crate::names::ContainerName;

/// How long a pool may take to answer, before the command is run anyway.
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// From this round trip on, in microseconds, a mount is the better way: each process that has the library connects for
/// itself and knows nothing of what the others have looked up, while one mount serves all that a command starts. Below it
/// what the kernel adds to each call counts for more.
const MOUNT_FROM_US: u64 = 5_000;

/// Says of a pool that it is too far for programs that each talk to it; `None` if it is not, or does not answer.
pub(super) fn far(name: &ContainerName) -> Option<String> {
    let us = round_trip_us(name).filter(|us| *us >= MOUNT_FROM_US)?;
    Some(format!("a round trip to the pool takes {} ms", Duration::from_micros(us).as_millis()))
}

fn round_trip_us(name: &ContainerName) -> Option<u64> {
    let file = PoolFile::find(&name.pool).ok()?;
    let config = ClientConfig { request_timeout: LOOK_TIMEOUT, ..ClientConfig::default() };
    let pool = Pool::connect(&file, config).ok()?;
    pool.remembered_round_trip_us().or_else(|| {
        let fs = FileSystem::mount(pool, name.container(), FsConfig::default()).ok()?;
        Some(fs.pool().round_trip_us())
    })
}
