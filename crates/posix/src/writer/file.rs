//! One open file, as it is written. Owns the choice between writing through and keeping writes in flight,
//! and which errors of earlier writes it has been told of.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use azekura_policy::WritePolicy;
use azekura_proto::TargetId;

use super::queue::{LeaseOfNew, LockedQueue};
use super::writing::{Attached, Settled, WriteLeases, Writing};
use crate::contents::CONTENTS_BYTES_MAX;
use crate::layout::{FileLayout, Piece};
use crate::{Errno, Result};

/// Shards of a striped file for which leases are asked for at once.
const SHARDS_AT_ONCE: u16 = 32;

/// What a write came to.
#[derive(Debug)]
pub(crate) enum Written {
    /// It was answered and is on its way: so many bytes.
    InFlight(usize),
    /// It is to be done in the ordinary way; nothing is in flight.
    Through(Settled),
}

/// How an open file is written; decided at its first write.
#[derive(Debug)]
pub(crate) struct FileWriter {
    /// Every write is to be durable when it is answered.
    is_synchronous: bool,
    /// The number of the last error of writes in flight that it was told of.
    errors_told: AtomicU64,
    way: OnceLock<Way>,
}

#[derive(Debug)]
enum Way {
    /// Every write waits for its answer.
    Through,
    /// It may be far.
    MayBeFar {
        /// A first write tells how far; and whoever writes once only needs no lease.
        has_written: AtomicBool,
        /// Once it has been found to be far.
        attached: OnceLock<Attached>,
    },
}

impl FileWriter {
    /// For a file that is opened after so many errors.
    pub(crate) fn new(is_synchronous: bool, errors: u64) -> Self {
        Self { is_synchronous, errors_told: AtomicU64::new(errors), way: OnceLock::new() }
    }

    fn choose(&self, writing: &Writing, layout: &FileLayout) -> Way {
        let may_be_far = match writing.links.policy {
            WritePolicy::Through => false,
            WritePolicy::Always => true,
            WritePolicy::Auto => {
                layout.shard_targets().any(|target| writing.links.pool().is_remote(target))
            }
        };
        if self.is_synchronous || !may_be_far {
            return Way::Through;
        }
        Way::MayBeFar { has_written: AtomicBool::new(false), attached: OnceLock::new() }
    }

    /// A write lease has come with the answer to the file's creation: the file is empty under it, unless another thread has
    /// found it since.
    pub(crate) fn begin_leased(
        &self,
        writing: &Arc<Writing>,
        layout: &FileLayout,
        lease: LeaseOfNew,
    ) {
        debug_assert!(!self.is_synchronous, "each write of it waits");
        if lease.leased.lease_ms == 0 {
            return;
        }
        let new = Attached::new(writing, layout.oid());
        new.queue.lock(&writing.links).keep_lease_of_new(lease, keeps_contents(layout));
        let way = Way::MayBeFar { has_written: AtomicBool::new(true), attached: new.into() };
        // Nobody else has the file open here yet.
        let _ = self.way.set(way);
    }

    /// Writes without waiting for the answer, if the file is far and it can be done safely. `may_read_back`: the
    /// program may read as well, and the file was short.
    ///
    /// # Errors
    /// What became of earlier writes, once.
    pub(crate) fn write(
        &self,
        writing: &Arc<Writing>,
        layout: &FileLayout,
        (offset, data): (u64, &[u8]),
        may_read_back: bool,
    ) -> Result<Written> {
        let oid = layout.oid();
        let through = || writing.settle(oid, WriteLeases::Keep).map(Written::Through);
        let Way::MayBeFar { has_written, attached } =
            self.way.get_or_init(|| self.choose(writing, layout))
        else {
            return through();
        };
        let is_first = !has_written.swap(true, Ordering::Relaxed);
        let attached = match attached.get() {
            Some(attached) => attached,
            None if is_first || !writing.links.is_far(oid.home()) => return through(),
            None => attached.get_or_init(|| Attached::new(writing, oid)),
        };
        let pieces: Vec<(Piece, &[u8])> = layout
            .requests(offset, data.len() as u64)
            .map(|piece| (piece, &data[piece.within(offset)]))
            .collect();
        let mut queue = attached.queue.lock(&writing.links);
        if !queue.take_in() {
            queue.finish_or_forget();
        }
        self.tell(queue.error())?;
        queue.make_way();
        let is_ready = !writing.is_ending()
            && have_leases(writing, layout, &mut queue, &pieces, may_read_back)
            && writing.links.budget.take(data.len() as u64);
        if !is_ready {
            queue.finish_or_forget();
            self.tell(queue.error())?;
            drop(queue);
            return through();
        }
        queue.add_connections(&pieces);
        queue.post(&pieces);
        loop {
            if !queue.take_in() {
                queue.finish_or_forget();
            }
            queue.make_way();
            if queue.may_answer(&pieces) || !queue.await_oldest() {
                break;
            }
        }
        self.tell(queue.error())?;
        Ok(Written::InFlight(data.len()))
    }

    /// The error that this open file has not been told of yet.
    fn tell(&self, error: Option<(u64, Errno)>) -> Result<()> {
        match error {
            Some((number, errno))
                if self.errors_told.fetch_max(number, Ordering::Relaxed) < number =>
            {
                Err(errno)
            }
            _ => Ok(()),
        }
    }

    /// Whether it is worth knowing how long a write takes.
    pub(crate) fn may_be_far(&self) -> bool {
        matches!(self.way.get(), Some(Way::MayBeFar { .. }))
    }

    /// Waits until everything has arrived, for `fsync` and `close`, which tell the errors.
    ///
    /// # Errors
    /// What became of earlier writes, once for each open file.
    pub(crate) fn finish(&self, writing: &Writing, layout: &FileLayout) -> Result<Settled> {
        let (settled, error) = writing.settle_or_forget(layout.oid());
        self.tell(error)?;
        Ok(settled)
    }
}

/// Whether what is in a file may be kept while it is written: as long as all of it lies at home. What is kept ends before it
/// would lie elsewhere as well.
fn keeps_contents(layout: &FileLayout) -> bool {
    layout.shards() == 1
        || !layout.is_striped() && layout.geometry().chunk_bytes() >= CONTENTS_BYTES_MAX
}

/// Whether there are leases for these pieces; asks for them if not.
fn have_leases(
    writing: &Writing,
    layout: &FileLayout,
    queue: &mut LockedQueue<'_>,
    pieces: &[(Piece, &[u8])],
    may_read_back: bool,
) -> bool {
    let links = &writing.links;
    if pieces.iter().all(|(piece, _)| queue.has_lease(piece.data.shard)) {
        return true;
    }
    // What is near is written through. What has not been met yet is met by asking.
    if queue.is_refused() || pieces.iter().any(|(piece, _)| links.is_near(piece.target)) {
        return false;
    }
    let count = layout.shards();
    let mut wanted: Vec<u16> = pieces.iter().map(|(piece, _)| piece.data.shard).collect();
    if layout.is_striped() {
        let first = wanted.first().copied().unwrap_or(0);
        wanted.extend((1..count.min(SHARDS_AT_ONCE)).map(|turn| (first + turn) % count));
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted.retain(|shard| !queue.has_lease(*shard));
    let wanted: Vec<(u16, TargetId)> =
        wanted.into_iter().map(|shard| (shard, layout.target(shard))).collect();
    let asked = links.now();
    let with_contents = may_read_back && keeps_contents(layout);
    let all = queue.ask_leases(&wanted, with_contents);
    for (_, target) in &wanted {
        links.saw_round_trip(*target, links.platform.elapsed(asked));
    }
    if all && pieces.iter().all(|(piece, _)| links.is_far(piece.target)) {
        return true;
    }
    if all {
        // Nearer than it seemed.
        queue.refuse();
    }
    queue.release();
    false
}
