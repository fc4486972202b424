//! The arithmetic of striped arrays: which bytes of a file lie where in which shard. Chunk `c` of
//! an object with `n` shards lies in shard `c mod n`, at `(c / n) * chunk_bytes` of the shard's
//! file. Pure numbers: no ids, no I/O.

use crate::limits::{BROUGHT_BYTES_MAX, BROUGHT_FILE_BYTES_MAX};

/// How an array object is cut into chunks and dealt over shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    chunk_bytes: u64,
    shards: u64,
}

/// A run of bytes that is contiguous both in the file and in one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The shard.
    pub shard: u16,
    /// Offset in the shard's file, in bytes.
    pub local_offset: u64,
    /// Offset in the whole file, in bytes.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub bytes: u64,
}

impl Geometry {
    /// A geometry of chunks of `chunk_bytes` over `shards` shards; zeros count as one.
    pub fn new(chunk_bytes: u32, shards: u16) -> Self {
        Self { chunk_bytes: u64::from(chunk_bytes.max(1)), shards: u64::from(shards.max(1)) }
    }

    /// Chunk size in bytes.
    pub fn chunk_bytes(self) -> u64 {
        self.chunk_bytes
    }

    /// Number of shards.
    pub fn shards(self) -> u16 {
        self.shards as u16
    }

    /// Whether the bytes before `end` all lie in chunk 0, so that the home target alone has them.
    pub fn is_within_first_chunk(self, end: u64) -> bool {
        end <= self.chunk_bytes
    }

    /// The extents that cover `bytes` bytes from `offset`, in file order. With one shard, chunks
    /// touch each other and come as one extent.
    pub(crate) fn extents(self, offset: u64, bytes: u64) -> impl Iterator<Item = Extent> {
        let end = offset.saturating_add(bytes);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let extent = if self.shards == 1 {
                Extent { shard: 0, local_offset: at, offset: at, bytes: end - at }
            } else {
                let chunk = at / self.chunk_bytes;
                let within = at % self.chunk_bytes;
                Extent {
                    shard: (chunk % self.shards) as u16,
                    local_offset: chunk / self.shards * self.chunk_bytes + within,
                    offset: at,
                    bytes: (self.chunk_bytes - within).min(end - at),
                }
            };
            at += extent.bytes;
            Some(extent)
        })
    }

    /// How long the file of `shard` may be when the whole file is `size` bytes long: the local
    /// end of the last byte before `size` that lies in this shard.
    pub fn local_bytes(self, shard: u16, size: u64) -> u64 {
        if self.shards == 1 {
            return size;
        }
        let full_chunks = size / self.chunk_bytes;
        let rows = full_chunks / self.shards;
        let rest = full_chunks % self.shards;
        let shard = u64::from(shard);
        match shard.cmp(&rest) {
            std::cmp::Ordering::Less => (rows + 1) * self.chunk_bytes,
            std::cmp::Ordering::Equal => rows * self.chunk_bytes + size % self.chunk_bytes,
            std::cmp::Ordering::Greater => rows * self.chunk_bytes,
        }
    }

    /// The last bytes of a file of `size` bytes, at most so many, as far as they lie in one chunk or the file has one
    /// shard: where in the file they begin.
    pub fn tail(self, size: u64, bytes_max: u64) -> u64 {
        let start = size.saturating_sub(bytes_max);
        if self.shards == 1 {
            return start;
        }
        start.max(size.saturating_sub(1) / self.chunk_bytes * self.chunk_bytes)
    }

    /// What comes with the answer to the opening of a file of `size` bytes if `bytes` are asked for: where in the file it
    /// begins. That is all of it, or the end of a longer one.
    pub fn brought(self, size: u64, bytes: u32) -> u64 {
        let bytes = u64::from(bytes.min(BROUGHT_FILE_BYTES_MAX));
        self.tail(size, if size <= bytes { bytes } else { bytes.min(BROUGHT_BYTES_MAX.into()) })
    }

    /// Where in the whole file the shard's byte at `local_offset` lies.
    pub fn global_offset(self, shard: u16, local_offset: u64) -> u64 {
        if self.shards == 1 {
            return local_offset;
        }
        let row = local_offset / self.chunk_bytes;
        (row * self.shards + u64::from(shard)) * self.chunk_bytes + local_offset % self.chunk_bytes
    }

    /// The end of the whole file as far as this shard knows: one past its last byte, or 0.
    pub fn global_end(self, shard: u16, local_bytes: u64) -> u64 {
        match local_bytes.checked_sub(1) {
            None => 0,
            Some(last) => self.global_offset(shard, last) + 1,
        }
    }

    /// The shard that holds the last byte of a file of `size` bytes; shard 0 for an empty file.
    pub fn last_shard(self, size: u64) -> u16 {
        (size.saturating_sub(1) / self.chunk_bytes % self.shards) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_whole_with_its_opening_if_as_much_was_asked_for_and_else_its_end() {
        let (tail, whole) = (BROUGHT_BYTES_MAX, BROUGHT_FILE_BYTES_MAX);
        let (tail_bytes, whole_bytes) = (u64::from(tail), u64::from(whole));
        let one = Geometry::new(1 << 20, 1);
        let begins = [
            one.brought(0, tail),
            one.brought(tail_bytes, tail),
            one.brought(tail_bytes + 1, tail),
            one.brought(whole_bytes, whole),
            one.brought(whole_bytes + 1, whole),
            one.brought(whole_bytes + 1, u32::MAX),
            one.brought(1000, 100),
            one.brought(1000, 0),
        ];
        let long = whole_bytes + 1 - tail_bytes;
        assert_eq!(begins, [0, 0, 1, 0, long, long, 900, 1000]);
        assert_eq!(
            Geometry::new(4096, 4).brought(10_000, whole),
            8192,
            "one chunk of a striped one"
        );
    }

    #[test]
    fn a_tail_begins_within_the_last_chunk() {
        let geometry = Geometry::new(10, 3);
        for (size, bytes_max, start) in
            [(0, 4, 0), (3, 4, 0), (9, 4, 5), (10, 4, 6), (12, 4, 10), (29, 40, 20), (30, 10, 20)]
        {
            assert_eq!(geometry.tail(size, bytes_max), start, "{size} {bytes_max}");
        }
        assert_eq!(Geometry::new(10, 1).tail(29, 15), 14);
    }

    #[test]
    fn extents_cover_the_range_without_gap_or_overlap() {
        for shards in [1, 2, 3, 5] {
            let geometry = Geometry::new(10, shards);
            for offset in 0..60 {
                for bytes in 0..60 {
                    let mut at = offset;
                    for extent in geometry.extents(offset, bytes) {
                        assert_eq!(extent.offset, at);
                        assert_eq!(geometry.global_offset(extent.shard, extent.local_offset), at);
                        at += extent.bytes;
                    }
                    assert_eq!(at, offset + bytes);
                }
            }
        }
    }

    #[test]
    fn local_lengths_and_global_ends_agree() {
        for shards in [1, 2, 3, 5] {
            let geometry = Geometry::new(10, shards);
            for size in 0..200 {
                let ends = (0..shards)
                    .map(|shard| geometry.global_end(shard, geometry.local_bytes(shard, size)));
                assert_eq!(ends.max(), Some(size), "shards {shards} size {size}");
                let total: u64 = (0..shards).map(|shard| geometry.local_bytes(shard, size)).sum();
                assert_eq!(total, size);
                let last = geometry.last_shard(size);
                assert_eq!(geometry.global_end(last, geometry.local_bytes(last, size)), size);
            }
        }
    }
}
