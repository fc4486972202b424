//! One target's objects on local disk: key-values, and array data in plain files. It owns the
//! directory of a target and everything in it. It must never know of networks, sessions or POSIX,
//! and never give two processes the same target.
//!
//! A target's directory holds:
//!
//! | name | what |
//! |---|---|
//! | `target.json` | identity: format version, pool, target |
//! | `lock` | locked as long as a process has the target open |
//! | `kv/` | the key-value database |
//! | `kv-front` | journal of the last commits, until the database has them |
//! | `spare` | space for removals, once others write past this store: see `spare_space` |
//! | `data/00` .. `data/ff` | one sparse file per object shard |

mod disk;
mod environment;
mod error;
mod free_space;
mod identity;
mod kv;
mod object_kv;
mod shards;
mod small_files;
mod spare_space;
mod store;

pub use disk::FileStat;
#[cfg(feature = "simulation")]
pub use disk::SimulatedDisk;
pub use environment::Environment;
pub use error::StoreError;
pub use free_space::SpaceInfo;
pub use kv::batch::Batch;
pub use kv::change::Value;
pub use kv::reliance::{Unsettled, Witnesses};
pub use kv::space::Space;
pub use object_kv::{KvCondition, KvOp, KvUpdate};
pub use shards::{HeldShard, ShardFile};
pub use store::{Store, StoreConfig};
