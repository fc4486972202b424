//! Open files: reading, writing, and the rest that works on a handle.

use std::sync::atomic::Ordering;

use azekura_posix::{Allocation, Attr, Errno, LockKind, OFlags, OpenFile, Privileges, SeekTo};

use crate::answer::{self, Result};
use crate::background::Stale;
use crate::cache::{CacheMode, Kept};
use crate::convert;
use crate::file_handle::FileHandle;
use crate::front_end::FrontEnd;
use crate::kernel::{CopyRange, Header, OpenFlags, Replier, Write};

/// What a copy of the older form can tell at most, in bytes.
const NARROW_COPY_BYTES: u64 = 1 << 30;

impl FrontEnd {
    pub(crate) fn open(&self, header: &Header<'_>, flags: u32) -> Result<(u64, OpenFlags)> {
        let oid = self.object(header.node)?;
        let wanted = convert::open_flags(flags);
        let (attr, file) = self.fs.open_looked_up(&self.caller(header), oid, wanted)?;
        if wanted.contains(OFlags::TRUNC) {
            self.changes.add();
        }
        let believes = self.cache == CacheMode::Auto && !wanted.contains(OFlags::TRUNC);
        if file.has_lost_bits() || (believes && !self.told.has(&attr)) {
            // The answer has no room for attributes, and what is opened is not to be taken for what it was
            // when it was looked at.
            // Noted first: a look that is being answered from a listing is compared with it.
            if self.told.note(&attr) {
                self.drop_pages(oid);
            }
            self.drop_attributes(header.node);
        }
        self.register(&attr, file, flags, wanted.contains(OFlags::TRUNC))
    }

    /// Takes an open file into the table; says how the kernel has to treat it.
    pub(crate) fn register(
        &self,
        attr: &Attr,
        file: OpenFile,
        flags: u32,
        is_new: bool,
    ) -> Result<(u64, OpenFlags)> {
        let opened = match self.cache {
            CacheMode::None => None,
            CacheMode::Auto => Some(self.way_of(attr, &file, flags, is_new)?),
        };
        let mut drops = None;
        let open_flags = match opened.as_ref().map(|opened| opened.lent()) {
            None => OpenFlags::DIRECT_IO.with(OpenFlags::PARALLEL_DIRECT_WRITES),
            Some(Some(lent)) => OpenFlags::passthrough(lent),
            // The kernel's idea of where the file ends may be old; and what it would put into its
            // pages might lie elsewhere.
            Some(None) if convert::appends(flags) && file.is_writable() => OpenFlags::DIRECT_IO,
            // It has no pages of an empty file, and need not be told so next time.
            Some(None) if is_new => OpenFlags::default(),
            Some(None) => match self.versions.opened(attr, self.now()) {
                Kept::Keep => OpenFlags::KEEP_CACHE,
                Kept::Drop => OpenFlags::default(),
                Kept::DropFor(version) => {
                    drops = Some(version);
                    OpenFlags::default()
                }
            },
        };
        let handle = FileHandle::new(file, Privileges::of(attr), self.now(), drops, opened);
        Ok((self.files.insert(handle), open_flags))
    }

    pub(crate) fn read(&self, replier: Replier, fh: u64, offset: u64, size: u32) {
        let file = match self.files.get(fh) {
            Ok(file) => file,
            Err(errno) => return replier.error(errno),
        };
        if let Some(version) = file.take_dropped() {
            self.versions.was_dropped(file.open.oid(), version);
        }
        answer::filled(replier, size as usize, |buffer| self.fs.read(&file.open, offset, buffer));
    }

    pub(crate) fn write(&self, header: &Header<'_>, replier: Replier, write: &Write<'_>) {
        // What comes from the page cache has its place, whatever the flags say.
        let appends = convert::appends(write.flags) && !write.cached;
        let result = self.change(|| {
            let file = self.files.get(write.fh)?;
            if !write.cached {
                self.before_write(header, &file, write.kill_suidgid)?;
            }
            if appends {
                let landed = self.fs.append(&file.open, write.data)?;
                return Ok((landed, write.data.len()));
            }
            let count = self.fs.write(&file.open, write.offset, write.data)?;
            if let Some(opened) = &file.opened {
                opened.note_written(write.offset + count as u64);
            }
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

    /// Takes privileges from a file that is about to be written to: capabilities, and with `kill_suidgid`
    /// set-id bits, unless the writer may set them.
    fn before_write(
        &self,
        header: &Header<'_>,
        file: &FileHandle,
        kill_suidgid: bool,
    ) -> Result<()> {
        let known = file.privileges(self.now(), self.privileges_ttl);
        if known.is_some_and(|privileges| privileges.are_none()) {
            return Ok(());
        }
        let (oid, look) = (file.open.oid(), file.begin_look());
        let mut privileges = known.map_or_else(|| self.fs.privileges(oid), Ok)?;
        let tells = self.kernel.get().is_some_and(|kernel| kernel.tells_of_set_id);
        let loses = kill_suidgid || (!tells && header.uid != 0);
        let writer = loses.then(|| self.caller(header));
        let taken = self.fs.take_privileges(oid, &mut privileges, writer.as_ref())?;
        file.end_look(look, privileges, self.now());
        if taken {
            self.drop_attributes(header.node);
        }
        Ok(())
    }

    /// One descriptor of the file is closed: what was written arrives, and the ranges that its
    /// process has locked are free.
    pub(crate) fn flush(&self, header: &Header<'_>, fh: u64, lock_owner: u64) -> Result<()> {
        let file = self.files.get(fh);
        let flushed = file.as_ref().map_err(|errno| *errno).and_then(|f| self.fs.flush(&f.open));
        if self.has_ranges.load(Ordering::Relaxed) {
            self.fs.unlock_owner(self.object(header.node)?, LockKind::Range, lock_owner)?;
            if let Ok(file) = &file {
                file.remove_range_owner(lock_owner);
            }
        }
        flushed
    }

    /// The last descriptor is closed; `flock_owner` if it was locked as a whole. The ranges that the
    /// open file itself has locked are free then.
    pub(crate) fn release(&self, fh: u64, flock_owner: Option<u64>) -> Result<()> {
        let Some(file) = self.files.remove(fh) else { return Err(Errno::BADF) };
        let oid = file.open.oid();
        if let Some(opened) = &file.opened {
            opened.end(|| self.fs.getattr(oid).ok().map(|attr| attr.size));
        }
        let mut result = Ok(());
        for owner in file.take_range_owners() {
            result = result.and(self.fs.unlock_owner(oid, LockKind::Range, owner));
        }
        match flock_owner {
            Some(owner) => result.and(self.fs.unlock_owner(oid, LockKind::Whole, owner)),
            None => result,
        }
    }

    pub(crate) fn fsync(&self, fh: u64, data_only: bool) -> Result<()> {
        let file = self.files.get(fh)?;
        if data_only { self.fs.fdatasync(&file.open) } else { self.fs.fsync(&file.open) }
    }

    /// `mode` as of `fallocate`.
    pub(crate) fn fallocate(
        &self,
        header: &Header<'_>,
        fh: u64,
        (offset, length): (u64, u64),
        mode: u32,
    ) -> Result<()> {
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
        // The kernel does not say here what it says of writes.
        self.before_write(header, &file, header.uid != 0)?;
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
    pub(crate) fn copy(&self, header: &Header<'_>, copy: &CopyRange) -> Result<u64> {
        if copy.flags != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.files.get(copy.fh_in)?, self.files.get(copy.fh_out)?);
        let length = if copy.wide { copy.length } else { copy.length.min(NARROW_COPY_BYTES) };
        let to_node = Header { node: copy.node_out, ..*header };
        self.before_write(&to_node, &to, header.uid != 0)?;
        self.change(|| {
            self.fs.copy_range(&from.open, copy.offset_in, &to.open, copy.offset_out, length)
        })
    }
}
