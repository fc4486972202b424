//! The operations, one module and one set of methods of [`crate::FileSystem`] per family.

pub(crate) mod allocate;
pub(crate) mod attr;
pub(crate) mod changed_dir;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod data;
mod first_walk;
mod foreseen;
mod in_flight;
mod leased_names;
pub(crate) mod link;
pub(crate) mod listed;
pub(crate) mod lock;
mod looked_open;
pub(crate) mod lookup;
mod moved_names;
pub(crate) mod open;
mod past_engine;
mod privileges;
pub(crate) mod readdir;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod seek;
pub(crate) mod stateless;
pub(crate) mod statfs;
pub(crate) mod sync;
pub(crate) mod xattr;
