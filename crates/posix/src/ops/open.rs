//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Opens an object by id: a regular file for I/O, or a directory for reading. Gives its
    /// attributes as they are then. `O_TRUNC` counts; `O_CREAT` does not (see `create`).
    pub fn open(&self, caller: &Credentials, oid: Oid, flags: OFlags) -> Result<(Attr, OpenFile)> {
        todo!()
    }
}
