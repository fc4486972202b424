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
//! | `data/00` .. `data/ff` | one sparse file per object shard |

mod applier;
mod batch;
mod error;
mod free_space;
mod front;
mod front_journal;
mod identity;
mod journal_sync;
mod kv;
mod object_kv;
mod overlay;
mod record;
mod recovery;
mod rotation;
mod shard_file;
mod shard_path;
mod shards;
mod store;
mod value_cache;

pub use batch::{Batch, Space, Value};
pub use error::StoreError;
pub use free_space::SpaceInfo;
pub use object_kv::{KvCondition, KvOp, KvUpdate};
pub use shard_file::{ShardFile, ShardStat};
pub use store::{Store, StoreConfig};
