//! What is in a short file that only this process can change: it has made all of it, or has read it under the
//! lease that keeps others away. So what a program writes it can read back without asking. Owns the bytes and
//! their share of memory; whether nobody else can have changed the file is known to whoever keeps them.

use std::sync::Arc;

use azekura_policy::Budget;

/// Longer files are not kept.
pub(crate) const CONTENTS_BYTES_MAX: u64 = 256 << 10;

/// All bytes of a file, from the first to the last.
#[derive(Debug)]
pub(crate) struct Contents {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl Contents {
    /// Those of an empty file.
    pub(crate) fn of_empty(budget: &Arc<Budget>) -> Self {
        Self { bytes: Vec::new(), budget: Arc::clone(budget) }
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Takes in what is written at an offset. False if there is no room for it: then this is of no use any more.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let end = offset.saturating_add(data.len() as u64);
        let more = end.saturating_sub(self.bytes.len() as u64);
        if end > CONTENTS_BYTES_MAX || !self.budget.take(more) {
            return false;
        }
        let (start, end) = (offset as usize, end as usize);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(data);
        true
    }

    /// Reads at an offset; fewer bytes only at the end of the file.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let start = usize::try_from(offset).map_or(self.bytes.len(), |at| at.min(self.bytes.len()));
        let there = &self.bytes[start..];
        let got = there.len().min(buffer.len());
        buffer[..got].copy_from_slice(&there[..got]);
        got
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_with_zeros_in_between_and_its_end() {
        let budget = Arc::new(Budget::new(100));
        let mut contents = Contents::of_empty(&budget);
        assert!(contents.write(4, b"abcd") && contents.write(6, b"xy12"));
        let mut buffer = [9; 16];
        assert_eq!(contents.read(2, &mut buffer), 8);
        assert_eq!(&buffer[..8], b"\0\0abxy12");
        assert_eq!(contents.read(10, &mut buffer), 0);
        assert_eq!(contents.read(u64::MAX, &mut buffer), 0);
        assert_eq!(contents.read(1, &mut buffer[..3]), 3);
        assert_eq!(budget.taken_bytes(), 10);
        assert!(!contents.write(95, b"123456"), "no room");
        assert!(!contents.write(u64::MAX - 1, b"123456"));
        drop(contents);
        assert_eq!(budget.taken_bytes(), 0);
        let mut long = Contents::of_empty(&Arc::new(Budget::new(u64::MAX)));
        assert!(!long.write(CONTENTS_BYTES_MAX, b"x"));
    }
}
