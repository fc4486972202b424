//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// A change of attributes; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttrUpdate {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
}
impl FileSystem {
    /// Attributes of an object.
    pub fn getattr(&self, oid: Oid) -> Result<Attr> {
        todo!()
    }
    /// Changes attributes (`chmod`, `chown`, `truncate`, `utimens`). With a handle opened for
    /// writing, a change of size needs no permission.
    pub fn setattr(
        &self,
        caller: &Credentials,
        oid: Oid,
        handle: Option<&OpenFile>,
        update: &AttrUpdate,
    ) -> Result<Attr> {
        todo!()
    }
}
