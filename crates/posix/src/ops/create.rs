//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// What a new entry starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewEntry<'a> {
    /// A regular file, not opened.
    Regular,
    /// A directory.
    Directory,
    /// A symlink with its text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A UNIX-domain socket.
    Socket,
    /// A character device with its number.
    CharDevice(u64),
    /// A block device with its number.
    BlockDevice(u64),
}
impl FileSystem {
    /// `mkdir`, `symlink` and `mknod`. `mode`: permission bits, umask already applied.
    pub fn make(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        what: NewEntry<'_>,
    ) -> Result<Attr> {
        todo!()
    }
    /// `open` with `O_CREAT`: makes the file (or opens the one that is there, unless `O_EXCL`).
    /// The flags `O_TRUNC`, `O_APPEND` and the access mode count too.
    pub fn create(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        todo!()
    }
    /// `O_TMPFILE`: a file without a name, which [`FileSystem::link`] can give one.
    pub fn tmpfile(
        &self,
        caller: &Credentials,
        dir: Oid,
        mode: u32,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        todo!()
    }
}
