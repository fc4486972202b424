//! Pool connections, open containers and objects behind their cookies. Owns the table of them, so that a handle
//! that was closed, or never was one, is told from a good one.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::LazyLock;

use azekura_client::{Pool, SecretSource};
use azekura_proto::message::Container;
use parking_lot::Mutex;

use crate::status::Der;
use crate::types::Handle;

/// A connection to a pool.
pub(crate) struct PoolHandle {
    pub(crate) pool: Arc<Pool>,
    pub(crate) secret: SecretSource,
    pub(crate) read_only: bool,
}

/// An open container.
#[derive(Clone)]
pub(crate) struct ContainerHandle {
    pub(crate) pool: Arc<PoolHandle>,
    pub(crate) container: Container,
    pub(crate) read_only: bool,
}

enum Entry {
    Pool(Arc<PoolHandle>),
    Container(Arc<ContainerHandle>),
    /// An open object, which only those who open objects know more of.
    Object(Arc<dyn Any + Send + Sync>),
}

#[derive(Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    last: u64,
    /// Calls of `daos_init` that no `daos_fini` has answered yet.
    users: u32,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

fn insert(entry: Entry) -> Handle {
    let mut table = TABLE.lock();
    table.last += 1;
    let cookie = table.last;
    table.entries.insert(cookie, entry);
    Handle { cookie }
}

/// One more user of the library.
pub(crate) fn start() {
    TABLE.lock().users += 1;
}

/// One user less; true if that was the last.
pub(crate) fn stop() -> Result<bool, Der> {
    let mut table = TABLE.lock();
    table.users = table.users.checked_sub(1).ok_or(Der::Uninit)?;
    Ok(table.users == 0)
}

/// Ends all handles that are still there.
pub(crate) fn close_all() {
    let gone = std::mem::take(&mut TABLE.lock().entries);
    // Outside the lock: leaving a pool says goodbye to its engines.
    drop(gone);
}

/// `DER_UNINIT` before `daos_init`.
pub(crate) fn check_started() -> Result<(), Der> {
    if TABLE.lock().users > 0 { Ok(()) } else { Err(Der::Uninit) }
}

/// A handle of a connection.
pub(crate) fn add_pool(pool: impl Into<Arc<PoolHandle>>) -> Handle {
    insert(Entry::Pool(pool.into()))
}

/// A handle of a container.
pub(crate) fn add_container(container: ContainerHandle) -> Handle {
    insert(Entry::Container(Arc::new(container)))
}

/// A handle of an object.
pub(crate) fn add_object(object: Arc<dyn Any + Send + Sync>) -> Handle {
    insert(Entry::Object(object))
}

/// The connection of a handle.
pub(crate) fn pool(handle: Handle) -> Result<Arc<PoolHandle>, Der> {
    match TABLE.lock().entries.get(&handle.cookie) {
        Some(Entry::Pool(pool)) => Ok(Arc::clone(pool)),
        _ => Err(Der::NoHdl),
    }
}

/// The container of a handle.
pub(crate) fn container(handle: Handle) -> Result<Arc<ContainerHandle>, Der> {
    match TABLE.lock().entries.get(&handle.cookie) {
        Some(Entry::Container(container)) => Ok(Arc::clone(container)),
        _ => Err(Der::NoHdl),
    }
}

/// The object of a handle.
pub(crate) fn object(handle: Handle) -> Result<Arc<dyn Any + Send + Sync>, Der> {
    match TABLE.lock().entries.get(&handle.cookie) {
        Some(Entry::Object(object)) => Ok(Arc::clone(object)),
        _ => Err(Der::NoHdl),
    }
}

/// Ends a handle of an object.
pub(crate) fn remove_object(handle: Handle) -> Result<(), Der> {
    object(handle)?;
    let gone = TABLE.lock().entries.remove(&handle.cookie);
    drop(gone);
    Ok(())
}

/// Ends a handle of a connection.
pub(crate) fn remove_pool(handle: Handle) -> Result<(), Der> {
    pool(handle)?;
    let gone = TABLE.lock().entries.remove(&handle.cookie);
    drop(gone);
    Ok(())
}

/// Ends a handle of a container.
pub(crate) fn remove_container(handle: Handle) -> Result<(), Der> {
    container(handle)?;
    let gone = TABLE.lock().entries.remove(&handle.cookie);
    drop(gone);
    Ok(())
}
