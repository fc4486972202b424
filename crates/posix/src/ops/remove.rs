//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Removes a name of anything but a directory.
    pub fn unlink(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<()> {
        todo!()
    }
    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<()> {
        todo!()
    }
}
