//! All bytes of a file that were asked for before the file was opened. Owns what is counted of them: whether
//! they were of use shows when the file is closed. Whether they may be used now, and what to bring, is
//! decided elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_policy::ByteRange;

use super::far_file::Part;

/// What became of contents that were brought before their files were opened, in bytes.
#[derive(Debug, Default)]
pub(crate) struct BroughtBytes {
    held: AtomicU64,
    read: AtomicU64,
    wasted: AtomicU64,
}

/// The bytes of one file.
#[derive(Debug)]
pub(super) struct Whole {
    parts: Vec<Part>,
    bytes: u64,
    /// As far as they were read from the start on, or as many: no more than there are.
    read_bytes: u64,
    counts: Arc<BroughtBytes>,
}

impl BroughtBytes {
    /// Asked for, and kept for whoever reads them.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Read by the program.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Thrown away unread.
    pub(crate) fn wasted(&self) -> u64 {
        self.wasted.load(Ordering::Relaxed)
    }
}

impl Whole {
    pub(super) fn new(parts: Vec<Part>, bytes: u64, counts: &Arc<BroughtBytes>) -> Self {
        counts.held.fetch_add(bytes, Ordering::Relaxed);
        Self { parts, bytes, read_bytes: 0, counts: Arc::clone(counts) }
    }

    /// The parts that a read of the file needs.
    pub(super) fn parts_of(&mut self, read: ByteRange) -> Vec<Part> {
        let news = read.bytes.min(self.bytes - self.read_bytes);
        self.read_bytes += news;
        self.counts.read.fetch_add(news, Ordering::Relaxed);
        self.parts.iter().filter(|part| part.range.overlaps(read)).cloned().collect()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.counts.wasted.fetch_add(self.bytes - self.read_bytes, Ordering::Relaxed);
        for part in &self.parts {
            part.fetch.abandon();
        }
    }
}
