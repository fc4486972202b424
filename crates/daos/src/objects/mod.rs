//! Objects, key-values and arrays of cells, over the object API of a pool.

mod array;
mod array_handle;
pub(crate) mod cells;
mod cursor;
mod fetch;
mod handle;
mod keys;
mod kv;
mod list;
mod memory;
mod open;
mod punch;
mod query;
pub(crate) mod table;
mod update;
