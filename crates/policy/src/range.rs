//! A range of bytes in a file. Owns the arithmetic of ranges, which never overflows; must never
//! know what a range is for.

/// `bytes` bytes from `offset` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes; may be zero.
    pub bytes: u64,
}

impl ByteRange {
    /// The range of `bytes` bytes from `offset` on, cut where offsets end.
    pub const fn new(offset: u64, bytes: u64) -> Self {
        let room = u64::MAX - offset;
        Self { offset, bytes: if bytes < room { bytes } else { room } }
    }

    /// The range from `start` up to, not including, `end`; empty when `end` lies before `start`.
    pub const fn between(start: u64, end: u64) -> Self {
        Self { offset: start, bytes: end.saturating_sub(start) }
    }

    /// The first byte after the range.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Whether there is no byte in it.
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// Whether the two share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        self.offset < other.end()
            && other.offset < self.end()
            && !self.is_empty()
            && !other.is_empty()
    }

    /// What the two share.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self::between(self.offset.max(other.offset), self.end().min(other.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::ByteRange;

    #[test]
    fn ends_where_offsets_end() {
        assert_eq!(ByteRange::new(u64::MAX - 1, 10).end(), u64::MAX);
        assert!(ByteRange::between(5, 3).is_empty());
    }

    #[test]
    fn empty_ranges_overlap_nothing() {
        let empty = ByteRange::new(5, 0);
        assert!(!empty.overlaps(ByteRange::new(0, 10)));
    }
}
