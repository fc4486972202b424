//! Bytes of one chunk of a file that are not at an engine yet. Pure.

use std::ops::Range;

/// A part of a file, as long as a chunk, of which some ranges have been written.
#[derive(Debug)]
pub(super) struct Chunk {
    data: Vec<u8>,
    /// What was written: in order, and with gaps between the ranges.
    written: Vec<Range<usize>>,
}

impl Chunk {
    pub(super) fn new(chunk_bytes: usize) -> Self {
        Self { data: vec![0; chunk_bytes], written: Vec::new() }
    }

    /// Writes within the chunk.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        let mut range = at..at + bytes.len();
        self.data[range.clone()].copy_from_slice(bytes);
        // All that the new range touches become one with it.
        let first = self.written.partition_point(|other| other.end < range.start);
        let last = self.written.partition_point(|other| other.start <= range.end);
        if let (Some(lowest), Some(highest)) =
            (self.written[first..last].first(), self.written[first..last].last())
        {
            range = range.start.min(lowest.start)..range.end.max(highest.end);
        }
        self.written.splice(first..last, [range]);
    }

    /// Whether nothing is missing.
    pub(super) fn is_full(&self) -> bool {
        self.written.first() == Some(&(0..self.data.len()))
    }

    /// Where bytes were written, and which.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.written.iter().map(|range| (range.start, &self.data[range.clone()]))
    }

    /// How much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_last_is_there(
            writes in proptest::collection::vec((0_usize..64, 0_usize..24, any::<u8>()), 0..20),
        ) {
            let mut chunk = Chunk::new(64);
            let mut model = [None; 64];
            for (at, length, byte) in writes {
                let length = length.min(64 - at);
                chunk.put(at, &vec![byte; length]);
                model[at..at + length].fill(Some(byte));
            }
            let mut seen = [None; 64];
            for (at, bytes) in chunk.ranges() {
                for (place, byte) in seen[at..].iter_mut().zip(bytes) {
                    *place = Some(*byte);
                }
            }
            prop_assert_eq!(seen, model);
            prop_assert_eq!(chunk.is_full(), model.iter().all(Option::is_some));
            let gaps = chunk.written.windows(2).all(|pair| pair[0].end < pair[1].start);
            prop_assert!(gaps, "{:?}", chunk.written);
        }
    }
}
