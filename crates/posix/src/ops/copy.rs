//! `copy_file_range`, as reads and writes of this client. Owns how much is copied before a caller can
//! be interrupted. Each end is reached by way of the file system that has opened it: what is on its way to a
//! file is known there alone.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::FILE_BYTES_MAX;
use rustix::fs::OFlags;

use crate::{Errno, File, FileSystem, OpenFile, Result};

/// Copied per round.
const BUFFER: usize = 4 << 20;
/// Copied per call at most, so that a caller can be interrupted in between.
const CALL: u64 = 256 << 20;

/// A place in an open file, and the file system that has opened it.
#[derive(Clone, Copy)]
struct End<'f> {
    fs: &'f FileSystem,
    file: &'f OpenFile,
    offset: u64,
}

impl FileSystem {
    /// Copies up to `bytes` bytes between two files that this file system has opened; gives back how many were
    /// copied, 0 at the end of the source.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for overlapping ranges of one file, `EFBIG`, `ENOSPC`.
    pub fn copy_range(
        &self,
        from: &OpenFile,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        bytes: u64,
    ) -> Result<u64> {
        let from = End { fs: self, file: from, offset: from_offset };
        copy(from, End { fs: self, file: to, offset: to_offset }, bytes)
    }
}

impl File {
    /// Copies up to `bytes` bytes to another file, of whatever file system; gives back how many were copied, 0
    /// at the end of this file.
    ///
    /// # Errors
    /// Those of [`FileSystem::copy_range`].
    pub fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, bytes: u64) -> Result<u64> {
        let from = End { fs: self.filesystem(), file: self.handle(), offset };
        let to = End { fs: to.filesystem(), file: to.handle(), offset: to_offset };
        copy(from, to, bytes)
    }
}

fn copy(from: End<'_>, to: End<'_>, bytes: u64) -> Result<u64> {
    if [from.file.kind(), to.file.kind()].contains(&FileKind::Directory) {
        return Err(Errno::ISDIR);
    }
    from.file.check_read()?;
    to.file.check_write()?;
    if to.file.flags().contains(OFlags::APPEND) {
        return Err(Errno::BADF);
    }
    let mut bytes = bytes.min(FILE_BYTES_MAX.saturating_sub(from.offset));
    // In another pool the same number says nothing; one pool may be connected to twice.
    let pool_of = |end: End<'_>| end.fs.pool().map().pool;
    if from.file.oid() == to.file.oid() && pool_of(from) == pool_of(to) {
        // What lies behind the end is not copied, so it does not overlap either.
        let end = from.fs.getattr(from.file.oid())?.size;
        bytes = bytes.min(end.saturating_sub(from.offset));
        let overlap = from.offset < to.offset.saturating_add(bytes)
            && to.offset < from.offset.saturating_add(bytes);
        if bytes > 0 && overlap {
            return Err(Errno::INVAL);
        }
    }
    let bytes = bytes.min(CALL);
    let mut buffer = vec![0; bytes.min(BUFFER as u64) as usize];
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(buffer.len() as u64) as usize;
        let read = from.fs.read(from.file, from.offset + done, &mut buffer[..part]);
        let copied = read.and_then(|got| match got {
            0 => Ok(0),
            got => to.fs.write(to.file, to.offset + done, &buffer[..got]),
        });
        match copied {
            Ok(0) => break,
            Ok(copied) => done += copied as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
