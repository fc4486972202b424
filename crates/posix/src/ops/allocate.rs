//! `fallocate`. Owns how a range of a file becomes one range of each shard: the bytes of a shard
//! that lie in a range of the file are contiguous in the shard.

use azekura_client::Call;
use azekura_proto::limits::FILE_BYTES_MAX;
use azekura_proto::message::{Allocation, Request, ShardRef};

use crate::errno::of_client;
use crate::writer::Leases;
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
        file.check_write()?;
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        let mut end = end.ok_or(Errno::FBIG)?;
        match what {
            Allocation::Grow | Allocation::KeepSize | Allocation::Zero => {
                self.before_change(file, end)?;
            }
            Allocation::PunchHole | Allocation::ZeroKeepSize => {
                self.clear_dangerous_bits(file)?;
                if file.needs_wide(end) && !file.is_wide() {
                    file.learn_wide(self.getattr(file.oid())?.wide);
                }
                if file.needs_wide(end) && !file.is_wide() {
                    // Nothing lies beyond chunk 0, so nothing is to be done there.
                    end = file.geometry().chunk_bytes();
                }
            }
        }
        if offset >= end {
            return Ok(());
        }
        self.settle(file.oid(), Leases::ReleaseFirst)?;
        self.reading().note_change(file.oid());
        let done = self.allocate_shards(file, (offset, end), what);
        self.reading().note_change(file.oid());
        done
    }

    fn allocate_shards(
        &self,
        file: &OpenFile,
        (start, end): (u64, u64),
        what: Allocation,
    ) -> Result<()> {
        let (oid, geometry) = (file.oid(), file.geometry());
        let mut calls: Vec<Call<'_>> = (0..geometry.shards())
            .filter_map(|shard| {
                let from = geometry.local_bytes(shard, start);
                let bytes = geometry.local_bytes(shard, end) - from;
                let data = ShardRef { oid, shard, is_file: true };
                let request = Request::ShardAllocate { data, offset: from, bytes, what };
                (bytes > 0).then(|| Call::new(self.shard_target(oid, shard), request))
            })
            .collect();
        self.pool().fan_out(&mut calls);
        for call in &mut calls {
            call.take_result().map_err(|error| of_client(&error))?;
        }
        Ok(())
    }
}
