//! Reading and writing an open file past the engine, where that is on this host and passes descriptors of its
//! shards' files. Owns when one is asked for, and the rules that nothing is told by what fails here: only bytes that
//! are all there count as read, and what could not be written is written by a request. So where a file ends, has lost
//! data or a hole behind the end of a shard, or a disk is full, the engine is asked as if nothing had been tried.
//!
//! There is no lock: a forked child goes on with what its parent had.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use azekura_client::{LocalShard, LocalUse, Pool};

use crate::layout::FileLayout;

/// So many reads of an open file, and so many writes, are done by requests before a descriptor is asked for: of a
/// small file that is used once nobody gains anything by it.
const FIRST_CALLS: i32 = 2;
/// A call about so many bytes costs much more than asking does, and counts for all of them.
const LARGE_CALL: usize = 128 * 1024;
/// So many calls are done by requests after a descriptor was not to be had.
const PAUSE_CALLS: i32 = 64;

/// What an open file has of its shards' files.
#[derive(Debug)]
pub(crate) struct LocalFile {
    reads: Countdown,
    to_read: Shards,
    writes: Countdown,
    /// To be written and read. Who has any has the home's, where it is known that the file is written to.
    to_write: Shards,
}

/// How many calls of a kind are to be done by requests before the next try.
#[derive(Debug)]
struct Countdown(AtomicI32);

impl Countdown {
    fn new() -> Self {
        Self(AtomicI32::new(FIRST_CALLS))
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= 0
    }

    /// A call about so many bytes was done by requests.
    fn count(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            let counts = if bytes >= LARGE_CALL && left <= FIRST_CALLS { left } else { 1 };
            self.0.fetch_sub(counts, Ordering::Relaxed);
        }
    }

    fn pause(&self) {
        self.0.store(PAUSE_CALLS, Ordering::Relaxed);
    }
}

/// Files of shards, by shard.
#[derive(Debug, Default)]
struct Shards(OnceLock<Box<[OnceLock<LocalShard>]>>);

impl Shards {
    fn known(&self, number: u16) -> Option<&LocalShard> {
        self.0.get()?.get(usize::from(number))?.get()
    }

    /// The file of a shard, which is asked for if it is not there.
    fn get(
        &self,
        pool: &Pool,
        layout: &FileLayout,
        number: u16,
        purpose: LocalUse,
    ) -> Option<&LocalShard> {
        let all = self.0.get_or_init(|| (0..layout.shards()).map(|_| OnceLock::new()).collect());
        let shard = all.get(usize::from(number))?;
        if shard.get().is_none() {
            let asked = pool.local_shard(layout.target(number), layout.shard(number), purpose)?;
            // Another thread may have been first.
            let _ = shard.set(asked);
        }
        shard.get()
    }
}

impl LocalFile {
    pub(crate) fn new() -> Self {
        Self {
            reads: Countdown::new(),
            to_read: Shards::default(),
            writes: Countdown::new(),
            to_write: Shards::default(),
        }
    }

    /// Fills the buffer with bytes of the file, if all of them lie in files that can be read here. If not,
    /// what it has then means nothing.
    pub(crate) fn read(
        &self,
        pool: &Pool,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> bool {
        if !self.reads.is_over() || pool.is_locked(layout.oid()) {
            return false;
        }
        if offset.saturating_add(buffer.len() as u64) <= layout.home_run(0) {
            let home = self.shard_to_read(pool, layout, 0);
            return home.is_some_and(|shard| shard.fill(buffer, offset));
        }
        layout.requests(offset, buffer.len() as u64).all(|piece| {
            let shard = self.shard_to_read(pool, layout, piece.data.shard);
            shard.is_some_and(|shard| {
                shard.fill(&mut buffer[piece.within(offset)], piece.local_offset)
            })
        })
    }

    /// A read by requests has brought so many bytes of those that were wanted.
    pub(crate) fn note_direct(&self, got: usize, wanted: usize) {
        // Whoever has come to the end reads on no further.
        if got >= wanted {
            self.reads.count(got);
        }
    }

    /// Writes the first bytes of the data as far as they belong into files that can be written here; gives how
    /// many. Those that need it have made the file striped before.
    pub(crate) fn write(
        &self,
        pool: &Pool,
        layout: &FileLayout,
        offset: u64,
        data: &[u8],
    ) -> usize {
        if !self.writes.is_over() || pool.is_locked(layout.oid()) {
            return 0;
        }
        let now = LocalUse::Write { wait: false };
        let Some(home) = self.shard_to_write(pool, layout, 0, now) else { return 0 };
        if offset.saturating_add(data.len() as u64) <= layout.home_run(0) {
            return home.put(data, offset);
        }
        let mut done = 0;
        for piece in layout.requests(offset, data.len() as u64) {
            let bytes = &data[piece.within(offset)];
            let shard = self.shard_to_write(pool, layout, piece.data.shard, now);
            let put = shard.map_or(0, |shard| shard.put(bytes, piece.local_offset));
            done += put;
            if put < bytes.len() {
                break;
            }
        }
        done
    }

    /// A write by requests has taken so many bytes.
    pub(crate) fn note_direct_write(&self, bytes: usize) {
        self.writes.count(bytes);
    }

    /// The file of the home's shard, to be mapped.
    pub(crate) fn to_map(
        &self,
        pool: &Pool,
        layout: &FileLayout,
        purpose: LocalUse,
    ) -> Option<BorrowedFd<'_>> {
        let shard = match purpose {
            LocalUse::Read => self.shard_to_read(pool, layout, 0),
            LocalUse::Write { .. } => self.shard_to_write(pool, layout, 0, purpose),
        };
        shard.map(LocalShard::as_fd)
    }

    fn shard_to_read(&self, pool: &Pool, layout: &FileLayout, number: u16) -> Option<&LocalShard> {
        let found = self.to_write.known(number);
        let found = found.or_else(|| self.to_read.get(pool, layout, number, LocalUse::Read));
        if found.is_none() {
            self.reads.pause();
        }
        found
    }

    fn shard_to_write(
        &self,
        pool: &Pool,
        layout: &FileLayout,
        number: u16,
        purpose: LocalUse,
    ) -> Option<&LocalShard> {
        let found = self.to_write.get(pool, layout, number, purpose);
        if found.is_none() {
            self.writes.pause();
        }
        found
    }
}
