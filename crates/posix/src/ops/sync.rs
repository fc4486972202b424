//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Makes the file's data and attributes durable.
    pub fn fsync(&self, file: &OpenFile) -> Result<()> {
        todo!()
    }
    /// Makes a directory's entries durable.
    pub fn fsync_dir(&self, dir: Oid) -> Result<()> {
        todo!()
    }
    /// Makes the key-values of all targets durable.
    pub fn syncfs(&self) -> Result<()> {
        todo!()
    }
    /// `close` of one descriptor: writes are never held back here, so there is nothing to send.
    pub fn flush(&self, file: &OpenFile) -> Result<()> {
        todo!()
    }
}
