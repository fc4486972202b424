//! The index of what a file holds read ahead: pieces in flight and pieces that have come. Owns
//! their order, their sum and what of them was read; must never hold contents, or decide what to
//! ask for.

use crate::range::ByteRange;

/// Pieces of one file at most.
pub(crate) const PIECES_MAX: usize = 2048;

/// Why a piece was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is expected to be read; unread, it is waste.
    Ahead,
    /// It is read because that is cheaper than to leave it out.
    Through,
    /// It was read, and is kept since it may be read again.
    Demand,
}

/// One piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Where it lies.
    pub(crate) range: ByteRange,
    /// Bytes that have come.
    pub(crate) arrived_bytes: u64,
    /// Bytes that were read, at most its length.
    pub(crate) read_bytes: u64,
    /// The number of the last plan that wanted it.
    pub(crate) wanted: u64,
    /// Why it was asked for.
    pub(crate) purpose: Purpose,
}

impl Piece {
    /// Whether all of it has come.
    pub(crate) const fn has_arrived(&self) -> bool {
        self.arrived_bytes >= self.range.bytes
    }

    /// Whether all of it was read.
    pub(crate) const fn is_read(&self) -> bool {
        self.read_bytes >= self.range.bytes
    }
}

/// The pieces of one file, in the order of their offsets, none overlapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
    total_bytes: u64,
}

impl Pieces {
    /// Bytes of all pieces.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether another piece may be put in.
    pub(crate) const fn has_room(&self) -> bool {
        self.pieces.len() < PIECES_MAX
    }

    /// All pieces.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// Index of the first piece that ends after `offset`.
    fn first_ending_after(&self, offset: u64) -> usize {
        self.pieces.partition_point(|piece| piece.range.end() <= offset)
    }

    /// Calls `visit` for each piece that overlaps `range`.
    pub(crate) fn visit(&mut self, range: ByteRange, mut visit: impl FnMut(&mut Piece)) {
        let first = self.first_ending_after(range.offset);
        for piece in self.pieces.iter_mut().skip(first) {
            if piece.range.offset >= range.end() {
                break;
            }
            visit(piece);
        }
    }

    /// Gives the parts of `range` that are in no piece to `missing`, in order.
    pub(crate) fn uncovered(&self, range: ByteRange, mut missing: impl FnMut(ByteRange)) {
        let mut at = range.offset;
        for piece in self.pieces.iter().skip(self.first_ending_after(range.offset)) {
            if piece.range.offset >= range.end() {
                break;
            }
            let gap = ByteRange::between(at, piece.range.offset);
            if !gap.is_empty() {
                missing(gap);
            }
            at = at.max(piece.range.end());
        }
        let gap = ByteRange::between(at, range.end());
        if !gap.is_empty() {
            missing(gap);
        }
    }

    /// Puts in a piece that overlaps no other.
    pub(crate) fn insert(&mut self, piece: Piece) {
        let index = self.first_ending_after(piece.range.offset);
        debug_assert!(self.pieces.get(index).is_none_or(|next| !next.range.overlaps(piece.range)));
        self.total_bytes += piece.range.bytes;
        self.pieces.insert(index, piece);
    }

    /// Takes out the pieces for which `leaves` is true and gives them to `taken`.
    pub(crate) fn remove_if(
        &mut self,
        mut leaves: impl FnMut(&Piece) -> bool,
        mut taken: impl FnMut(Piece),
    ) {
        let mut removed_bytes = 0;
        self.pieces.retain(|piece| {
            let stays = !leaves(piece);
            if !stays {
                removed_bytes += piece.range.bytes;
                taken(*piece);
            }
            stays
        });
        self.total_bytes -= removed_bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Piece, Pieces, Purpose};
    use crate::range::ByteRange;

    fn piece(range: ByteRange) -> Piece {
        Piece { range, arrived_bytes: 0, read_bytes: 0, wanted: 0, purpose: Purpose::Ahead }
    }

    proptest! {
        #[test]
        fn what_is_missing_fills_every_gap(asked in prop::collection::vec((0u64..200, 1u64..40), 1..40)) {
            let mut pieces = Pieces::default();
            let mut covered = [false; 300];
            for (offset, bytes) in asked {
                let range = ByteRange::new(offset, bytes);
                let mut missing = Vec::new();
                pieces.uncovered(range, |gap| missing.push(gap));
                for gap in missing {
                    for at in gap.offset..gap.end() {
                        prop_assert!(!covered[at as usize]);
                        covered[at as usize] = true;
                    }
                    pieces.insert(piece(gap));
                }
                prop_assert!(covered[offset as usize..(offset + bytes) as usize].iter().all(|c| *c));
            }
            prop_assert_eq!(pieces.total_bytes(), covered.iter().filter(|c| **c).count() as u64);
            pieces.remove_if(|piece| piece.range.offset % 2 == 0, |_| {});
            prop_assert_eq!(pieces.total_bytes(), pieces.iter().map(|p| p.range.bytes).sum::<u64>());
        }
    }
}
