//! This machine: where files belong, processes, mounts, and programs that run in the background.
//! Knows nothing of pools beyond their names.

pub(crate) mod daemon;
pub(crate) mod mounts;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod records;
