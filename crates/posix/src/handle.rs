//! Open files. Owns what a handle knows of its file, so that reading and writing need no question
//! about it: object, geometry, whether it is wide.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use azekura_client::Hold;
use azekura_proto::attr::FileKind;
use azekura_proto::{Attr, Geometry, Oid};
use rustix::fs::OFlags;

use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Credentials, Errno, Result, permission};

/// A file held open: it lives until the handle goes, even without a name. Closing is dropping it.
#[derive(Debug)]
pub struct OpenFile {
    /// How it is written; decided at the first write. Goes before the hold does.
    writer: OnceLock<Writer>,
    /// The number of the last error of writes in flight that it was told of.
    errors_told: AtomicU64,
    hold: Hold,
    kind: FileKind,
    geometry: Geometry,
    flags: OFlags,
    wide: AtomicBool,
    /// Mode bits that the first write takes away.
    clear_bits: AtomicU16,
    bytes_at_open: u64,
    /// How it is read; decided at the first read.
    reader: OnceLock<Reader>,
}

impl OpenFile {
    pub(crate) fn new(
        hold: Hold,
        attr: &Attr,
        caller: &Credentials,
        flags: OFlags,
        (targets, errors_told): (u16, u64),
    ) -> Self {
        let is_regular = attr.kind == FileKind::Regular;
        let clear =
            if is_regular && !caller.is_root() { permission::dangerous_bits(attr.mode) } else { 0 };
        Self {
            writer: OnceLock::new(),
            errors_told: AtomicU64::new(errors_told),
            hold,
            kind: attr.kind,
            geometry: Geometry::new(attr.chunk_bytes, attr.oid.class().shards(targets)),
            flags: flags & !(OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC),
            wide: AtomicBool::new(attr.wide),
            clear_bits: AtomicU16::new(clear),
            bytes_at_open: attr.size,
            reader: OnceLock::new(),
        }
    }

    /// The object.
    pub fn oid(&self) -> Oid {
        self.hold.oid()
    }

    /// The type of the file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The flags that it was opened with, without those that count at open only.
    pub fn flags(&self) -> OFlags {
        self.flags
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::RDONLY
    }

    /// Whether it was opened for reading.
    pub fn is_readable(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::WRONLY
    }

    /// Its length when it was opened, in bytes.
    pub(crate) fn bytes_at_open(&self) -> u64 {
        self.bytes_at_open
    }

    /// How it is read.
    pub(crate) fn reader(&self, decide: impl FnOnce() -> Reader) -> &Reader {
        self.reader.get_or_init(decide)
    }

    /// How it is written.
    pub(crate) fn writer(&self, decide: impl FnOnce() -> Writer) -> &Writer {
        self.writer.get_or_init(decide)
    }

    /// Whether it has not been told of the error with this number yet; it is now.
    pub(crate) fn is_news(&self, error: u64) -> bool {
        self.errors_told.fetch_max(error, Ordering::Relaxed) < error
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether data before `end` may lie in other shards than the home's.
    pub(crate) fn needs_wide(&self, end: u64) -> bool {
        self.geometry.shards() > 1 && !self.geometry.is_narrow(end)
    }

    /// Whether the file is known to have, or be allowed to have, data in several shards.
    pub(crate) fn is_wide(&self) -> bool {
        self.wide.load(Ordering::Acquire) && self.geometry.shards() > 1
    }

    /// Learns from an engine that the file is wide. It never becomes narrow again while open.
    pub(crate) fn learn_wide(&self, wide: bool) {
        if wide {
            self.wide.store(true, Ordering::Release);
        }
    }

    /// The mode bits to take away before this write: all of them once, then none.
    pub(crate) fn take_clear_bits(&self) -> u16 {
        match self.clear_bits.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.clear_bits.swap(0, Ordering::Relaxed),
        }
    }

    /// `EBADF` unless it is open for reading, `EISDIR` for a directory.
    pub(crate) fn check_read(&self) -> Result<()> {
        match self.kind {
            FileKind::Directory => Err(Errno::ISDIR),
            FileKind::Regular if self.is_readable() => Ok(()),
            FileKind::Regular => Err(Errno::BADF),
            _ => Err(Errno::INVAL),
        }
    }

    /// `EBADF` unless it is open for writing.
    pub(crate) fn check_write(&self) -> Result<()> {
        match self.kind {
            FileKind::Regular if self.is_writable() => Ok(()),
            FileKind::Regular | FileKind::Directory => Err(Errno::BADF),
            _ => Err(Errno::INVAL),
        }
    }
}
