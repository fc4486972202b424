//! Bytes of a file that were asked for before the file was opened: all of a short one. Owns them, and counts which are
//! read. Whether they may be used now, and what to bring, is decided elsewhere.

use std::sync::Arc;

use azekura_policy::ByteRange;

use super::brought_bytes::{BroughtBytes, Counted};
use super::far_file::Part;

/// The bytes of one file.
#[derive(Debug)]
pub(super) struct Whole {
    parts: Vec<Part>,
    /// As far as they were read from the start on, or as many: no more than there are.
    counted: Counted,
}

impl Whole {
    pub(super) fn new(parts: Vec<Part>, bytes: u64, counts: &Arc<BroughtBytes>) -> Self {
        Self { parts, counted: Counted::new(bytes, counts) }
    }

    /// The parts that a read of the file needs.
    pub(super) fn parts_of(&mut self, read: ByteRange) -> Vec<Part> {
        self.counted.note_read(read.bytes);
        self.parts.iter().filter(|part| part.range.overlaps(read)).cloned().collect()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        for part in &self.parts {
            part.fetch.abandon();
        }
    }
}
