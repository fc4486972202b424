//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// What `access` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Execute, or search in a directory.
    pub execute: bool,
}
impl FileSystem {
    /// Whether the caller may do this; checked here even where the kernel checks operations.
    pub fn access(&self, caller: &Credentials, oid: Oid, wanted: Access) -> Result<()> {
        todo!()
    }
}
