//! Open files. Owns what a handle knows of its file, so that reading and writing need no question
//! about it: object, layout, how it is read and written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_client::OpenReference;
use azekura_proto::attr::{FileGuard, FileKind};
use azekura_proto::{Attr, Oid};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::layout::FileLayout;
use crate::local_file::LocalFile;
use crate::privileges::AtFirstWrite;
use crate::reader::FileReader;
use crate::writer::FileWriter;
use crate::{Errno, Result};

/// A file held open: it lives until the handle goes, even without a name. Closing is dropping it.
#[derive(Debug)]
pub struct OpenFile {
    /// Dropped before the hold is: it waits for writes in flight.
    pub(crate) writer: FileWriter,
    reference: Arc<OpenReference>,
    kind: FileKind,
    flags: OFlags,
    pub(crate) layout: FileLayout,
    pub(crate) reader: Arc<FileReader>,
    /// Its data, as far as they can be read and written past the engine.
    pub(crate) local: LocalFile,
    /// Opening has cut the file, which took set-id bits from it.
    pub(crate) has_lost_bits: bool,
    at_first_write: Mutex<Option<Box<AtFirstWrite>>>,
    /// Whether there is none (any more), so that later writes need not ask.
    is_written: AtomicBool,
    /// Owner and mode as they were when the file was opened or last changed through this handle: a guess
    /// for asking an engine the right thing at once, never shown to anybody.
    guess: Mutex<FileGuard>,
}

impl OpenFile {
    pub(crate) fn new(
        reference: Arc<OpenReference>,
        attr: &Attr,
        layout: FileLayout,
        at_first_write: Option<Box<AtFirstWrite>>,
        flags: OFlags,
        errors: u64,
    ) -> Self {
        Self {
            writer: FileWriter::new(is_synchronous(flags), errors),
            reference,
            kind: attr.kind,
            flags: flags & !(OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC),
            layout,
            reader: Arc::new(FileReader::new(attr.size)),
            local: LocalFile::new(),
            has_lost_bits: false,
            is_written: AtomicBool::new(at_first_write.is_none()),
            at_first_write: Mutex::new(at_first_write),
            guess: Mutex::new(FileGuard::of(attr)),
        }
    }

    /// What keeps the file open.
    pub(crate) fn reference(&self) -> &Arc<OpenReference> {
        &self.reference
    }

    /// By what a change of the attributes is judged before the engine says whether it still holds.
    pub(crate) fn guess(&self) -> FileGuard {
        *self.guess.lock()
    }

    /// What the handle knows of its file by these attributes.
    pub(crate) fn learn(&self, attr: &Attr) {
        *self.guess.lock() = FileGuard::of(attr);
        self.layout.learn_striped(attr.striped);
    }

    /// The object.
    pub fn oid(&self) -> Oid {
        self.reference.oid()
    }

    /// The type of the file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The flags that it was opened with, without those that count at open only.
    pub fn flags(&self) -> OFlags {
        self.flags
    }

    /// Whether opening it has taken set-id bits from the file, by cutting it.
    pub fn has_lost_bits(&self) -> bool {
        self.has_lost_bits
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::RDONLY
    }

    /// Whether it was opened for reading.
    pub fn is_readable(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::WRONLY
    }

    /// Whether every write is to be durable when it is answered (`O_SYNC`, `O_DSYNC`).
    pub(crate) fn is_synchronous(&self) -> bool {
        is_synchronous(self.flags)
    }

    /// What is to be done before this write: something once, then nothing.
    pub(crate) fn take_first_write(&self) -> Option<Box<AtFirstWrite>> {
        if self.is_written.load(Ordering::Relaxed) {
            return None;
        }
        let first = self.at_first_write.lock().take();
        self.is_written.store(true, Ordering::Relaxed);
        first
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

fn is_synchronous(flags: OFlags) -> bool {
    flags.intersects(OFlags::DSYNC | OFlags::SYNC)
}
