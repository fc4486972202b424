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

/// Contents that are kept, of all files, in bytes.
pub(crate) const HELD_BYTES_MAX: u64 = 32 << 20;
/// Contents that are brought at a time, in bytes.
pub(crate) const BROUGHT_BYTES_MAX: u64 = 16 << 20;
/// The longest file that is brought, in bytes: longer ones are read ahead as they are read.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;

/// What may still be brought this time, in bytes: listings, by which files are chosen, may be old.
#[derive(Debug)]
pub(crate) struct BroughtRoom(u64);

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

    /// How much there is room for.
    pub(crate) fn room(&self) -> BroughtRoom {
        BroughtRoom(HELD_BYTES_MAX.saturating_sub(self.held()).min(BROUGHT_BYTES_MAX))
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

impl BroughtRoom {
    /// Takes the room for a file of this length; `false`, and nothing is taken, if it is too long.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= FILE_BYTES_MAX && bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_files_of_some_length_and_so_many_bytes_in_all() {
        let counts = BroughtBytes::default();
        let mut room = counts.room();
        assert!(!room.take(FILE_BYTES_MAX + 1));
        assert_eq!((0..10).filter(|_| room.take(FILE_BYTES_MAX)).count(), 4);
        assert!(!room.take(1));
        counts.held.store(HELD_BYTES_MAX - 3, Ordering::Relaxed);
        let mut room = counts.room();
        assert!(!room.take(4) && room.take(3));
    }
}
