//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// `fallocate` on a range of bytes.
    pub fn allocate(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: u64,
        what: Allocation,
    ) -> Result<()> {
        todo!()
    }
}
