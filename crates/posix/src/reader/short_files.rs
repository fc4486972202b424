//! Files that are somewhat longer than what comes with the answer to every opening. Owns whether all of one is worth
//! coming with it: it is as long as the program has read each of those that it opened last from further in front.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::limits::{BROUGHT_BYTES_MAX, BROUGHT_FILE_BYTES_MAX};

/// So many files in a row are enough to go by.
const ENOUGH: u64 = 2;

/// What became of such files lately: how many in a row were read.
#[derive(Debug, Default)]
pub(super) struct ShortFiles(AtomicU64);

/// One of them that is open.
#[derive(Debug)]
pub(super) struct ShortFile {
    /// What comes in any case begins here.
    tail: u64,
    is_read: bool,
    files: Arc<ShortFiles>,
}

impl ShortFiles {
    /// How many bytes of a file are to come with its opening: all of one that is no longer than that, else its end.
    pub(super) fn bring_bytes(&self) -> u32 {
        let come_whole = self.0.load(Ordering::Relaxed) >= ENOUGH;
        if come_whole { BROUGHT_FILE_BYTES_MAX } else { BROUGHT_BYTES_MAX }
    }
}

impl ShortFile {
    /// A file of this length, some of which has come with its opening; `None` if it is none of these.
    pub(super) fn new(bytes: u64, files: &Arc<ShortFiles>) -> Option<Self> {
        let tail = bytes.checked_sub(BROUGHT_BYTES_MAX.into()).filter(|tail| *tail > 0)?;
        let is_short = bytes <= BROUGHT_FILE_BYTES_MAX.into();
        is_short.then(|| Self { tail, is_read: false, files: Arc::clone(files) })
    }

    /// The program reads from this offset on.
    pub(super) fn note_read(&mut self, offset: u64) {
        if offset < self.tail && !self.is_read {
            self.is_read = true;
            self.files.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ShortFile {
    fn drop(&mut self) {
        if !self.is_read {
            self.files.0.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: u32 = BROUGHT_BYTES_MAX;
    const WHOLE: u32 = BROUGHT_FILE_BYTES_MAX;

    #[test]
    fn short_files_come_whole_as_long_as_each_is_read() {
        let files = Arc::new(ShortFiles::default());
        let open = |offset: Option<u64>| {
            let mut file = ShortFile::new(20_000, &files).unwrap();
            if let Some(offset) = offset {
                file.note_read(offset);
            }
            drop(file);
            files.bring_bytes()
        };
        assert_eq!([Some(0), Some(100), None, Some(0)].map(open), [TAIL, WHOLE, TAIL, TAIL]);
        assert_eq!([Some(0), Some(0), Some(19_000)].map(open), [WHOLE, WHOLE, TAIL]);
        let mut file = ShortFile::new(20_000, &files).unwrap();
        file.note_read(0);
        file.note_read(4096);
        assert_eq!(files.bring_bytes(), TAIL, "one file counts once");
    }

    #[test]
    fn only_files_count_that_can_come_whole_and_do_not_anyway() {
        let files = Arc::new(ShortFiles::default());
        let counts = |bytes: u32| ShortFile::new(bytes.into(), &files).is_some();
        assert_eq!(
            [0, TAIL, TAIL + 1, WHOLE, WHOLE + 1].map(counts),
            [false, false, true, true, false]
        );
    }
}
