//! One shard's data: a plain sparse file. Owns reading, writing, space and times of the file, who may
//! change its length at a time, and the promise that a failed sync is never retried into success. It
//! knows nothing of chunks: its offsets are those of the file.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use azekura_proto::Timestamp;
use parking_lot::{RwLock, RwLockWriteGuard};
use rustix::io::Errno;

use super::names::ShardDir;
use super::path::ShardKey;
use crate::disk::{Allocation, Content, File, FileStat};
use crate::error::StoreError;
use crate::free_space::Draw;

/// An open shard. All methods may be called from any number of threads.
pub struct ShardFile {
    dir: Arc<ShardDir>,
    key: ShardKey,
    file: Box<dyn File>,
    /// How many names of its directory must be synced so that its own name is.
    names: u64,
    /// Taken alone by whoever looks at the length and then writes by it, else shared.
    growth: RwLock<Growth>,
}

/// What is known of how the file became as long as it is.
#[derive(Default)]
struct Growth {
    /// The token of the last extension: one that arrives twice is known again.
    last_extension: Option<u64>,
}

impl ShardFile {
    pub(crate) fn new(dir: Arc<ShardDir>, key: ShardKey, file: Box<dyn File>, names: u64) -> Self {
        Self { dir, key, file, names, growth: RwLock::default() }
    }

    pub(crate) fn key(&self) -> ShardKey {
        self.key
    }

    /// Reads into `buffer` from `offset`; gives the number of bytes read, which is short of the
    /// buffer only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        self.file.read_full_at(buffer, offset).map_err(|error| self.failed("read", error))
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] and others; a part of the data may have been written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), StoreError> {
        self.ensure_room(offset, data.len() as u64)?;
        let _shared = self.growth.read();
        self.put(data, offset)
    }

    fn put(&self, data: &[u8], offset: u64) -> Result<(), StoreError> {
        self.file.write_all_at(data, offset).map_err(|error| self.failed("write", error))
    }

    /// Keeps all others from writing, so that the length stays what it is. Not to be held while
    /// waiting for anybody.
    pub fn hold(&self) -> HeldShard<'_> {
        HeldShard { growth: self.growth.write(), shard: self }
    }

    /// Makes the file `to` bytes long if it has not become longer than `from`. Whether that is so, now
    /// or because the same extension, known by its token, was made before.
    pub fn extend(&self, from: u64, to: u64, token: u64) -> Result<bool, StoreError> {
        let mut held = self.hold();
        if held.growth.last_extension == Some(token) {
            return Ok(true);
        }
        if held.bytes()? > from {
            return Ok(false);
        }
        self.truncate(to)?;
        held.growth.last_extension = Some(token);
        Ok(true)
    }

    /// Length, space and times.
    pub fn stat(&self) -> Result<FileStat, StoreError> {
        self.file.stat().map_err(|error| self.failed("stat", error))
    }

    /// Sets the length to `bytes` bytes. The modification time changes, also if the length does
    /// not.
    pub fn truncate(&self, bytes: u64) -> Result<(), StoreError> {
        self.file.truncate(bytes).map_err(|error| self.failed("truncate", error))
    }

    /// Takes space on the disk for a range, so that writes to it cannot fail for want of space.
    /// Without `keep_size` the file grows to the end of the range.
    pub fn allocate(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        self.ensure_room(offset, bytes)?;
        let how = if keep_size { Allocation::KeepLength } else { Allocation::Extend };
        let done = self.file.allocate(how, offset, bytes);
        done.map_err(|error| self.failed("allocate space", error))
    }

    /// Gives the space of a range back; it reads as zeros then. The length stays.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        match self.file.allocate(Allocation::Punch, offset, bytes) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, bytes),
            result => result.map_err(|error| self.failed("punch a hole", error)),
        }
    }

    /// Makes a range read as zeros and keeps space for it. Without `keep_size` the file grows to
    /// the end of the range.
    pub fn zero_range(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        self.ensure_room(offset, bytes)?;
        let (zero, take) = if keep_size {
            (Allocation::ZeroKeepLength, Allocation::KeepLength)
        } else {
            (Allocation::ZeroExtend, Allocation::Extend)
        };
        match self.file.allocate(zero, offset, bytes) {
            Err(Errno::OPNOTSUPP) => {}
            result => return result.map_err(|error| self.failed("zero a range", error)),
        }
        self.punch_hole(offset, bytes)?;
        match self.file.allocate(take, offset, bytes) {
            Err(Errno::OPNOTSUPP) => {
                let end = offset.saturating_add(bytes);
                if !keep_size && end > self.stat()?.bytes { self.truncate(end) } else { Ok(()) }
            }
            result => result.map_err(|error| self.failed("zero a range", error)),
        }
    }

    /// The first offset at or after `offset` that has data; `None` if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, StoreError> {
        self.seek(Content::Data, offset)
    }

    /// The first offset at or after `offset` without data, the end of the file at the latest;
    /// `None` if `offset` is at the end of the file or beyond.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, StoreError> {
        self.seek(Content::Hole, offset)
    }

    /// Sets the modification time.
    pub fn set_mtime(&self, mtime: Timestamp) -> Result<(), StoreError> {
        self.file.set_mtime(mtime).map_err(|error| self.failed("set the time", error))
    }

    /// Brings everything written to stable storage: the data and what is needed to read them, or
    /// without `data_only` also the times. After a failure every later sync of the shard fails
    /// too, until the shard is removed: what was lost then does not come back.
    pub fn sync(&self, data_only: bool) -> Result<(), StoreError> {
        if self.dir.has_failed(self.key) {
            return Err(StoreError::Io {
                path: self.dir.path_of(self.key),
                what: "sync",
                source: io::Error::other(
                    "an earlier sync failed, so data are lost; check the disk and write anew",
                ),
            });
        }
        let synced = self.file.sync(data_only).map_err(|error| self.failed("sync", error));
        let result = synced.and_then(|()| self.dir.sync_names(self.key.0, self.names));
        if let Err(error) = &result {
            tracing::error!(%error, "a sync failed");
            self.dir.set_failed(self.key);
        }
        result
    }

    /// The file's descriptor, for `sendfile` and the like; its own position has no meaning. `None` if
    /// the file is on a simulated disk.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    fn seek(&self, content: Content, offset: u64) -> Result<Option<u64>, StoreError> {
        let found = self.file.seek(content, offset).map_err(|error| self.failed("seek", error))?;
        assert!(found.is_none_or(|found| found >= offset), "the disk sought backwards");
        Ok(found)
    }

    /// Refuses a range that would take from the reserve. Space that the file has already may be
    /// written also on a full disk.
    fn ensure_room(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        match self.dir.gauge.draw(bytes, Draw::Growth) {
            Err(StoreError::NoSpace { .. }) if self.is_allocated(offset, bytes)? => Ok(()),
            Err(StoreError::NoSpace { .. }) => Err(self.failed("write", Errno::NOSPC)),
            result => result,
        }
    }

    /// Whether the range has its space. Allocated but never written space is not told apart from
    /// holes by the system, so there the space of the whole file has to do.
    fn is_allocated(&self, offset: u64, bytes: u64) -> Result<bool, StoreError> {
        let end = offset.saturating_add(bytes);
        if self.seek_hole(offset)?.is_some_and(|hole| hole >= end) {
            return Ok(true);
        }
        let stat = self.stat()?;
        Ok(stat.blocks_512.saturating_mul(512) >= end.max(stat.bytes))
    }

    /// Stands in for punching where the file system below cannot.
    fn write_zeros(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        const BLOCK: usize = 4 * 1024;
        let end = offset.saturating_add(bytes).min(self.stat()?.bytes);
        let mut at = offset;
        while let Some(data) = self.seek_data(at)?.filter(|data| *data < end) {
            let hole = self.seek_hole(data)?.unwrap_or(end).min(end);
            at = data;
            while at < hole {
                let block = (hole - at).min(BLOCK as u64) as usize;
                self.write_at(&[0u8; BLOCK][..block], at)?;
                at += block as u64;
            }
        }
        Ok(())
    }

    fn failed(&self, what: &'static str, error: Errno) -> StoreError {
        StoreError::system(&self.dir.path_of(self.key), what, error)
    }
}

/// A shard that nobody else writes to.
pub struct HeldShard<'f> {
    growth: RwLockWriteGuard<'f, Growth>,
    shard: &'f ShardFile,
}

impl HeldShard<'_> {
    /// Length in bytes.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        self.shard.stat().map(|stat| stat.bytes)
    }

    /// Writes all of `data` at the end of the file, which the caller knows; or nothing, if that fails.
    ///
    /// # Errors
    /// As [`ShardFile::write_at`].
    pub fn write_at_end(&self, data: &[u8], end: u64) -> Result<(), StoreError> {
        self.shard.ensure_room(end, data.len() as u64)?;
        self.shard.put(data, end).inspect_err(|_| {
            if let Err(error) = self.shard.truncate(end) {
                tracing::error!(%error, "a part of a failed write stays");
            }
        })
    }
}
