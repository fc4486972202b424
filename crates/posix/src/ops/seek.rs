//! `SEEK_DATA` and `SEEK_HOLE`. Owns how the answers of shards become one: the first data (or hole)
//! of the file is the earliest of what each shard has at or after the offset.

use azekura_client::Call;
use azekura_proto::attr::FileKind;
use azekura_proto::message::{Reply, Request, ShardRef};

use crate::errno::{of_client, unexpected};
use crate::{Errno, FileSystem, OpenFile, Result};

/// What `seek` looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

impl FileSystem {
    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// `ENXIO` if there is none before the end, or `offset` is at the end or beyond.
    pub fn seek(&self, file: &OpenFile, offset: u64, to: SeekTo) -> Result<u64> {
        if file.kind() != FileKind::Regular {
            return Err(Errno::INVAL);
        }
        let oid = file.oid();
        let attr = self.getattr(oid)?;
        file.learn_wide(attr.wide);
        if offset >= attr.size {
            return Err(Errno::NXIO);
        }
        let geometry = file.geometry();
        let shards = if file.is_wide() { geometry.shards() } else { 1 };
        let mut calls: Vec<Call<'_>> = (0..shards)
            .map(|shard| {
                let data = ShardRef { oid, shard, is_file: true };
                let start = geometry.local_bytes(shard, offset);
                let request = Request::ShardSeek { data, offset: start, hole: to == SeekTo::Hole };
                Call::new(self.shard_target(oid, shard), request)
            })
            .collect();
        self.pool().fan_out(&mut calls);
        let mut earliest = None;
        for (call, shard) in calls.iter_mut().zip(0..) {
            let found = match call.take_result() {
                Ok(Reply::Offset(found)) => found,
                Ok(_) => return Err(unexpected("shard_seek")),
                Err(error) => return Err(of_client(&error)),
            };
            let local = match (found, to) {
                (Some(local), _) => local,
                (None, SeekTo::Data) => continue,
                // The shard ends before the offset, so what follows is a hole of the file.
                (None, SeekTo::Hole) => geometry.local_bytes(shard, offset),
            };
            let global = geometry.global_offset(shard, local).max(offset);
            earliest = Some(earliest.map_or(global, |other: u64| other.min(global)));
        }
        match (earliest, to) {
            (Some(found), SeekTo::Data) if found < attr.size => Ok(found),
            (_, SeekTo::Data) => Err(Errno::NXIO),
            (found, SeekTo::Hole) => Ok(found.unwrap_or(attr.size).min(attr.size)),
        }
    }
}
