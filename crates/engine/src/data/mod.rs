//! Array data and key-values of objects, and the leases under which clients keep them in memory.

pub(crate) mod append;
#[cfg(test)]
mod append_tests;
#[cfg(test)]
mod descriptor_tests;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod handed_out;
pub(crate) mod leases;
pub(crate) mod owed_bits;
pub(crate) mod scrub;
pub(crate) mod shards;
pub(crate) mod values;
