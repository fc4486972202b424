//! Reading one record of a store, and what a peer is told when the store fails. Owns the logging of
//! what an operator has to see.

use azekura_proto::Status;
use azekura_store::{Space, Store, StoreError, Value};
use serde::de::DeserializeOwned;

use crate::record::decode;

/// Turns a store's error into what the peer is told, and logs what an operator has to see.
pub(crate) fn store_status(error: &StoreError) -> Status {
    let status = error.status();
    match status {
        Status::Io | Status::Damaged | Status::ReadOnly => tracing::error!("{error}"),
        Status::NoSpace => tracing::warn!("{error}"),
        _ => {}
    }
    status
}

/// One stored record.
pub(crate) fn load<T: DeserializeOwned>(
    store: &Store,
    space: Space,
    key: &[u8],
) -> Result<Option<T>, Status> {
    let value: Option<Value> = store.get(space, key).map_err(|e| store_status(&e))?;
    value.map(|value| decode(&value)).transpose()
}
