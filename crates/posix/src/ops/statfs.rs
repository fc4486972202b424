//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// Space and counts of the whole pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free for ordinary users, in bytes.
    pub available_bytes: u64,
    /// Inodes in use, about.
    pub objects: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
    /// Identifies the file system.
    pub fsid: u64,
}
impl FileSystem {
    /// Space over all targets; targets that share a device count once.
    pub fn statfs(&self) -> Result<StatFs> {
        todo!()
    }
}
