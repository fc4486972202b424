//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

/// How to open a file by path.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    flags: OFlags,
    mode: u32,
}
impl OpenOptions {
    /// `open(2)` flags; `mode` are the permission bits of a new file.
    pub fn new(flags: OFlags, mode: u32) -> Self {
        Self { flags, mode }
    }
    /// For reading.
    pub fn read_only() -> Self {
        Self::new(OFlags::RDONLY, 0)
    }
    /// For reading and writing, made if it is not there (mode 0644), emptied if it is.
    pub fn create() -> Self {
        Self::new(OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC, 0o644)
    }
}
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
/// Iterates over a directory, without the dot entries.
#[derive(Debug)]
pub struct Directory {}
impl Iterator for Directory {
    type Item = Result<DirectoryEntry>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
/// An open file.
#[derive(Debug)]
pub struct File {}
impl File {
    /// Reads at an offset; fewer bytes only at the end.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        todo!()
    }
    /// Writes all of it at an offset.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        todo!()
    }
    /// Appends; gives back where the data went.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        todo!()
    }
    /// Attributes.
    pub fn metadata(&self) -> Result<Attr> {
        todo!()
    }
    /// Length in bytes.
    pub fn len(&self) -> Result<u64> {
        todo!()
    }
    /// Cuts or grows.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        todo!()
    }
    /// `fsync`.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// The handle, for the operations of [`FileSystem`].
    pub fn handle(&self) -> &OpenFile {
        todo!()
    }
}
/// A file system by path, for one user.
#[derive(Clone, Debug)]
pub struct Namespace {}
impl Namespace {
    /// Paths count from the root.
    pub fn new(fs: Arc<FileSystem>, caller: Credentials) -> Self {
        todo!()
    }
    /// The same, with relative paths counted from `dir`.
    pub fn at(&self, dir: Oid) -> Self {
        todo!()
    }
    /// The file system.
    pub fn filesystem(&self) -> &Arc<FileSystem> {
        todo!()
    }
    /// The object that a path leads to; the last symlink is followed if `follow`.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Attr> {
        todo!()
    }
    /// Opens a file.
    pub fn open(&self, path: impl AsRef<[u8]>, options: &OpenOptions) -> Result<File> {
        todo!()
    }
    /// Attributes of what the path leads to (`stat`).
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        todo!()
    }
    /// Attributes without following a last symlink (`lstat`).
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        todo!()
    }
    /// `mkdir`.
    pub fn create_dir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        todo!()
    }
    /// `mkdir -p`.
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        todo!()
    }
    /// `mknod`: fifos, sockets, devices, plain files.
    pub fn make_node(&self, path: impl AsRef<[u8]>, mode: u32, what: NewNode) -> Result<Attr> {
        todo!()
    }
    /// `unlink`.
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        todo!()
    }
    /// `rmdir`.
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        todo!()
    }
    /// `rm -r`.
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        todo!()
    }
    /// `rename`, with its mode.
    pub fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        todo!()
    }
    /// `link`; a last symlink of `from` is not followed.
    pub fn hard_link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<Attr> {
        todo!()
    }
    /// `symlink`.
    pub fn symlink(&self, text: &[u8], path: impl AsRef<[u8]>) -> Result<Attr> {
        todo!()
    }
    /// `readlink`.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        todo!()
    }
    /// Lists a directory.
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Directory> {
        todo!()
    }
    /// The whole file.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        todo!()
    }
    /// Makes or replaces a file (mode 0644) with these bytes.
    pub fn write(&self, path: impl AsRef<[u8]>, data: &[u8]) -> Result<()> {
        todo!()
    }
    /// `chmod`, `chown`, `truncate`, `utimens`.
    pub fn set_attr(
        &self,
        path: impl AsRef<[u8]>,
        follow: bool,
        update: &crate::AttrUpdate,
    ) -> Result<Attr> {
        todo!()
    }
}
/// skeleton
pub type NewNode = u32;
