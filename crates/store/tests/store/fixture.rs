//! A target in a directory of its own, gone at the end of the test.

use std::path::Path;

use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId, TargetId};
use azekura_store::{Batch, Environment, Space, Store, StoreConfig};
use tempfile::TempDir;

pub(crate) const POOL: PoolId = PoolId([7; 16]);
pub(crate) const TARGET: TargetId = TargetId(3);

pub(crate) struct Fixture {
    // Dropped in this order.
    pub(crate) store: Store,
    pub(crate) dir: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(&StoreConfig::default())
    }

    pub(crate) fn with(config: &StoreConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap();
        let store = Store::open(&Environment::system(), dir.path(), POOL, TARGET, config).unwrap();
        Self { store, dir }
    }

    /// Closes the target and opens it again.
    pub(crate) fn reopen(self) -> Self {
        self.reopen_after(|| {})
    }

    /// Closes the target, does something to its files, and opens it again.
    pub(crate) fn reopen_after(self, change: impl FnOnce()) -> Self {
        let Self { store, dir } = self;
        drop(store);
        change();
        let store = open(dir.path());
        Self { store, dir }
    }
}

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(&Environment::system(), dir, POOL, TARGET, &StoreConfig::default()).unwrap()
}

pub(crate) fn oid(serial: u64) -> Oid {
    Oid::new(ContainerId(1), ObjectClass::S2, TARGET, serial)
}

pub(crate) fn put(store: &Store, space: Space, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(space, key, value);
    store.commit(batch).unwrap();
}

pub(crate) fn delete(store: &Store, space: Space, key: &[u8]) {
    let mut batch = Batch::new();
    batch.delete(space, key);
    store.commit(batch).unwrap();
}

pub(crate) fn get(store: &Store, space: Space, key: &[u8]) -> Option<Vec<u8>> {
    store.get(space, key).unwrap().map(|value| value.to_vec())
}
