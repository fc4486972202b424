//! What a descriptor stands for: an open file of the pool, or a place in its tree. Owns how reading
//! and writing move the position.

use std::sync::{Arc, OnceLock};

use azekura_posix::{Attr, AttrUpdate, Errno, File, FileKind, FileSystem, OFlags, Oid, Result};

use super::position::Position;
use super::size_limit;
use crate::service;

/// The flags that `fcntl` can change later.
pub(crate) const CHANGEABLE: OFlags =
    OFlags::APPEND.union(OFlags::NONBLOCK).union(OFlags::DIRECT).union(OFlags::NOATIME);

/// What the kernel knows the descriptor as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// A reserved number.
    Reserved,
    /// The file itself, through a mount; only data calls are ours.
    Mount,
}

/// An open file description (POSIX.1-2024 XBD 3.236).
#[derive(Debug)]
pub(crate) struct Description {
    oid: Oid,
    kind: FileKind,
    /// Access mode and the flags of `open` that stay as they are.
    open_flags: OFlags,
    /// Empty for a mere place in the tree (`O_PATH`), and for an inherited one until it is used.
    file: OnceLock<File>,
    position: Position,
    backing: Backing,
    /// The absolute path below the root of the container by which it was opened; empty if unknown.
    path: Vec<u8>,
}

impl Description {
    /// A file or directory that has been opened.
    pub(crate) fn of_file(file: File, backing: Backing, path: Vec<u8>, flags: OFlags) -> Arc<Self> {
        let changeable = (flags & CHANGEABLE).bits() as i32;
        Arc::new(Self {
            oid: file.handle().oid(),
            kind: file.handle().kind(),
            open_flags: flags & !CHANGEABLE,
            file: OnceLock::from(file),
            position: Position::new(changeable),
            backing,
            path,
        })
    }

    /// A place in the tree, or what another process has opened.
    pub(crate) fn unopened(
        oid: Oid,
        kind: FileKind,
        open_flags: OFlags,
        position: Position,
        path: Vec<u8>,
    ) -> Arc<Self> {
        let backing = Backing::Reserved;
        Arc::new(Self { oid, kind, open_flags, file: OnceLock::new(), position, backing, path })
    }

    /// The file system.
    pub(crate) fn fs(&self) -> Result<Arc<FileSystem>> {
        match self.fs_in_use() {
            Some(fs) => Ok(fs),
            None => Ok(Arc::clone(service::root()?.filesystem())),
        }
    }

    /// The file system, if this process has opened the file there.
    pub(crate) fn fs_in_use(&self) -> Option<Arc<FileSystem>> {
        self.file_in_use().map(|file| Arc::clone(file.filesystem()))
    }

    /// The open file, if this process has opened it.
    pub(crate) fn file_in_use(&self) -> Option<&File> {
        self.file.get()
    }

    /// The object.
    pub(crate) fn oid(&self) -> Oid {
        self.oid
    }

    /// What the kernel has behind the number.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// Position and flags.
    pub(crate) fn position(&self) -> &Position {
        &self.position
    }

    /// The path it was opened by, below the container's root; empty if unknown.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Access mode and the flags of `open` that stay as they are.
    pub(crate) fn open_flags(&self) -> OFlags {
        self.open_flags
    }

    /// The open file; `EBADF` for a mere place.
    pub(crate) fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        if self.open_flags.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        let file = service::root()?.reopen(self.oid, self.open_flags & !OFlags::TRUNC)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// The type of what is open.
    pub(crate) fn kind(&self) -> FileKind {
        self.kind
    }

    /// The object of a directory; `ENOTDIR` for anything else.
    pub(crate) fn dir(&self) -> Result<Oid> {
        if self.kind == FileKind::Directory { Ok(self.oid) } else { Err(Errno::NOTDIR) }
    }

    /// Attributes.
    pub(crate) fn attr(&self) -> Result<Attr> {
        match self.file.get() {
            Some(file) => file.metadata(),
            None => self.fs()?.getattr(self.oid),
        }
    }

    /// Changes attributes.
    pub(crate) fn set_attr(&self, update: &AttrUpdate) -> Result<Attr> {
        self.file()?.set_attr(update)
    }

    fn appends(&self) -> bool {
        self.position.flags() & libc::O_APPEND != 0
    }

    /// Reads at the position and moves it.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file()?;
        self.position.locked(|place| {
            let got = file.read_at(buffer, place.offset())?;
            place.set(place.offset() + got as u64);
            Ok(got)
        })
    }

    /// Reads at an offset.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file()?.read_at(buffer, offset)
    }

    /// Writes at the position, or at the end, and moves it.
    pub(crate) fn write(&self, data: &[u8]) -> Result<usize> {
        let file = self.file()?;
        let written = self.position.locked(|place| -> Result<Option<usize>> {
            if self.appends() {
                let Some(bytes) = size_limit::allowed(data.len(), || file.len())? else {
                    return Ok(None);
                };
                let offset = file.append(&data[..bytes])?;
                place.set(offset + bytes as u64);
                return Ok(Some(bytes));
            }
            let Some(bytes) = size_limit::allowed(data.len(), || Ok(place.offset()))? else {
                return Ok(None);
            };
            let written = file.write_at(&data[..bytes], place.offset())?;
            place.set(place.offset() + written as u64);
            Ok(Some(written))
        })?;
        size_limit::conclude(written)
    }

    /// Lets arrive what was written, as far as this process did it.
    pub(crate) fn flush(&self) -> Result<()> {
        match self.file.get() {
            Some(file) => file.filesystem().flush(file.handle()),
            None => Ok(()),
        }
    }

    /// Writes at an offset; in append mode at the end (as Linux does).
    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        let file = self.file()?;
        let appends = self.appends();
        let at = || if appends { file.len() } else { Ok(offset) };
        match size_limit::allowed(data.len(), at)? {
            None => size_limit::conclude(None),
            Some(bytes) if appends => file.append(&data[..bytes]).map(|_| bytes),
            Some(bytes) => file.write_at(&data[..bytes], offset),
        }
    }

    /// The flags that `F_GETFL` shows.
    pub(crate) fn shown_flags(&self) -> i32 {
        self.open_flags.bits() as i32 | self.position.flags()
    }
}
