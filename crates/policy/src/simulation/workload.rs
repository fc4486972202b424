//! The access patterns of the experiments. Owns which bytes are read in which order; must never
//! know how they come.

use super::random::Random;
use crate::range::ByteRange;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// The order in which a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// From front to back.
    Sequential,
    /// A read, then a seek past it, again and again; in bytes.
    Stride {
        /// Bytes of each read.
        read_bytes: u64,
        /// Bytes of each seek.
        seek_bytes: u64,
    },
    /// 512 KiB, then a seek of -2.5 to +5.5 MiB.
    RandomStride,
    /// So many bytes at random places.
    Random {
        /// Bytes of each read.
        read_bytes: u64,
    },
    /// A sequential part and a stride in turn.
    Mixed {
        /// Bytes of the sequential part.
        sequential_bytes: u64,
        /// Reads of the stride.
        count: u64,
        /// Bytes of each read.
        read_bytes: u64,
        /// Bytes of each seek.
        seek_bytes: u64,
    },
    /// 1 GiB sequential, then 61 KiB reads with seeks of 1 MiB.
    Shift,
}

impl AccessPattern {
    /// The patterns of the experiments with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("sequential", Self::Sequential),
        ("stride-512K-3M", Self::Stride { read_bytes: 512 * K, seek_bytes: 3 * M }),
        ("stride-3M-6M", Self::Stride { read_bytes: 3 * M, seek_bytes: 6 * M }),
        ("stride-256M-768M", Self::Stride { read_bytes: 256 * M, seek_bytes: 768 * M }),
        ("random-stride", Self::RandomStride),
        ("random-8M", Self::Random { read_bytes: 8 * M }),
        (
            "mixed",
            Self::Mixed {
                sequential_bytes: 50 * M,
                count: 25,
                read_bytes: 2 * M,
                seek_bytes: 4 * M,
            },
        ),
        (
            "mixed-p",
            Self::Mixed {
                sequential_bytes: 25 * M,
                count: 50,
                read_bytes: 512 * K,
                seek_bytes: 3 * M / 2,
            },
        ),
        ("shift", Self::Shift),
    ];
}

/// A pattern on a file.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The order of reads.
    pub pattern: AccessPattern,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Bytes to be read in all, at most.
    pub useful_bytes: u64,
    /// Bytes that the application asks for at a time, at most.
    pub read_bytes: u64,
    /// Where the random places begin.
    pub seed: u64,
}

impl Workload {
    /// The reads of the application, in order.
    pub fn reads(self) -> impl Iterator<Item = ByteRange> {
        let read_bytes = self.read_bytes.max(1);
        self.regions().into_iter().flat_map(move |region| {
            (0..region.bytes.div_ceil(read_bytes)).map(move |index| {
                let offset = region.offset + index * read_bytes;
                ByteRange::between(offset, region.end().min(offset + read_bytes))
            })
        })
    }

    /// The stretches that are read without a gap, in order.
    pub(crate) fn regions(self) -> Vec<ByteRange> {
        let mut regions = Vec::new();
        let mut left = self.useful_bytes;
        let mut add = |offset: u64, bytes: u64| {
            let end = offset.saturating_add(bytes.min(left)).min(self.file_bytes);
            let region = ByteRange::between(offset, end);
            if !region.is_empty() {
                left -= region.bytes;
                regions.push(region);
            }
            !region.is_empty()
        };
        match self.pattern {
            AccessPattern::Sequential => {
                add(0, self.file_bytes);
            }
            AccessPattern::Stride { read_bytes, seek_bytes } => {
                let mut at = 0;
                while add(at, read_bytes) {
                    at += read_bytes + seek_bytes;
                }
            }
            AccessPattern::RandomStride => {
                let mut random = Random(self.seed);
                let mut at = 0u64;
                while add(at, 512 * K) {
                    at = (at + 512 * K + random.below(8 * M)).saturating_sub(5 * M / 2);
                }
            }
            AccessPattern::Random { read_bytes } => {
                let mut random = Random(self.seed);
                let places = self.file_bytes.saturating_sub(read_bytes) / 4096 + 1;
                while add(random.below(places) * 4096, read_bytes) {}
            }
            AccessPattern::Mixed { sequential_bytes, count, read_bytes, seek_bytes } => {
                let mut at = 0;
                while add(at, sequential_bytes) {
                    at += sequential_bytes;
                    for _ in 0..count {
                        add(at, read_bytes);
                        at += read_bytes + seek_bytes;
                    }
                }
            }
            AccessPattern::Shift => {
                add(0, 1 << 30);
                let mut at = 1 << 30;
                while add(at, 61 * K) {
                    at += 61 * K + M;
                }
            }
        }
        regions
    }
}
