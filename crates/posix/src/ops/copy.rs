//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Copies up to `bytes` bytes; gives back how many were copied, 0 at the end of the source.
    pub fn copy_range(
        &self,
        from: &OpenFile,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        bytes: u64,
    ) -> Result<u64> {
        todo!()
    }
}
