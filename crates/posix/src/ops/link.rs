//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Another name for an object; gives its attributes then.
    pub fn link(&self, caller: &Credentials, oid: Oid, dir: Oid, name: &[u8]) -> Result<Attr> {
        todo!()
    }
}
