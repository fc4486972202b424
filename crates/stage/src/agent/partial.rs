//! A file that is not whole yet: it has a name outside of the tree, and is removed unless it gets one there. Owns
//! the file while it is written, and nothing of where it goes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is not whole yet.
pub(crate) struct Partial {
    pub(super) path: PathBuf,
    /// Open for writing until it gets its name: a program that somebody has open for writing cannot be run.
    pub(crate) file: Option<Arc<File>>,
    pub(super) is_named: bool,
}

impl Partial {
    pub(super) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file: Some(Arc::new(file)), is_named: false }
    }

    /// The file, open for reading, whatever mode it gets.
    pub(crate) fn reading(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Writes at an offset.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.write_all_at(bytes, offset)
    }

    pub(super) fn inode(&self) -> io::Result<u64> {
        Ok(self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.metadata()?.ino())
    }

    /// The same file, for writing past the page cache.
    pub(crate) fn open_direct(&self) -> io::Result<File> {
        File::options().write(true).custom_flags(libc::O_DIRECT).open(&self.path)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_named {
            // What cannot be removed goes with the agent's directory.
            let _ = fs::remove_file(&self.path);
        }
    }
}
