//! Numbers that look random and are the same for the same seed. Owns the generator; must never be
//! used where somebody could gain by guessing.

/// `SplitMix64`, with its state.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// The next number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}
