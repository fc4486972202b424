//! What engines, targets, containers and shards say of themselves.

use serde::{Deserialize, Serialize};

use crate::attr::{Inheritance, Timestamp};
use crate::ids::{ContainerId, EngineId, Oid, TargetId};

/// What one shard of a directory knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirShardStat {
    /// Entries in this shard.
    pub entries: u64,
    /// Those that are directories.
    pub subdirs: u32,
    /// When an entry last came or went.
    pub changed: Timestamp,
}

/// What one shard of an array knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardStat {
    /// Length of the shard's file in bytes.
    pub bytes: u64,
    /// Storage in use, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last write.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
}

/// Container properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Container {
    /// The id.
    pub id: ContainerId,
    /// The name.
    pub name: String,
    /// Its root directory.
    pub root: Oid,
    /// Defaults of the root, which new directories inherit.
    pub inheritance: Inheritance,
}

/// Space of one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceStat {
    /// Size of the file system below, in bytes.
    pub total_bytes: u64,
    /// Free for ordinary users, in bytes.
    pub available_bytes: u64,
    /// Names the file system below, so that targets sharing one are counted once.
    pub device: u64,
    /// Inodes on the target, about.
    pub objects: u64,
}

/// One target of an engine's report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetReport {
    /// Which.
    pub target: TargetId,
    /// Directory of the target on the engine's host.
    pub path: String,
    /// Its space.
    pub space: SpaceStat,
    /// Removed objects that wait for reclaim.
    pub reclaim_backlog: u64,
    /// Transactions not finished.
    pub transactions: u64,
    /// Records that the engine cannot deal with, and tries again from time to time; its log says why.
    pub set_aside: u64,
}

/// What an engine says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineReport {
    /// Which.
    pub engine: EngineId,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Whether it is draining.
    pub stopping: bool,
    /// Its targets.
    pub targets: Vec<TargetReport>,
    /// Sessions it knows.
    pub sessions: u64,
    /// Connections open.
    pub connections: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Bytes read by clients since the start.
    pub read_bytes: u64,
    /// Bytes written by clients since the start.
    pub written_bytes: u64,
    /// Requests per second over the last seconds.
    pub requests_per_s: u64,
    /// Bytes read per second over the last seconds.
    pub read_bytes_per_s: u64,
    /// Bytes written per second over the last seconds.
    pub written_bytes_per_s: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}
