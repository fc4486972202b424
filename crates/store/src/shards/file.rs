//! One shard's data: a plain sparse file. Owns reading, writing, space and times of the file, who may
//! change its length at a time, what is told of data that are lost, and the promise that a failed sync is never retried into success. It
//! knows nothing of chunks: its offsets are those of the file.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura_proto::Timestamp;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use rustix::io::Errno;

use super::lengths::Noted;
use super::names::ShardDir;
use super::path::ShardKey;
use crate::disk::{Allocation, Content, File, FileStat};
use crate::error::StoreError;
use crate::free_space::Draw;
use crate::kv::batch::Batch;

/// An open shard. All methods may be called from any number of threads.
pub struct ShardFile {
    dir: Arc<ShardDir>,
    key: ShardKey,
    file: Box<dyn File>,
    /// How many names of its directory must be synced so that its own name is.
    names: u64,
    /// Taken alone by whoever looks at the length and then writes by it, else shared.
    growth: RwLock<Growth>,
    noted: Mutex<NotedHere>,
    /// How long the file must be at least, as `noted` says; read without its lock.
    noted_bytes: AtomicU64,
    /// Whether it is on the list of those that have grown.
    is_listed: AtomicBool,
    /// Whether it is shorter than it must be: it takes no data behind its end then, since what is
    /// lost would read as zeros.
    is_short: AtomicBool,
}

/// What is on record of a shard that is open.
#[derive(Default)]
struct NotedHere {
    noted: Noted,
    was_removed: bool,
    /// How often the length was set.
    cuts: u64,
}

/// What is known of how the file became as long as it is.
#[derive(Default)]
struct Growth {
    /// The token of the last extension: one that arrives twice is known again.
    last_extension: Option<u64>,
}

impl ShardFile {
    /// `noted`: what is on record of it.
    pub(super) fn new(
        dir: Arc<ShardDir>,
        key: ShardKey,
        file: Box<dyn File>,
        names: u64,
        noted: Noted,
    ) -> Self {
        let is_short =
            noted.bytes() > 0 && file.stat().is_ok_and(|stat| stat.bytes < noted.bytes());
        Self {
            dir,
            key,
            file,
            names,
            growth: RwLock::default(),
            noted: Mutex::new(NotedHere { noted, ..NotedHere::default() }),
            noted_bytes: AtomicU64::new(noted.bytes()),
            is_listed: AtomicBool::new(false),
            is_short: AtomicBool::new(is_short),
        }
    }

    pub(crate) fn key(&self) -> ShardKey {
        self.key
    }

    /// Reads into `buffer` from `offset`; gives the number of bytes read, which is short of the
    /// buffer only at the end of the file.
    ///
    /// # Errors
    /// [`StoreError::Lost`] if some of these bytes were written and are gone; and others.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        loop {
            let read = self.file.read_full_at(buffer, offset);
            let read = read.map_err(|error| self.failed("read", error))?;
            if read == buffer.len() || !self.seems_short(offset.saturating_add(read as u64))? {
                return Ok(read);
            }
        }
    }

    /// How many bytes of a range are there: fewer only at the end of the file.
    ///
    /// # Errors
    /// As [`ShardFile::read_at`].
    pub fn readable(&self, offset: u64, bytes: u64) -> Result<u64, StoreError> {
        loop {
            let there = bytes.min(self.raw_stat()?.bytes.saturating_sub(offset));
            if there == bytes || !self.seems_short(offset.saturating_add(there))? {
                return Ok(there);
            }
        }
    }

    /// A read has found the end of the file at `end` or before. Whether it is to be read anew, since the
    /// file has changed meanwhile.
    fn seems_short(&self, end: u64) -> Result<bool, StoreError> {
        if self.noted_bytes.load(Ordering::Acquire) <= end {
            return Ok(false);
        }
        self.refuse_if_short().map(|()| true)
    }

    /// Finds out whether data are lost, while nobody makes the file shorter on purpose.
    #[cold]
    pub(super) fn refuse_if_short(&self) -> Result<(), StoreError> {
        let _alone = self.dir.lengths.order.write();
        let (found, noted) = (self.raw_stat()?.bytes, self.noted_bytes.load(Ordering::Acquire));
        if found >= noted {
            return Ok(());
        }
        self.is_short.store(true, Ordering::Release);
        Err(self.dir.lost(self.key, noted, found))
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
        let end = offset.saturating_add(data.len() as u64);
        self.refuse_to_hide(end)?;
        self.file.write_all_at(data, offset).map_err(|error| self.failed("write", error))?;
        self.note_growth(end);
        Ok(())
    }

    /// Refuses to make a file longer whose end is lost.
    fn refuse_to_hide(&self, end: u64) -> Result<(), StoreError> {
        if self.is_short.load(Ordering::Acquire) && end > self.raw_stat()?.bytes {
            self.refuse_if_short()?;
        }
        Ok(())
    }

    /// Has the new length of the file put on record soon, if it has one.
    fn note_growth(&self, end: u64) {
        if end > self.noted_bytes.load(Ordering::Relaxed)
            && !self.is_listed.load(Ordering::Relaxed)
            && !self.is_listed.swap(true, Ordering::AcqRel)
        {
            self.dir.lengths.push_grown(self.key);
        }
    }

    /// Adds to a batch what is to be on record of the file. The caller has `order` alone.
    pub(super) fn note_written(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let mut here = self.noted.lock();
        self.is_listed.store(false, Ordering::Release);
        let bytes = self.raw_stat()?.bytes;
        if !here.was_removed && bytes > here.noted.bytes() {
            here.noted.written = bytes;
            self.dir.lengths.put(batch, self.key, here.noted);
            self.noted_bytes.store(bytes, Ordering::Release);
        }
        Ok(())
    }

    /// Puts on record that so many bytes are durable, unless the file has been cut since there were so many
    /// cuts: what is there then may be other bytes.
    fn note_synced(&self, bytes: u64, cuts: u64) -> Result<(), StoreError> {
        let lengths = &self.dir.lengths;
        let _shared = lengths.order.read();
        let mut here = self.noted.lock();
        let bytes = bytes.min(self.raw_stat()?.bytes);
        if here.was_removed || here.cuts != cuts || bytes <= here.noted.synced {
            return Ok(());
        }
        let noted = Noted { synced: bytes, written: here.noted.written.max(bytes) };
        let mut batch = Batch::new();
        lengths.put(&mut batch, self.key, noted);
        lengths.commit(batch)?;
        here.noted = noted;
        self.noted_bytes.store(noted.bytes(), Ordering::Release);
        Ok(())
    }

    /// The file is about to be removed. The caller has a share of `order`.
    pub(super) fn note_removal(&self) {
        self.noted.lock().was_removed = true;
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
        self.refuse_to_hide(to)?;
        // What is to be written there next would leave a hole if it found no room.
        self.ensure_room(from, to.saturating_sub(from))?;
        self.grow(to)?;
        held.growth.last_extension = Some(token);
        Ok(true)
    }

    /// Makes the file so long, unless it is longer by now: by a write past this store.
    fn grow(&self, to: u64) -> Result<(), StoreError> {
        let bytes = self.raw_stat()?.bytes;
        if to <= bytes {
            return Ok(());
        }
        match self.file.allocate(Allocation::Extend, bytes, to - bytes) {
            Err(Errno::OPNOTSUPP) => return self.truncate(to),
            done => done.map_err(|error| self.failed("make longer", error))?,
        }
        self.note_growth(to);
        Ok(())
    }

    /// Length, space and times. What is lost of the file counts as if it were there.
    pub fn stat(&self) -> Result<FileStat, StoreError> {
        let stat = self.raw_stat()?;
        Ok(FileStat { bytes: stat.bytes.max(self.noted_bytes.load(Ordering::Acquire)), ..stat })
    }

    fn raw_stat(&self) -> Result<FileStat, StoreError> {
        self.file.stat().map_err(|error| self.failed("stat", error))
    }

    /// Sets the length to `bytes` bytes. The modification time changes, also if the length does
    /// not.
    ///
    /// # Errors
    /// [`StoreError::Lost`] if what is lost would read as zeros then; and others.
    pub fn truncate(&self, bytes: u64) -> Result<(), StoreError> {
        self.refuse_to_hide(bytes)?;
        let lengths = &self.dir.lengths;
        let shared = lengths.order.read();
        let mut here = self.noted.lock();
        here.cuts += 1;
        if bytes < here.noted.bytes() && !here.was_removed {
            here.noted = lengths.lower(self.key, here.noted, bytes)?;
            self.noted_bytes.store(here.noted.bytes(), Ordering::Release);
            self.is_short.store(false, Ordering::Release);
        }
        self.file.truncate(bytes).map_err(|error| self.failed("truncate", error))?;
        drop((here, shared));
        self.note_growth(bytes);
        Ok(())
    }

    /// Takes space on the disk for a range, so that writes to it cannot fail for want of space.
    /// Without `keep_size` the file grows to the end of the range.
    pub fn allocate(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        self.ensure_room(offset, bytes)?;
        let how = if keep_size { Allocation::KeepLength } else { Allocation::Extend };
        if keep_size {
            let done = self.file.allocate(how, offset, bytes);
            return done.map_err(|error| self.failed("allocate space", error));
        }
        let end = offset.saturating_add(bytes);
        // An extension that has looked at the length would cut off what this makes.
        let _shared = self.growth.read();
        self.refuse_to_hide(end)?;
        let done = self.file.allocate(how, offset, bytes);
        done.map_err(|error| self.failed("allocate space", error))?;
        self.note_growth(end);
        Ok(())
    }

    /// Gives the space of a range back; it reads as zeros then. The length stays.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let _shared = self.growth.read();
        self.punch(offset, bytes)
    }

    /// The same for who has a share of `growth`.
    fn punch(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        match self.file.allocate(Allocation::Punch, offset, bytes) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, bytes),
            result => result.map_err(|error| self.failed("punch a hole", error)),
        }
    }

    /// Makes a range read as zeros and keeps space for it. Without `keep_size` the file grows to
    /// the end of the range.
    pub fn zero_range(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        self.ensure_room(offset, bytes)?;
        // As for [`ShardFile::allocate`].
        let _shared = self.growth.read();
        if keep_size {
            return self.make_zeros(offset, bytes, true);
        }
        let end = offset.saturating_add(bytes);
        self.refuse_to_hide(end)?;
        self.make_zeros(offset, bytes, false)?;
        self.note_growth(end);
        Ok(())
    }

    fn make_zeros(&self, offset: u64, bytes: u64, keep_size: bool) -> Result<(), StoreError> {
        let (zero, take) = if keep_size {
            (Allocation::ZeroKeepLength, Allocation::KeepLength)
        } else {
            (Allocation::ZeroExtend, Allocation::Extend)
        };
        match self.file.allocate(zero, offset, bytes) {
            Err(Errno::OPNOTSUPP) => {}
            result => return result.map_err(|error| self.failed("zero a range", error)),
        }
        self.punch(offset, bytes)?;
        match self.file.allocate(take, offset, bytes) {
            Err(Errno::OPNOTSUPP) => {
                let end = offset.saturating_add(bytes);
                if !keep_size && end > self.raw_stat()?.bytes { self.truncate(end) } else { Ok(()) }
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
        let cuts = self.noted.lock().cuts;
        let bytes = self.raw_stat()?.bytes;
        let synced = self.file.sync(data_only).map_err(|error| self.failed("sync", error));
        let result = synced.and_then(|()| self.dir.sync_names(self.key.0, self.names));
        if let Err(error) = &result {
            tracing::error!(%error, "a sync failed");
            self.dir.set_failed(self.key);
        }
        result.and_then(|()| self.note_synced(bytes, cuts))
    }

    /// The file's descriptor, for `sendfile` and the like; its own position has no meaning. `None` if
    /// the file is on a simulated disk.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// The file once more, open for reading alone, for a reader on this machine.
    pub fn open_to_read(&self) -> Result<OwnedFd, StoreError> {
        self.file.open_to_read().map_err(|error| self.failed("open", error))
    }

    /// The file once more, open for reading and writing, for a program on this machine. `None` while its end is
    /// lost, which a write could hide, or the disk is so full that writes have to be looked at.
    pub fn open_to_write(&self) -> Result<Option<OwnedFd>, StoreError> {
        if self.is_short.load(Ordering::Acquire) || !self.dir.gauge.let_write()? {
            return Ok(None);
        }
        self.file.open_to_write().map(Some).map_err(|error| self.failed("open", error))
    }

    /// Writes all of `data` behind everything that is there at that moment, whoever else writes, also past this
    /// store; gives where.
    ///
    /// # Errors
    /// As [`ShardFile::write_at`]; what was written of a part stays.
    pub fn append(&self, data: &[u8]) -> Result<u64, StoreError> {
        let _shared = self.growth.read();
        self.refuse_to_hide(u64::MAX)?;
        self.ensure_room(self.raw_stat()?.bytes, data.len() as u64)?;
        let offset = self.file.append(data).map_err(|error| self.failed("append", error))?;
        self.note_growth(offset + data.len() as u64);
        Ok(offset)
    }

    /// Has the length that it has by now put on record soon: it was written to past this store.
    pub fn note_length(&self) -> Result<(), StoreError> {
        let bytes = self.raw_stat()?.bytes;
        self.note_growth(bytes);
        Ok(())
    }

    /// Whether anybody else on this machine has the file open, as far as the disk tells: `None` if it tells
    /// of no file. Where it could tell and does not, the answer is yes.
    pub fn is_open_elsewhere(&self) -> Option<bool> {
        match self.file.is_open_elsewhere() {
            Ok(is_open) => Some(is_open),
            Err(Errno::INVAL) => None,
            Err(_) => Some(true),
        }
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
        let stat = self.raw_stat()?;
        Ok(stat.blocks_512.saturating_mul(512) >= end.max(stat.bytes))
    }

    /// Stands in for punching where the file system below cannot.
    fn write_zeros(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        const BLOCK: usize = 4 * 1024;
        let end = offset.saturating_add(bytes).min(self.raw_stat()?.bytes);
        let mut at = offset;
        while let Some(data) = self.seek_data(at)?.filter(|data| *data < end) {
            let hole = self.seek_hole(data)?.unwrap_or(end).min(end);
            at = data;
            while at < hole {
                let block = (hole - at).min(BLOCK as u64) as usize;
                self.ensure_room(at, block as u64)?;
                self.put(&[0u8; BLOCK][..block], at)?;
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
        self.shard.raw_stat().map(|stat| stat.bytes)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// As [`ShardFile::write_at`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), StoreError> {
        self.shard.ensure_room(offset, data.len() as u64)?;
        self.shard.put(data, offset)
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
