//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// Which attributes a listing brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrsWanted {
    /// None.
    No,
    /// Those that cost nothing: of objects whose home has the entry.
    AtHand,
    /// All of them, with further requests where need be.
    All,
}
/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// The object.
    pub oid: Oid,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing goes on after this entry.
    pub cookie: u64,
    /// Attributes, as far as wanted and at hand. Of `.` and `..` never.
    pub attr: Option<Attr>,
}
/// A page of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirPage {
    /// The entries, in cookie order.
    pub entries: Vec<Listed>,
    /// Nothing follows after these. (Never with an empty page only: an empty page is the end.)
    pub end: bool,
}
impl FileSystem {
    /// A page of a directory after `cookie`: 0 from the start, with `.` (cookie 1) and `..`
    /// (cookie 2) first. Stateless: any cookie given out before is good for ever.
    /// `page_bytes`: about how many bytes of names to bring (24 more are counted per entry, 160
    /// with attributes).
    pub fn readdir(
        &self,
        caller: &Credentials,
        dir: Oid,
        cookie: u64,
        page_bytes: u32,
        attrs: AttrsWanted,
    ) -> Result<DirPage> {
        todo!()
    }
}
