//! Reading one record of a store, and what a peer is told when the store fails. Owns the logging of
//! what an operator has to see.

use azekura_proto::Status;
use azekura_store::{Space, Store, StoreError, Value};
use serde::de::DeserializeOwned;

use crate::records::record::decode;

/// Turns a store's error into what the peer is told, and logs what an operator has to see.
#[allow(clippy::needless_pass_by_value)] // So that it can stand in `map_err` as it is.
pub(crate) fn store_status(error: StoreError) -> Status {
    let status = error.status();
    match status {
        Status::Io | Status::Damaged | Status::ReadOnly => tracing::error!("{error}"),
        Status::NoSpace => tracing::warn!("{error}"),
        _ => {}
    }
    status
}

/// Goes through the records under a prefix, at most so many at a time.
pub(crate) fn for_each_page(
    store: &Store,
    (space, prefix): (Space, &[u8]),
    page_records: usize,
    mut visit: impl FnMut(&[(Vec<u8>, Value)]) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page =
            store.scan(space, prefix, after.as_deref(), page_records).map_err(store_status)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        visit(&page)?;
    }
}

/// One stored record.
pub(crate) fn load<T: DeserializeOwned>(
    store: &Store,
    space: Space,
    key: &[u8],
) -> Result<Option<T>, Status> {
    load_unless(store, space, key, || false)
}

/// The same for one who may know that there is none.
pub(crate) fn load_unless<T: DeserializeOwned>(
    store: &Store,
    space: Space,
    key: &[u8],
    is_absent: impl FnOnce() -> bool,
) -> Result<Option<T>, Status> {
    let value: Option<Value> = store.get_unless(space, key, is_absent).map_err(store_status)?;
    value.map(|value| decode(&value)).transpose()
}
