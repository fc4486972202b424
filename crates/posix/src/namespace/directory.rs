//! Listing a directory by iteration. Owns only the place that the listing has come to.

use std::collections::VecDeque;
use std::sync::Arc;

use azekura_proto::Oid;
use azekura_proto::attr::FileKind;

use crate::listed::Listed;
use crate::ops::readdir::AttrsWanted;
use crate::{Credentials, FileSystem, Result};

/// Names fetched at a time, in bytes.
const PAGE_BYTES: u32 = 64 * 1024;
/// The cookie behind the dot entries.
const AFTER_DOTS: u64 = 2;

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The object.
    pub oid: Oid,
    /// Its type.
    pub kind: FileKind,
}

/// Iterates over a directory, without the dot entries. After an error it ends.
#[derive(Debug)]
pub struct Directory {
    fs: Arc<FileSystem>,
    caller: Arc<Credentials>,
    dir: Oid,
    cookie: u64,
    fetched: VecDeque<Listed>,
    end: bool,
}

impl Directory {
    pub(super) fn new(fs: Arc<FileSystem>, caller: Arc<Credentials>, dir: Oid) -> Self {
        Self { fs, caller, dir, cookie: AFTER_DOTS, fetched: VecDeque::new(), end: false }
    }

    /// The directory.
    pub fn oid(&self) -> Oid {
        self.dir
    }

    fn fetch(&mut self) -> Result<()> {
        let page =
            self.fs.readdir(&self.caller, self.dir, self.cookie, PAGE_BYTES, AttrsWanted::No)?;
        self.end = page.end || page.entries.is_empty();
        if let Some(last) = page.entries.last() {
            self.cookie = last.cookie;
        }
        self.fetched = page.entries.into();
        Ok(())
    }
}

impl Iterator for Directory {
    type Item = Result<DirectoryEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.is_empty()
            && !self.end
            && let Err(errno) = self.fetch()
        {
            self.end = true;
            return Some(Err(errno));
        }
        self.fetched
            .pop_front()
            .map(|found| Ok(DirectoryEntry { name: found.name, oid: found.oid, kind: found.kind }))
    }
}
