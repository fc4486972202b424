//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// The value of an extended attribute; `ENODATA` if there is none.
    pub fn getxattr(&self, caller: &Credentials, oid: Oid, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }
    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        caller: &Credentials,
        oid: Oid,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        todo!()
    }
    /// Names of the extended attributes, each ended by a zero byte.
    pub fn listxattr(&self, caller: &Credentials, oid: Oid) -> Result<Vec<u8>> {
        todo!()
    }
    /// Removes an extended attribute.
    pub fn removexattr(&self, caller: &Credentials, oid: Oid, name: &[u8]) -> Result<()> {
        todo!()
    }
}
