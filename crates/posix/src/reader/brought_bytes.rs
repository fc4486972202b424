//! How many bytes were brought of files before these were opened, and how many more may be. Owns what is counted of them:
//! whether they were of use shows when a file is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
/// The longest file of which all is brought, in bytes. Longer ones are read ahead from their start on.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;
/// So much of these is brought: what fast links have under way. The rest is read ahead as it is read.
pub(super) const START_BYTES_MAX: u64 = 8 << 20;

/// What may still be brought this time, in bytes: listings, by which files are chosen, may be old.
#[derive(Debug)]
pub(crate) struct BroughtRoom(u64);

/// How much of what was brought of one file was read. The rest counts as wasted when this goes.
#[derive(Debug)]
pub(super) struct Counted {
    bytes: u64,
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
    /// Takes the room for all of a file of this length; `false`, and nothing is taken, if it is too long.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= FILE_BYTES_MAX && bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
    }

    /// Takes the room for the first bytes of a long file; gives how many.
    pub(super) fn take_start(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(START_BYTES_MAX).min(self.0);
        self.0 -= taken;
        taken
    }
}

impl Counted {
    pub(super) fn new(bytes: u64, counts: &Arc<BroughtBytes>) -> Self {
        counts.held.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, read_bytes: 0, counts: Arc::clone(counts) }
    }

    pub(super) fn note_read(&mut self, bytes: u64) {
        let news = bytes.min(self.bytes - self.read_bytes);
        self.read_bytes += news;
        self.counts.read.fetch_add(news, Ordering::Relaxed);
    }

    pub(super) fn is_all_read(&self) -> bool {
        self.read_bytes == self.bytes
    }

    /// Whether more of what was brought of files so far was read than was not.
    pub(super) fn are_read(&self) -> bool {
        self.counts.read() > self.counts.wasted()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.counts.wasted.fetch_add(self.bytes - self.read_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_files_of_some_length_and_so_many_bytes_in_all() {
        let counts = Arc::new(BroughtBytes::default());
        let mut room = counts.room();
        assert!(!room.take(FILE_BYTES_MAX + 1));
        assert_eq!((0..10).filter(|_| room.take(FILE_BYTES_MAX)).count(), 4);
        assert!(!room.take(1));
        let _held = Counted::new(HELD_BYTES_MAX - 3, &counts);
        let mut room = counts.room();
        assert!(!room.take(4) && room.take(3));
    }

    #[test]
    fn of_long_files_there_is_room_for_the_start() {
        let mut room = BroughtBytes::default().room();
        let taken: Vec<_> = (0..3).map(|_| room.take_start(u64::MAX)).collect();
        assert_eq!(taken, [START_BYTES_MAX, BROUGHT_BYTES_MAX - START_BYTES_MAX, 0]);
        assert_eq!(BroughtBytes::default().room().take_start(5), 5);
    }

    #[test]
    fn what_was_not_read_is_wasted_and_nothing_is_counted_twice() {
        let counts = Arc::new(BroughtBytes::default());
        let mut counted = Counted::new(10, &counts);
        counted.note_read(7);
        assert!(!counted.is_all_read());
        assert_eq!((counts.held(), counts.read(), counts.wasted()), (10, 7, 0));
        drop(counted);
        assert_eq!((counts.held(), counts.read(), counts.wasted()), (0, 7, 3));
        let mut counted = Counted::new(10, &counts);
        counted.note_read(70);
        assert!(counted.is_all_read());
        drop(counted);
        assert_eq!((counts.held(), counts.read(), counts.wasted()), (0, 17, 3));
    }
}
