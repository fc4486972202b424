//! Array data over the targets that have them: a range of an object becomes requests to its shards, all
//! sent before any answer is awaited. Owns how the answers of shards become one. Knows nothing of inodes:
//! whether a file is striped is for its caller to know.

use azekura_proto::layout::Piece;
use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use azekura_proto::message::typed::{
    Read, ShardAllocate, ShardRemove, ShardSeek, ShardStat, ShardTruncate, Sync, Write,
};
use azekura_proto::message::{Allocation, ShardRef, TypedRequest};
use azekura_proto::{Layout, TargetId};

use crate::batch::{Batch, BatchReplies, Ticket};
use crate::error::{ClientError, Result};
use crate::fan_out::Call;
use crate::pool::Pool;

/// Most bytes of one request.
const PIECE_BYTES: u64 = FRAME_BULK_BYTES_MAX as u64;

/// The array data of one object.
#[derive(Clone, Copy)]
pub struct ShardIo<'p> {
    pool: &'p Pool,
    layout: Layout,
}

impl std::fmt::Debug for ShardIo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardIo").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// What came of a write.
#[derive(Debug)]
pub struct ShardWrite {
    /// So many bytes from the start of the range are written.
    pub bytes: usize,
    /// Why not all of them.
    pub error: Option<ClientError>,
}

/// A read that goes together with other requests.
#[derive(Debug)]
pub struct BatchedRead {
    offset: u64,
    pieces: Vec<Ticket<Read>>,
}

impl<'p> ShardIo<'p> {
    /// The data of an object with this layout.
    pub fn new(pool: &'p Pool, layout: Layout) -> Self {
        Self { pool, layout }
    }

    /// Reads into all of `buffer`, holes and what lies beyond the end as zeros. Gives how many bytes of
    /// the buffer certainly lie before the end; where that is not all of them, only the size tells.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<u64> {
        let wanted = buffer.len() as u64;
        let mut some = self.layout.pieces(offset, wanted, PIECE_BYTES);
        if let (Some(only), None) = (some.next(), some.next()) {
            let got = self.pool.fetch(only.target, read(only), buffer)?.bytes as usize;
            buffer[got..].fill(0);
            return Ok(got as u64);
        }
        let mut batch = Batch::default();
        let parts = self.read_in(&mut batch, offset, &mut *buffer);
        let mut replies = self.pool.call_batch(batch);
        self.take_read(&mut replies, parts, buffer)
    }

    /// As [`ShardIo::read`], together with other requests.
    pub fn read_in<'a>(
        &self,
        batch: &mut Batch<'a>,
        offset: u64,
        buffer: &'a mut [u8],
    ) -> BatchedRead {
        let (mut rest, mut pieces) = (buffer, Vec::new());
        for piece in self.layout.pieces(offset, rest.len() as u64, PIECE_BYTES) {
            let (part, others) = rest.split_at_mut(piece.bytes as usize);
            rest = others;
            pieces.push(batch.add(Call::fetching(piece.target, read(piece), part)));
        }
        BatchedRead { offset, pieces }
    }

    /// What a read has brought that went together with others, into this same buffer.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn take_read(
        &self,
        replies: &mut BatchReplies<'_>,
        read: BatchedRead,
        buffer: &mut [u8],
    ) -> Result<u64> {
        let (offset, wanted) = (read.offset, buffer.len() as u64);
        let mut known_end = 0;
        let pieces = self.layout.pieces(offset, wanted, PIECE_BYTES);
        for (ticket, piece) in read.pieces.into_iter().zip(pieces) {
            let got = replies.take(ticket)?.bytes as usize;
            let part = &mut buffer[piece.within(offset)];
            part[got..].fill(0);
            if got > 0 {
                known_end = piece.offset - offset + got as u64;
            }
        }
        Ok(known_end)
    }

    /// Writes bytes at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> ShardWrite {
        let mut some = self.layout.pieces(offset, data.len() as u64, PIECE_BYTES);
        if let (Some(only), None) = (some.next(), some.next()) {
            return match self.pool.send(only.target, write(only), data) {
                Ok(()) => ShardWrite { bytes: data.len(), error: None },
                Err(error) => ShardWrite { bytes: 0, error: Some(error) },
            };
        }
        let mut calls = self.writes(offset, data);
        let done = self.pool.call_all(&mut calls);
        self.written(offset, data.len(), done)
    }

    /// As [`ShardIo::write`], with another request that goes along, behind the writes of its engine.
    pub fn write_along<'a, R: TypedRequest<'a>>(
        &self,
        offset: u64,
        data: &'a [u8],
        along: Call<'a, R>,
    ) -> (ShardWrite, Result<R::Reply>) {
        let mut calls: Vec<_> = self.writes(offset, data).into_iter().map(Call::in_order).collect();
        let (done, reply) = self.pool.call_mixed(&mut calls, &mut [along.in_order()]);
        (self.written(offset, data.len(), done), only(reply))
    }

    fn writes<'a>(&self, offset: u64, data: &'a [u8]) -> Vec<Call<'a, Write>> {
        let pieces = self.layout.pieces(offset, data.len() as u64, PIECE_BYTES);
        let sending =
            |piece: Piece| Call::sending(piece.target, write(piece), &data[piece.within(offset)]);
        pieces.map(sending).collect()
    }

    /// How far a write has come without an error.
    fn written(&self, offset: u64, wanted: usize, done: Vec<Result<()>>) -> ShardWrite {
        let mut bytes = 0;
        let pieces = self.layout.pieces(offset, wanted as u64, PIECE_BYTES);
        for (done, piece) in done.into_iter().zip(pieces) {
            match done {
                Ok(()) => bytes += piece.bytes as usize,
                Err(error) => return ShardWrite { bytes, error: Some(error) },
            }
        }
        ShardWrite { bytes, error: None }
    }

    /// Makes the data of the shards from `first` on durable, and the key-values of their targets.
    ///
    /// # Errors
    /// As [`Pool::call`]: that of the first shard that failed.
    pub fn sync(&self, first: u16, data_only: bool) -> Result<()> {
        let shards = self.layout.all_shards().skip(usize::from(first));
        self.ask_each(shards, |data| Sync { data: Some(data), data_only }).map(drop)
    }

    /// As [`ShardIo::sync`] of the first `shards` shards with their times, with another request that goes
    /// along, behind the syncs of its engine.
    pub fn sync_along<'a, R: TypedRequest<'a>>(
        &self,
        shards: u16,
        along: Call<'a, R>,
    ) -> (Result<()>, Result<R::Reply>) {
        let sync = |(target, data)| Call::new(target, Sync { data: Some(data), data_only: false });
        let mut calls: Vec<_> =
            self.layout.all_shards().take(usize::from(shards)).map(sync).collect();
        let (done, reply) = self.pool.call_mixed(&mut calls, &mut [along]);
        (done.into_iter().collect(), only(reply))
    }

    /// Length of the array in bytes, as the shards' files tell.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn size(&self) -> Result<u64> {
        let stat = |data| ShardStat { data, asker: None };
        let stats = self.ask_each(self.layout.all_shards(), stat)?;
        let mut size = 0;
        for (shard, stat) in (0..).zip(stats) {
            let bytes = stat.map_or(0, |stat| stat.bytes);
            size = size.max(self.layout.geometry().global_end(shard, bytes));
        }
        Ok(size)
    }

    /// The next data (or hole) at or after `offset` as far as the first `shards` shards tell; `None` if
    /// they have none. A shard that ends before the offset counts as a hole from there on.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn seek(&self, offset: u64, hole: bool, shards: u16) -> Result<Option<u64>> {
        let geometry = self.layout.geometry();
        let from = |shard| geometry.local_bytes(shard, offset);
        let asked = self.layout.all_shards().take(usize::from(shards));
        let seek = |data: ShardRef| ShardSeek { data, offset: from(data.shard), hole };
        let mut earliest: Option<u64> = None;
        for (found, shard) in self.ask_each(asked, seek)?.into_iter().zip(0..) {
            if let Some(local) = found.or_else(|| hole.then(|| from(shard))) {
                let global = geometry.global_offset(shard, local).max(offset);
                earliest = Some(earliest.map_or(global, |other| other.min(global)));
            }
        }
        Ok(earliest)
    }

    /// `fallocate` on the bytes before `end` and not before `start`.
    ///
    /// # Errors
    /// As [`Pool::call`]: that of the first shard that failed; the others may be done.
    pub fn allocate(&self, start: u64, end: u64, what: Allocation) -> Result<()> {
        let spans = self.layout.spans(start, end).filter(|span| span.bytes > 0);
        self.ask_all(spans.map(|span| {
            let (data, offset, bytes) = (span.data, span.local_offset, span.bytes);
            Call::new(span.target, ShardAllocate { data, offset, bytes, what })
        }))
        .map(drop)
    }

    /// Cuts or grows the array to a length.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        let geometry = self.layout.geometry();
        let last = geometry.last_shard(bytes);
        let cut = |data: ShardRef| ShardTruncate {
            data,
            bytes: geometry.local_bytes(data.shard, bytes),
            exactly: data.shard == last,
        };
        self.ask_each(self.layout.all_shards(), cut).map(drop)
    }

    /// Removes all data.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn remove(&self) -> Result<()> {
        let shards = self.layout.all_shards();
        self.ask_each(shards, |data| ShardRemove { data }).map(drop)
    }

    fn ask_each<R: TypedRequest<'static>>(
        &self,
        shards: impl Iterator<Item = (TargetId, ShardRef)>,
        request: impl Fn(ShardRef) -> R,
    ) -> Result<Vec<R::Reply>> {
        self.ask_all(shards.map(|(target, data)| Call::new(target, request(data))))
    }

    fn ask_all<R: TypedRequest<'static>>(
        &self,
        calls: impl Iterator<Item = Call<'static, R>>,
    ) -> Result<Vec<R::Reply>> {
        let mut calls: Vec<_> = calls.collect();
        self.pool.call_all(&mut calls).into_iter().collect()
    }
}

fn read(piece: Piece) -> Read {
    Read { data: piece.data, offset: piece.local_offset, bytes: piece.bytes as u32 }
}

fn write(piece: Piece) -> Write {
    Write { data: piece.data, offset: piece.local_offset }
}

/// The reply to the only call.
#[expect(clippy::expect_used, reason = "each call has its reply")]
fn only<T>(mut replies: Vec<Result<T>>) -> Result<T> {
    replies.pop().expect("one reply for one call")
}
