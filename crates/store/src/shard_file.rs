//! One shard's data: a plain sparse file. Owns reading, writing, space and times of the file, and
//! the promise that a failed sync is never retried into success. It knows nothing of chunks: its
//! offsets are those of the file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use azekura_proto::Timestamp;
use rustix::fs::{FallocateFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};

use crate::error::StoreError;
use crate::free_space::Draw;
use crate::shard_path::ShardKey;
use crate::shards::ShardDir;

/// What the file system below says about a shard's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardStat {
    /// Length in bytes.
    pub bytes: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Time of the last change of the data.
    pub mtime: Timestamp,
    /// Time of the last change of the file.
    pub ctime: Timestamp,
}

impl From<&Stat> for ShardStat {
    fn from(stat: &Stat) -> Self {
        let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: nanos as u32 };
        Self {
            bytes: stat.st_size as u64,
            blocks_512: stat.st_blocks as u64,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// An open shard. All methods may be called from any number of threads.
pub struct ShardFile {
    dir: Arc<ShardDir>,
    key: ShardKey,
    fd: OwnedFd,
    /// How many names of its directory must be synced so that its own name is.
    names: u64,
}

impl ShardFile {
    pub(crate) fn new(dir: Arc<ShardDir>, key: ShardKey, fd: OwnedFd, names: u64) -> Self {
        Self { dir, key, fd, names }
    }

    pub(crate) fn key(&self) -> ShardKey {
        self.key
    }

    /// Reads into `buffer` from `offset`; gives the number of bytes read, which is short of the
    /// buffer only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.saturating_add(done as u64);
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut buffer[done..], at)) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) => return Err(self.failed("read", error)),
            }
        }
        Ok(done)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] and others; a part of the data may have been written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), StoreError> {
        self.ensure_room(offset, data.len() as u64)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset.saturating_add(done as u64);
            match retry_on_intr(|| rustix::io::pwrite(&self.fd, &data[done..], at)) {
                Ok(0) => return Err(self.failed("write", Errno::IO)),
                Ok(bytes) => done += bytes,
                Err(error) => return Err(self.failed("write", error)),
            }
        }
        Ok(())
    }

    /// Length, space and times.
    pub fn stat(&self) -> Result<ShardStat, StoreError> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|error| self.failed("stat", error))?;
        Ok(ShardStat::from(&stat))
    }

    /// Sets the length to `bytes` bytes. The modification time changes, also if the length does
    /// not.
    pub fn truncate(&self, bytes: u64) -> Result<(), StoreError> {
        retry_on_intr(|| rustix::fs::ftruncate(&self.fd, bytes))
            .map_err(|error| self.failed("truncate", error))
    }

    /// Takes space on the disk for a range, so that writes to it cannot fail for want of space.
    /// Without `keep_size` the file grows to the end of the range.
    pub fn allocate(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        self.ensure_room(offset, bytes)?;
        let mode = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.fallocate(mode, offset, bytes).map_err(|error| self.failed("allocate space", error))
    }

    /// Gives the space of a range back; it reads as zeros then. The length stays.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.fallocate(mode, offset, bytes) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, bytes),
            result => result.map_err(|error| self.failed("punch a hole", error)),
        }
    }

    /// Makes a range read as zeros and keeps space for it. Without `keep_size` the file grows to
    /// the end of the range.
    pub fn zero_range(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        self.ensure_room(offset, bytes)?;
        let keep = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        match self.fallocate(FallocateFlags::ZERO_RANGE | keep, offset, bytes) {
            Err(Errno::OPNOTSUPP) => {}
            result => return result.map_err(|error| self.failed("zero a range", error)),
        }
        self.punch_hole(offset, bytes)?;
        match self.fallocate(keep, offset, bytes) {
            Err(Errno::OPNOTSUPP) => {
                let end = offset.saturating_add(bytes);
                if !keep_size && end > self.stat()?.bytes { self.truncate(end) } else { Ok(()) }
            }
            result => result.map_err(|error| self.failed("zero a range", error)),
        }
    }

    /// The first offset at or after `offset` that has data; `None` if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, StoreError> {
        self.seek(SeekFrom::Data(offset))
    }

    /// The first offset at or after `offset` without data, the end of the file at the latest;
    /// `None` if `offset` is at the end of the file or beyond.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, StoreError> {
        self.seek(SeekFrom::Hole(offset))
    }

    /// Sets the modification time.
    pub fn set_mtime(&self, mtime: Timestamp) -> Result<(), StoreError> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() },
        };
        rustix::fs::futimens(&self.fd, &times).map_err(|error| self.failed("set the time", error))
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
        let result = retry_on_intr(|| {
            if data_only { rustix::fs::fdatasync(&self.fd) } else { rustix::fs::fsync(&self.fd) }
        })
        .map_err(|error| self.failed("sync", error))
        .and_then(|()| self.dir.sync_names(self.key.0, self.names));
        if let Err(error) = &result {
            tracing::error!(%error, "a sync failed");
            self.dir.set_failed(self.key);
        }
        result
    }

    /// The file's descriptor, for `sendfile` and the like. Its own position has no meaning.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn fallocate(&self, mode: FallocateFlags, offset: u64, bytes: u64) -> Result<(), Errno> {
        retry_on_intr(|| rustix::fs::fallocate(&self.fd, mode, offset, bytes))
    }

    fn seek(&self, to: SeekFrom) -> Result<Option<u64>, StoreError> {
        match rustix::fs::seek(&self.fd, to) {
            Ok(offset) => Ok(Some(offset)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(self.failed("seek", error)),
        }
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
