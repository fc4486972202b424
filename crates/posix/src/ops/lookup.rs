//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// What a name leads to, with attributes. `.` and `..` are understood.
    pub fn lookup(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<Attr> {
        todo!()
    }
    /// The text of a symlink.
    pub fn readlink(&self, oid: Oid) -> Result<Vec<u8>> {
        todo!()
    }
}
