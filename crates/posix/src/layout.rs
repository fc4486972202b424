//! Where the data of one file lie, and what is known of whether the file is striped yet. No I/O here.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use azekura_proto::{Attr, Layout, Placement};

pub(crate) use azekura_proto::layout::Piece;

/// The layout of a file, of which all or only shard 0 may be in use.
#[derive(Debug)]
pub(crate) struct FileLayout {
    layout: Layout,
    striped: AtomicBool,
    /// How often its home had lost something when it was known last that the mark is there.
    losses: AtomicU64,
}

impl Deref for FileLayout {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        &self.layout
    }
}

impl FileLayout {
    /// `losses`: how often the home had lost something before these attributes were asked for.
    pub(crate) fn new(attr: &Attr, placement: Placement, losses: u64) -> Self {
        let layout = Layout::of_file(placement, attr.oid, attr.chunk_bytes);
        let losses = AtomicU64::new(losses);
        Self { layout, striped: AtomicBool::new(attr.striped), losses }
    }

    /// The pieces that cover a range, each for one request, in file order.
    pub(crate) fn requests(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
        self.layout.pieces(offset, bytes, FRAME_BULK_BYTES_MAX.into())
    }

    /// Whether data before `end` may lie in other shards than the home's.
    pub(crate) fn needs_striping(&self, end: u64) -> bool {
        self.shards() > 1 && !self.geometry().is_within_first_chunk(end)
    }

    /// How many bytes from an offset on can lie in one run at the home of a file that is not striped.
    pub(crate) fn home_run(&self, offset: u64) -> u64 {
        let chunk_bytes = self.geometry().chunk_bytes();
        if self.shards() == 1 { u64::MAX } else { chunk_bytes.saturating_sub(offset) }
    }

    /// Whether the file is known to have, or be allowed to have, data in several shards.
    pub(crate) fn is_striped(&self) -> bool {
        self.striped.load(Ordering::Acquire) && self.shards() > 1
    }

    /// Whether the home may have lost the mark, having lost something so often by now.
    pub(crate) fn is_in_doubt(&self, losses: u64) -> bool {
        self.losses.load(Ordering::Acquire) != losses
    }

    /// The home has the mark, after it had lost something so often.
    pub(crate) fn confirm_striped(&self, losses: u64) {
        self.learn_striped(true);
        self.losses.store(losses, Ordering::Release);
    }

    /// Learns from an engine whether the file is striped. Once it is, it stays so.
    pub(crate) fn learn_striped(&self, striped: bool) {
        if striped {
            self.striped.store(true, Ordering::Release);
        }
    }
}
