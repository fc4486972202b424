//! Which blocks of a buffer were used. Owns the bitmap and the share that it stands for; must never know
//! how large a block is.

use crate::range::ByteRange;

/// Blocks in the map at most: 512 bytes of bitmap.
pub(super) const BLOCKS_MAX: u64 = 4096;
const WORDS: usize = (BLOCKS_MAX / 64) as usize;

/// The map of one buffer.
#[derive(Clone, Debug)]
pub(super) struct UsedBlocks {
    bits: [u64; WORDS],
    count: u64,
    used: u64,
}

impl UsedBlocks {
    /// A map of one block.
    pub(super) const fn new() -> Self {
        Self { bits: [0; WORDS], count: 1, used: 0 }
    }

    /// Begins anew with so many blocks; as many as the map can have, and one at least.
    pub(super) fn clear(&mut self, count: u64) {
        *self = Self { count: count.clamp(1, BLOCKS_MAX), ..Self::new() };
    }

    /// Marks the blocks of a buffer of `bytes` bytes that `part` (from its start on) touches.
    pub(super) fn mark(&mut self, bytes: u64, part: ByteRange) {
        if part.is_empty() || bytes == 0 {
            return;
        }
        let block_of = |at: u64| {
            let block = u128::from(at) * u128::from(self.count) / u128::from(bytes);
            (block as u64).min(self.count - 1)
        };
        for block in block_of(part.offset)..=block_of(part.end() - 1) {
            let bit = 1u64 << (block % 64);
            let Some(word) = self.bits.get_mut((block / 64) as usize) else { continue };
            self.used += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// The share of blocks that were used, 0 to 1.
    pub(super) fn utilisation(&self) -> f64 {
        self.used as f64 / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_MAX, UsedBlocks};
    use crate::range::ByteRange;

    #[test]
    fn a_block_is_used_once_any_byte_of_it_is() {
        let mut blocks = UsedBlocks::new();
        blocks.clear(4);
        for (part, share) in [((10, 1), 0.25), ((20, 1), 0.25), ((24, 2), 0.5), ((99, 1), 0.75)] {
            blocks.mark(100, ByteRange::new(part.0, part.1));
            assert!((blocks.utilisation() - share).abs() < 1e-9, "{part:?}");
        }
        blocks.mark(100, ByteRange::new(0, 100));
        assert!((blocks.utilisation() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_map_has_a_bound_at_both_ends() {
        let mut blocks = UsedBlocks::new();
        blocks.clear(0);
        blocks.mark(1 << 30, ByteRange::new(5, 1));
        assert!((blocks.utilisation() - 1.0).abs() < 1e-9, "one block");
        blocks.clear(u64::MAX);
        blocks.mark(1 << 30, ByteRange::new(0, 1));
        assert!((blocks.utilisation() - 1.0 / BLOCKS_MAX as f64).abs() < 1e-9);
    }
}
