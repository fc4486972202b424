//! Operations on names and inodes, and what they cost a directory. Who may do what was decided by the
//! client.

pub(crate) mod attributes;
pub(crate) mod containers;
pub(crate) mod dir_shards;
pub(crate) mod entries;
pub(crate) mod inode;
pub(crate) mod known_names;
pub(crate) mod leased_names;
pub(crate) mod listing;
pub(crate) mod numbered;
#[cfg(test)]
mod numbered_tests;
pub(crate) mod open_entry;
pub(crate) mod rename;
pub(crate) mod set_id;
pub(crate) mod walk;
