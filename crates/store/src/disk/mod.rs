//! The disk as the store sees it: directories and files by name, and what makes each of them durable.
//! Owns the traits that the real disk and a simulated one implement. Everything that a store keeps goes
//! through here, but for the files of the key-value database, which opens its own.
//!
//! What was written is seen by every later reader at once. It survives a loss of power only once the
//! file (its data) and its directory (its name) have been synced.

mod holders;
mod host;
#[cfg(feature = "simulation")]
mod image;
#[cfg(feature = "simulation")]
mod simulated;

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use azekura_proto::Timestamp;
use rustix::io::{Errno, Result};

pub(crate) use host::HostDisk;
#[cfg(feature = "simulation")]
pub use simulated::SimulatedDisk;

/// What is known of a file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileStat {
    /// Length in bytes.
    pub bytes: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Time of the last change of the data.
    pub mtime: Timestamp,
    /// Time of the last change of the file.
    pub ctime: Timestamp,
}

/// Sizes of the file system that a directory is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::struct_field_names, reason = "every size says its unit")]
pub(crate) struct DiskSpace {
    /// Size of the file system, in bytes.
    pub(crate) total_bytes: u64,
    /// Free, in bytes.
    pub(crate) free_bytes: u64,
    /// Free for an ordinary user, in bytes.
    pub(crate) available_bytes: u64,
}

/// How a file is opened: for reading and writing, unless it is said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The file must be there.
    Existing,
    /// The file must be there, and is only read; it may be a symbolic link.
    Read,
    /// The file is created empty if it is not there.
    Create,
    /// The same, and others may read it where the process lets them.
    CreateReadable,
}

/// How space of a file is taken or given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allocation {
    /// Takes space for the range; the file grows to its end.
    Extend,
    /// Takes space for the range; the length stays.
    KeepLength,
    /// Gives space back, and the range reads as zeros; the length stays.
    Punch,
    /// The range reads as zeros and has its space; the file grows to its end.
    ZeroExtend,
    /// The range reads as zeros and has its space; the length stays.
    ZeroKeepLength,
}

/// What a search in a sparse file looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Bytes that were written.
    Data,
    /// Space that was never written, or the end of the file.
    Hole,
}

/// Where directories are found by their paths.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Opens a directory.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Directory>>;

    /// Makes a directory and those above it, unless they are there.
    fn create_dir_all(&self, path: &Path) -> Result<()>;

    /// Names the run of the machine: as long as it is the same, nothing that was written is lost.
    /// `None` if it cannot be known.
    fn boot(&self) -> Option<[u8; 16]>;
}

/// An open directory. Names are relative to it and may lead through further directories; a symbolic
/// link at the end of one is refused.
pub(crate) trait Directory: Send + Sync {
    /// Where the directory is, for messages.
    fn path(&self) -> &Path;

    /// Opens a directory below this one.
    fn open_dir(&self, name: &str) -> Result<Arc<dyn Directory>>;

    /// Makes a directory that must not be there.
    fn create_dir(&self, name: &str) -> Result<()>;

    /// Opens a file.
    fn open(&self, name: &str, access: Access) -> Result<Box<dyn File>>;

    /// Opens a file, creates it if need be, and locks it against everybody else until it is dropped.
    ///
    /// # Errors
    ///
    /// [`Errno::WOULDBLOCK`] while somebody else has the lock.
    fn lock(&self, name: &str) -> Result<Box<dyn File>>;

    /// What is known of a file or directory.
    fn stat(&self, name: &OsStr) -> Result<FileStat>;

    /// Gives a file or directory another name, in place of what had that name.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. Who has it open keeps it.
    fn remove(&self, name: &str) -> Result<()>;

    /// Removes a directory with everything in it.
    fn remove_tree(&self, name: &str) -> Result<()>;

    /// Visits the names in this directory, in no order, until the visitor fails.
    fn list(&self, visit: &mut dyn FnMut(&OsStr) -> Result<()>) -> Result<()>;

    /// Makes the names in this directory durable.
    fn sync(&self) -> Result<()>;

    /// Makes everything durable that is on the file system.
    fn sync_file_system(&self) -> Result<()>;

    /// Names the file system, so that directories sharing one are known.
    fn device(&self) -> Result<u64>;

    /// Sizes of the file system.
    fn space(&self) -> Result<DiskSpace>;
}

/// An open file. All methods may be called from any number of threads.
pub(crate) trait File: Send + Sync {
    /// Reads up to `buffer.len()` bytes; 0 at or beyond the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes some bytes of `data` from its beginning on.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<usize>;

    /// Sets the length. The modification time changes, also if the length does not.
    fn truncate(&self, bytes: u64) -> Result<()>;

    /// Takes space for a range, or gives it back.
    ///
    /// # Errors
    ///
    /// [`Errno::OPNOTSUPP`] if this disk cannot.
    fn allocate(&self, how: Allocation, offset: u64, bytes: u64) -> Result<()>;

    /// The first offset at or after `offset` with such content; `None` beyond the last of it.
    fn seek(&self, content: Content, offset: u64) -> Result<Option<u64>>;

    /// Length, space and times.
    fn stat(&self) -> Result<FileStat>;

    /// Sets the modification time.
    fn set_mtime(&self, mtime: Timestamp) -> Result<()>;

    /// Makes what was written durable: the data and what is needed to read them, or without
    /// `data_only` also the times. Not the name of the file.
    fn sync(&self, data_only: bool) -> Result<()>;

    /// The descriptor, for `sendfile` and the like; `None` if the file is not one of this machine's.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The same file once more, open for reading alone and with a position of its own.
    ///
    /// # Errors
    /// [`Errno::OPNOTSUPP`] if the file is not one of this machine's.
    fn open_to_read(&self) -> Result<OwnedFd>;

    /// The same, open for reading and writing.
    ///
    /// # Errors
    /// As [`File::open_to_read`].
    fn open_to_write(&self) -> Result<OwnedFd>;

    /// Writes all of `data` behind everything that is there at that moment, whoever else writes; gives where.
    ///
    /// # Errors
    /// [`Errno::OPNOTSUPP`] if the file is not one of this machine's; [`Errno::NOSPC`] if only a part of it was
    /// written, which stays; others.
    fn append(&self, data: &[u8]) -> Result<u64>;

    /// Whether anybody else on this machine has the file open: by another open than this one.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if that is not known of any file of this disk.
    fn is_open_elsewhere(&self) -> Result<bool>;

    /// Reads until the buffer is full or the file ends; gives the number of bytes read.
    fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset.saturating_add(done as u64))? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    ///
    /// A part of the data may have been written then.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write_at(&data[done..], offset.saturating_add(done as u64))? {
                0 => return Err(Errno::IO),
                bytes => done += bytes,
            }
        }
        Ok(())
    }
}
