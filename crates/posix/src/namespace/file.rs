//! An open file. Owns the loops that turn short reads and writes into whole ones.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use azekura_proto::Attr;
use azekura_proto::attr::FileKind;
use azekura_proto::message::Allocation;
use rustix::fs::OFlags;

use crate::ops::attr::AttrUpdate;
use crate::ops::seek::SeekTo;
use crate::{Credentials, Errno, FileSystem, OpenFile, Result};

/// How to open a file by path.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    pub(super) flags: OFlags,
    pub(super) mode: u32,
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

/// An open file.
#[derive(Debug)]
pub struct File {
    fs: Arc<FileSystem>,
    caller: Arc<Credentials>,
    handle: OpenFile,
}

impl File {
    pub(super) fn new(fs: Arc<FileSystem>, caller: Arc<Credentials>, handle: OpenFile) -> Self {
        Self { fs, caller, handle }
    }

    /// The file system that the file is in.
    pub fn filesystem(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// The handle, for the operations of [`FileSystem`].
    pub fn handle(&self) -> &OpenFile {
        &self.handle
    }

    /// Reads at an offset in bytes; fewer bytes than fit only at the end.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.fs.read(&self.handle, offset, buffer)
    }

    /// Writes at an offset in bytes; fewer bytes than given only after an error.
    ///
    /// # Errors
    /// Those of `pwrite`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.fs.write(&self.handle, offset, data)
    }

    /// Writes all of `data` at an offset in bytes.
    ///
    /// # Errors
    /// Those of `pwrite`.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write_at(&data[done..], offset + done as u64)? {
                0 => return Err(Errno::IO),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Writes at the end, and gives back the offset that the data went to. Atomic up to 4 MiB.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.fs.append(&self.handle, data)
    }

    /// See [`FileSystem::data_to_map`].
    ///
    /// # Errors
    /// As there.
    pub fn data_to_map(&self, must_write: bool) -> Result<Option<BorrowedFd<'_>>> {
        self.fs.data_to_map(&self.handle, must_write)
    }

    /// Attributes.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn metadata(&self) -> Result<Attr> {
        match self.handle.kind() {
            FileKind::Directory => self.fs.getattr_listed(self.handle.oid()),
            _ => self.fs.getattr_open(&self.handle),
        }
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// Those of `fstat`.
    #[expect(clippy::len_without_is_empty, reason = "a length that takes a request")]
    pub fn len(&self) -> Result<u64> {
        self.metadata().map(|attr| attr.size)
    }

    /// Cuts or grows the file to this length in bytes.
    ///
    /// # Errors
    /// Those of `ftruncate`.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.set_attr(&AttrUpdate::size(bytes)).map(drop)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// Those of `fchmod`, `fchown`, `futimens`, `ftruncate`.
    pub fn set_attr(&self, update: &AttrUpdate) -> Result<Attr> {
        self.fs.setattr(&self.caller, self.handle.oid(), Some(&self.handle), update)
    }

    /// Makes data and attributes durable.
    ///
    /// # Errors
    /// Those of `fsync`.
    pub fn sync(&self) -> Result<()> {
        self.fs.fsync(&self.handle)
    }

    /// Makes data durable, and the attributes but for the time of the last write.
    ///
    /// # Errors
    /// Those of `fdatasync`.
    pub fn sync_data(&self) -> Result<()> {
        self.fs.fdatasync(&self.handle)
    }

    /// Closes the file. Dropping it does the same, but nobody is told if something that was written
    /// did not arrive.
    ///
    /// # Errors
    /// Those of `close`.
    pub fn close(self) -> Result<()> {
        self.fs.flush(&self.handle)
    }

    /// `fallocate`.
    ///
    /// # Errors
    /// Those of `fallocate`.
    pub fn allocate(&self, offset: u64, bytes: u64, what: Allocation) -> Result<()> {
        self.fs.allocate(&self.handle, offset, bytes, what)
    }

    /// The next data or hole at or after an offset.
    ///
    /// # Errors
    /// `ENXIO` if there is none.
    pub fn seek(&self, offset: u64, to: SeekTo) -> Result<u64> {
        self.fs.seek(&self.handle, offset, to)
    }
}
