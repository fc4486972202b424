//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Reads into `buffer`; fewer bytes only at the end of the file.
    pub fn read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        todo!()
    }
    /// Writes at `offset`, or at the end if the handle is in append mode (then `offset` does not
    /// count).
    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize> {
        todo!()
    }
    /// Writes at the end of the file; gives back where the data went. Atomic up to 4 MiB.
    pub fn append(&self, file: &OpenFile, data: &[u8]) -> Result<u64> {
        todo!()
    }
}
