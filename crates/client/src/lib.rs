//! A pool seen from outside: connections, fan-out, exact retries, and the object API.
//!
//! [`Pool`] borrows one connection per calling thread and speaks plain blocking requests over it;
//! it needs no thread of its own. [`Objects`] is the object API (containers, key-values, arrays)
//! that the file system of `azekura-posix` and other users build on. This crate never interprets
//! what the file system keeps in its objects.

mod array_values;
mod batch;
mod changes;
mod claims;
mod error;
mod fan_out;
#[cfg(test)]
mod fan_out_tests;
mod health;
mod in_flight;
mod lending;
mod link;
mod local_shard;
mod nearness;
mod objects;
mod open;
mod open_references;
mod outbox;
mod pipeline;
mod pool;
mod pool_file;
mod remembered_links;
mod retry;
mod session;
mod shard_io;
mod slots;
mod window;

pub use array_values::{ARRAY_AKEY_BYTES_MAX, ArrayValue, ArrayValues, ValueKind, akey_kind};
pub use azekura_platform::this_process;
pub use batch::{Batch, BatchReplies, Ticket};
pub use error::{ClientError, PoolFileError, Result};
pub use fan_out::Call;
pub use in_flight::{Change, FailedChange, Leased as LeasedNames};
pub use local_shard::{LocalShard, LocalUse};
pub use objects::{KeyCursor, Objects};
pub use open::{Created, OpenReference, Opened, OpenedName};
pub use outbox::{Outbox, Outcome, Posted};
pub use pipeline::{Fetch, Pipeline};
pub use pool::{ClientConfig, Pool};
pub use pool_file::{PoolFile, SecretSource, pools_dir};
pub use shard_io::{BatchedRead, ShardIo, ShardWrite};
