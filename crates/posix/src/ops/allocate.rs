//! `fallocate`. Owns what has to hold before space is reserved or given back.

use azekura_proto::limits::FILE_BYTES_MAX;
use azekura_proto::message::Allocation;

use crate::errno::of_client;
use crate::writer::WriteLeases;
use crate::{Errno, FileSystem, OpenFile, Result};

impl FileSystem {
    /// Reserves, zeroes or punches a range of bytes.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for an empty range, `EFBIG`, `ENOSPC`.
    pub fn allocate(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: u64,
        what: Allocation,
    ) -> Result<()> {
        // In the order in which Linux looks.
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        file.check_write()?;
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        let mut end = end.ok_or(Errno::FBIG)?;
        match what {
            Allocation::Grow | Allocation::KeepSize | Allocation::Zero => {
                self.before_change(file, end)?;
            }
            Allocation::PunchHole | Allocation::ZeroKeepSize => {
                self.before_write(file)?;
                let layout = &file.layout;
                if layout.needs_striping(end) && !layout.is_striped() {
                    layout.learn_striped(self.getattr(file.oid())?.striped);
                }
                if layout.needs_striping(end) && !layout.is_striped() {
                    // Nothing lies beyond chunk 0, so nothing is to be done there.
                    end = layout.geometry().chunk_bytes();
                }
            }
        }
        if offset >= end {
            return Ok(());
        }
        let _settled = self.writing.settle(file.oid(), WriteLeases::ReleaseFirst)?;
        let _change = self.begin_change(file.oid());
        let allocated = self.shard_io(&file.layout).allocate(offset, end, what);
        allocated.map_err(|error| of_client(&error))
    }
}
