//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// What `seek` looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}
impl FileSystem {
    /// The next data or hole at or after `offset`; `ENXIO` beyond the end.
    pub fn seek(&self, file: &OpenFile, offset: u64, to: SeekTo) -> Result<u64> {
        todo!()
    }
}
