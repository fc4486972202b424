//! Reading an open file past the engine, where that is on this host and passes descriptors of its shards'
//! files. Owns when one is asked for, and the rule that only bytes that are all there count: where a file ends,
//! has lost data or has a hole behind the end of a shard, the engine is asked as if nothing had been tried.
//!
//! There is no lock: a forked child goes on with what its parent had.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use azekura_client::{LocalShard, Pool};

use crate::layout::FileLayout;

/// So many reads of an open file are done by requests before a descriptor is asked for: of a small file that is
/// read once nobody gains anything by it.
const FIRST_READS: i32 = 2;
/// A read of so many bytes costs much more than asking does, and counts for all of them.
const LARGE_READ: usize = 128 * 1024;
/// So many reads are done by requests after a descriptor was not to be had.
const PAUSE_READS: i32 = 64;

/// What an open file has of its shards' files.
#[derive(Debug)]
pub(crate) struct LocalFile {
    /// How many reads are to be done by requests before the next try.
    reads_left: AtomicI32,
    /// By shard.
    shards: OnceLock<Box<[OnceLock<LocalShard>]>>,
}

impl LocalFile {
    pub(crate) fn new() -> Self {
        Self { reads_left: AtomicI32::new(FIRST_READS), shards: OnceLock::new() }
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
        if self.reads_left.load(Ordering::Relaxed) > 0 || pool.is_locked(layout.oid()) {
            return false;
        }
        if offset.saturating_add(buffer.len() as u64) <= layout.home_run(0) {
            return self.shard(pool, 0, layout).is_some_and(|shard| shard.fill(buffer, offset));
        }
        layout.requests(offset, buffer.len() as u64).all(|piece| {
            let shard = self.shard(pool, piece.data.shard, layout);
            shard.is_some_and(|shard| {
                shard.fill(&mut buffer[piece.within(offset)], piece.local_offset)
            })
        })
    }

    /// A read by requests has brought so many bytes of those that were wanted.
    pub(crate) fn note_direct(&self, got: usize, wanted: usize) {
        // Whoever has come to the end reads on no further.
        if got < wanted {
            return;
        }
        let left = self.reads_left.load(Ordering::Relaxed);
        if left > 0 {
            let counts = if got >= LARGE_READ && left <= FIRST_READS { left } else { 1 };
            self.reads_left.fetch_sub(counts, Ordering::Relaxed);
        }
    }

    fn shard(&self, pool: &Pool, number: u16, layout: &FileLayout) -> Option<&LocalShard> {
        let shards =
            self.shards.get_or_init(|| (0..layout.shards()).map(|_| OnceLock::new()).collect());
        let shard = shards.get(usize::from(number))?;
        if let Some(known) = shard.get() {
            return Some(known);
        }
        match pool.local_shard(layout.target(number), layout.shard(number)) {
            Some(asked) => {
                // Another thread may have been first.
                let _ = shard.set(asked);
            }
            None => self.reads_left.store(PAUSE_READS, Ordering::Relaxed),
        }
        shard.get()
    }
}
