//! A load on a pool or a directory: worker processes that start together and count what they do. Owns
//! how they are started on each access path and what they can be asked for; what is measured with
//! them, and what a figure is held against, is the business of others.

mod access_path;
mod batch;
mod coordinator;
mod entry_cache;
mod loops;
mod order;
mod scratch_dir;
mod space;
mod space_path;
mod space_pool;
mod stream;
mod streams;
mod worker;
mod worker_pool;

pub use access_path::AccessPath;
pub(crate) use coordinator::{COORDINATOR_COMMAND, CoordinatorArgs, coordinate};
pub use entry_cache::drop_cached_entries;
pub use order::{
    Backend, BatchOrder, BatchStep, CachesDropped, IoOrder, MdKind, MdOrder, Motion, Order, Speed,
    Tally,
};
pub use scratch_dir::ScratchDir;
pub(crate) use worker::{WORKER_COMMAND, work};
pub(crate) use worker_pool::RemoteWorker;
pub use worker_pool::{WorkerPool, last_line};
