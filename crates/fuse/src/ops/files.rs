//! Open files: reading, writing, and the rest that works on a handle.

use std::sync::atomic::Ordering;

use azekura_posix::{Allocation, Attr, Errno, LockKind, OFlags, OpenFile, SeekTo};

use crate::answer::{self, Result};
use crate::background::Stale;
use crate::cache::CacheMode;
use crate::convert;
use crate::file_handle::FileHandle;
use crate::front_end::FrontEnd;
use crate::kernel::{CopyRange, Header, OpenFlags, Replier, Write, with_reply_buffer};

/// What a copy of the older form can tell at most, in bytes.
const NARROW_COPY_BYTES: u64 = 1 << 30;

impl FrontEnd {
    pub(crate) fn open(&self, header: &Header<'_>, flags: u32) -> Result<(u64, OpenFlags)> {
        let oid = self.object(header.node)?;
        let wanted = convert::open_flags(flags);
        let (attr, file) = self.fs.open(&self.caller(header), oid, wanted)?;
        if wanted.contains(OFlags::TRUNC) {
            self.changes.add();
        }
        Ok(self.register(&attr, file, flags))
    }

    /// Takes an open file into the table; says how the kernel has to treat it.
    pub(crate) fn register(&self, attr: &Attr, file: OpenFile, flags: u32) -> (u64, OpenFlags) {
        let open_flags = match self.cache {
            CacheMode::None => OpenFlags::DIRECT_IO.with(OpenFlags::PARALLEL_DIRECT_WRITES),
            // The kernel's idea of where the file ends may be old; and what it would put into its
            // pages might lie elsewhere.
            CacheMode::Auto if convert::appends(flags) && file.is_writable() => {
                OpenFlags::DIRECT_IO
            }
            CacheMode::Auto if self.versions.opened(attr) => OpenFlags::KEEP_CACHE,
            CacheMode::Auto => OpenFlags::default(),
        };
        (self.files.insert(FileHandle::new(file)), open_flags)
    }

    pub(crate) fn read(&self, replier: Replier, fh: u64, offset: u64, size: u32) {
        let file = match self.files.get(fh) {
            Ok(file) => file,
            Err(errno) => return replier.error(errno),
        };
        with_reply_buffer(size as usize, |buffer| {
            let result = self.fs.read(&file.open, offset, buffer);
            answer::with(replier, result, |replier, count| replier.data(&buffer[..count]));
        });
    }

    pub(crate) fn write(&self, header: &Header<'_>, replier: Replier, write: &Write<'_>) {
        // What comes from the page cache has its place, whatever the flags say.
        let appends = convert::appends(write.flags) && !write.cached;
        let result = self.change(|| {
            let file = self.files.get(write.fh)?;
            if write.kill_suidgid && file.take_watch() {
                self.fs.drop_set_id(file.open.oid())?;
            }
            if appends {
                let landed = self.fs.append(&file.open, write.data)?;
                return Ok((landed, write.data.len()));
            }
            let count = self.fs.write(&file.open, write.offset, write.data)?;
            Ok((write.offset, count))
        });
        let landed = result.as_ref().map_or(write.offset, |(landed, _)| *landed);
        answer::with(replier, result, |replier, (_, count)| replier.written(count as u32));
        if landed != write.offset {
            // The kernel has taken its own idea of the end for the place, and the size from it.
            let offset = landed.min(write.offset);
            self.drops.send(Stale { node: header.node, offset });
        }
    }

    /// One descriptor of the file is closed: what was written arrives, and the ranges that its
    /// process has locked are free.
    pub(crate) fn flush(&self, header: &Header<'_>, fh: u64, lock_owner: u64) -> Result<()> {
        let flushed = self.files.get(fh).and_then(|file| self.fs.flush(&file.open));
        if self.has_ranges.load(Ordering::Relaxed) {
            self.fs.unlock_owner(self.object(header.node)?, LockKind::Range, lock_owner)?;
        }
        flushed
    }

    /// The last descriptor is closed; `flock_owner` if it was locked as a whole.
    pub(crate) fn release(&self, fh: u64, flock_owner: Option<u64>) -> Result<()> {
        let Some(file) = self.files.remove(fh) else { return Err(Errno::BADF) };
        match flock_owner {
            Some(owner) => self.fs.unlock_owner(file.open.oid(), LockKind::Whole, owner),
            None => Ok(()),
        }
    }

    pub(crate) fn fsync(&self, fh: u64, data_only: bool) -> Result<()> {
        let file = self.files.get(fh)?;
        if data_only { self.fs.fdatasync(&file.open) } else { self.fs.fsync(&file.open) }
    }

    /// `mode` as of `fallocate`.
    pub(crate) fn fallocate(&self, fh: u64, offset: u64, length: u64, mode: u32) -> Result<()> {
        const KEEP_SIZE: u32 = 0x01;
        const PUNCH_HOLE: u32 = 0x02;
        const ZERO_RANGE: u32 = 0x10;
        const PUNCH_AND_KEEP: u32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_AND_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
        let what = match mode {
            0 => Allocation::Grow,
            KEEP_SIZE => Allocation::KeepSize,
            PUNCH_AND_KEEP => Allocation::PunchHole,
            ZERO_RANGE => Allocation::Zero,
            ZERO_AND_KEEP => Allocation::ZeroKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let file = self.files.get(fh)?;
        self.change(|| self.fs.allocate(&file.open, offset, length, what))
    }

    /// `whence` as of `lseek`; the kernel sees to the others by itself.
    pub(crate) fn seek(&self, fh: u64, offset: u64, whence: u32) -> Result<u64> {
        const DATA: u32 = 3;
        const HOLE: u32 = 4;
        let to = match whence {
            DATA => SeekTo::Data,
            HOLE => SeekTo::Hole,
            _ => return Err(Errno::INVAL),
        };
        self.fs.seek(&self.files.get(fh)?.open, offset, to)
    }

    /// Copies between two open files.
    pub(crate) fn copy(&self, copy: &CopyRange) -> Result<u64> {
        if copy.flags != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.files.get(copy.fh_in)?, self.files.get(copy.fh_out)?);
        let length = if copy.wide { copy.length } else { copy.length.min(NARROW_COPY_BYTES) };
        self.change(|| {
            self.fs.copy_range(&from.open, copy.offset_in, &to.open, copy.offset_out, length)
        })
    }
}
