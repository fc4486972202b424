//! `copy_file_range`, as reads and writes of this client. Owns how much is copied before a caller can
//! be interrupted.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::FILE_BYTES_MAX;
use rustix::fs::OFlags;

use crate::{Errno, FileSystem, OpenFile, Result};

/// Copied per round.
const BUFFER: usize = 4 << 20;
/// Copied per call at most, so that a caller can be interrupted in between.
const CALL: u64 = 256 << 20;

impl FileSystem {
    /// Copies up to `bytes` bytes; gives back how many were copied, 0 at the end of the source.
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
        if [from.kind(), to.kind()].contains(&FileKind::Directory) {
            return Err(Errno::ISDIR);
        }
        from.check_read()?;
        to.check_write()?;
        if to.flags().contains(OFlags::APPEND) {
            return Err(Errno::BADF);
        }
        let mut bytes = bytes.min(FILE_BYTES_MAX.saturating_sub(from_offset));
        if from.oid() == to.oid() {
            // What lies behind the end is not copied, so it does not overlap either.
            bytes = bytes.min(self.getattr(from.oid())?.size.saturating_sub(from_offset));
            let overlap = from_offset < to_offset.saturating_add(bytes)
                && to_offset < from_offset.saturating_add(bytes);
            if bytes > 0 && overlap {
                return Err(Errno::INVAL);
            }
        }
        let bytes = bytes.min(CALL);
        let mut buffer = vec![0; bytes.min(BUFFER as u64) as usize];
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(buffer.len() as u64) as usize;
            let copied =
                self.read(from, from_offset + done, &mut buffer[..part]).and_then(
                    |got| match got {
                        0 => Ok(0),
                        got => self.write(to, to_offset + done, &buffer[..got]),
                    },
                );
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied as u64,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
