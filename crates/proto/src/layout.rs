//! From (object, byte range) to places on targets: the one arithmetic of striping, used by whoever reads,
//! writes or shapes array data. Owns no I/O and no map: a layout is made from the placement that a map
//! gives, and is right for as long as that map is.

use crate::Geometry;
use crate::ids::{Oid, TargetId};
use crate::message::ShardRef;
use crate::placement::Placement;

/// How one object's array data lie on the targets of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    oid: Oid,
    is_file: bool,
    geometry: Geometry,
    placement: Placement,
}

/// A run of bytes that is contiguous both in the array and in one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The target.
    pub target: TargetId,
    /// The shard on it.
    pub data: ShardRef,
    /// Offset in the shard's file, in bytes.
    pub local_offset: u64,
    /// Offset in the whole array, in bytes.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub bytes: u64,
}

impl Piece {
    /// Where the piece stands in a buffer that begins at `offset` of the array.
    pub fn within(&self, offset: u64) -> std::ops::Range<usize> {
        let start = (self.offset - offset) as usize;
        start..start + self.bytes as usize
    }
}

/// What of one shard lies in a range of the array: always one run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardSpan {
    /// The target.
    pub target: TargetId,
    /// The shard on it.
    pub data: ShardRef,
    /// Offset in the shard's file, in bytes.
    pub local_offset: u64,
    /// Length in bytes; 0 if nothing of the range lies there.
    pub bytes: u64,
}

impl Layout {
    /// The layout of a file, whose shards belong to an inode.
    pub fn of_file(placement: Placement, oid: Oid, chunk_bytes: u32) -> Self {
        let geometry = Geometry::new(chunk_bytes, placement.shards(oid));
        Self { oid, is_file: true, geometry, placement }
    }

    /// The layout of an array that is no file.
    pub fn of_array(placement: Placement, oid: Oid, chunk_bytes: u32) -> Self {
        Self { is_file: false, ..Self::of_file(placement, oid, chunk_bytes) }
    }

    /// The object.
    pub fn oid(&self) -> Oid {
        self.oid
    }

    /// How the array is cut.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of shards.
    pub fn shards(&self) -> u16 {
        self.geometry.shards()
    }

    /// The target of a shard.
    pub fn target(&self, shard: u16) -> TargetId {
        debug_assert!(shard < self.shards(), "shard {shard} of {}", self.shards());
        self.placement.shard_target(self.oid, shard)
    }

    /// A shard, as requests name it.
    pub fn shard(&self, shard: u16) -> ShardRef {
        ShardRef { oid: self.oid, shard, is_file: self.is_file }
    }

    /// The targets that may have data of the object, one for each shard.
    pub fn shard_targets(&self) -> impl Iterator<Item = TargetId> {
        self.all_shards().map(|(target, _)| target)
    }

    /// Every shard with its target, shard 0 first.
    pub fn all_shards(&self) -> impl Iterator<Item = (TargetId, ShardRef)> {
        let layout = *self;
        (0..self.shards()).map(move |shard| (layout.target(shard), layout.shard(shard)))
    }

    /// The pieces that cover `bytes` bytes from `offset`, in the order of the array, none of them
    /// longer than `piece_bytes_max`.
    ///
    /// # Panics
    ///
    /// If `piece_bytes_max` is 0.
    pub fn pieces(
        &self,
        offset: u64,
        bytes: u64,
        piece_bytes_max: u64,
    ) -> impl Iterator<Item = Piece> {
        assert!(piece_bytes_max > 0, "pieces of no bytes would never cover the range");
        let layout = *self;
        self.geometry.extents(offset, bytes).flat_map(move |extent| {
            let (target, data) = (layout.target(extent.shard), layout.shard(extent.shard));
            (0..extent.bytes.div_ceil(piece_bytes_max)).map(move |index| {
                let skipped = index * piece_bytes_max;
                Piece {
                    target,
                    data,
                    local_offset: extent.local_offset + skipped,
                    offset: extent.offset + skipped,
                    bytes: piece_bytes_max.min(extent.bytes - skipped),
                }
            })
        })
    }

    /// What of each shard lies before `end` and not before `start`.
    pub fn spans(&self, start: u64, end: u64) -> impl Iterator<Item = ShardSpan> {
        let geometry = self.geometry;
        self.all_shards().map(move |(target, data)| {
            let local_offset = geometry.local_bytes(data.shard, start);
            let bytes = geometry.local_bytes(data.shard, end).saturating_sub(local_offset);
            ShardSpan { target, data, local_offset, bytes }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::ObjectClass;
    use crate::ids::{ContainerId, PoolId};
    use crate::pool_map::{EngineEntry, PoolMap};

    fn layout(class: ObjectClass) -> Layout {
        let engines = vec![EngineEntry { addresses: Vec::new() }];
        let map = PoolMap::deal(PoolId([1; 16]), "p".to_owned(), engines, &[4]);
        let oid = Oid::new(ContainerId(1), class, TargetId(2), 5);
        Layout::of_file(Placement::of(&map), oid, 10)
    }

    #[test]
    fn pieces_are_short_enough_and_cover_the_range() {
        for class in [ObjectClass::S1, ObjectClass::S2, ObjectClass::SX] {
            let layout = layout(class);
            for (offset, bytes) in [(0, 0), (0, 1), (3, 50), (19, 2), (40, 7)] {
                let mut at = offset;
                for piece in layout.pieces(offset, bytes, 4) {
                    assert!((1..=4).contains(&piece.bytes));
                    assert_eq!(piece.offset, at);
                    assert_eq!(piece.target, layout.target(piece.data.shard));
                    assert_eq!(piece.within(offset).len() as u64, piece.bytes);
                    at += piece.bytes;
                }
                assert_eq!(at, offset + bytes);
            }
        }
    }

    #[test]
    fn spans_hold_the_same_bytes_as_pieces() {
        let layout = layout(ObjectClass::SX);
        for (start, end) in [(0, 0), (0, 1), (3, 55), (19, 21), (40, 47)] {
            for span in layout.spans(start, end) {
                let of_shard = layout.pieces(start, end - start, u64::MAX);
                let of_shard: Vec<Piece> =
                    of_shard.filter(|piece| piece.data == span.data).collect();
                assert_eq!(of_shard.iter().map(|piece| piece.bytes).sum::<u64>(), span.bytes);
                if let Some(first) = of_shard.first() {
                    assert_eq!(first.local_offset, span.local_offset);
                }
            }
        }
    }

    #[test]
    fn shards_follow_each_other_from_home() {
        let targets: Vec<u16> =
            layout(ObjectClass::SX).all_shards().map(|(target, _)| target.0).collect();
        assert_eq!(targets, [2, 3, 0, 1]);
        assert_eq!(layout(ObjectClass::S1).all_shards().count(), 1);
    }
}
