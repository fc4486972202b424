//! A file that the kernel has open.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura_posix::OpenFile;

/// An open file, and what the kernel has left to the server to remember about it.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) open: OpenFile,
    /// The set-user or set-group bit was set after the file was opened.
    has_new_bits: AtomicBool,
}

impl FileHandle {
    pub(crate) fn new(open: OpenFile) -> Self {
        Self { open, has_new_bits: AtomicBool::new(false) }
    }

    /// The next write has to look at the mode.
    pub(crate) fn watch_bits(&self) {
        self.has_new_bits.store(true, Ordering::Relaxed);
    }

    /// Whether this write has to look at the mode; the next one has not.
    pub(crate) fn take_watch(&self) -> bool {
        self.has_new_bits.load(Ordering::Relaxed)
            && self.has_new_bits.swap(false, Ordering::Relaxed)
    }
}
