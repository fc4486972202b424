//! What the paper on adaptive remote access (Ohtsuji and Tatebe) publishes in numbers: the sizes of its
//! tables 1 to 5. Owns the figures; compares nothing.

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// Network delays of the tables, in milliseconds.
pub const DELAYS_MS: [u64; 6] = [0, 10, 25, 50, 75, 100];

/// One of the tables: for each delay the size that the method chose, and the best fixed size.
#[derive(Clone, Copy, Debug)]
pub struct PublishedSizes {
    /// Name of the access pattern, as in [`super::AccessPattern::ALL`].
    pub pattern: &'static str,
    /// The column "Adaptive", in bytes.
    pub adaptive_bytes: [u64; 6],
    /// The column "Optimal", in bytes.
    pub optimal_bytes: [u64; 6],
}

/// Tables 1 to 5.
pub const TABLES: [PublishedSizes; 5] = [
    PublishedSizes {
        pattern: "sequential",
        adaptive_bytes: [512 * M; 6],
        optimal_bytes: [128 * M, 256 * M, 512 * M, 512 * M, 512 * M, 512 * M],
    },
    PublishedSizes {
        pattern: "stride-512K-3M",
        adaptive_bytes: [512 * K, 4 * M, 512 * M, 512 * M, 512 * M, 512 * M],
        optimal_bytes: [M, 4 * M, 512 * M, 512 * M, 512 * M, 512 * M],
    },
    PublishedSizes {
        pattern: "stride-3M-6M",
        adaptive_bytes: [M, 4 * M, 4 * M, 512 * M, 512 * M, 512 * M],
        optimal_bytes: [M, 4 * M, 4 * M, 512 * M, 512 * M, 512 * M],
    },
    PublishedSizes {
        pattern: "stride-256M-768M",
        adaptive_bytes: [128 * M, 128 * M, 256 * M, 256 * M, 256 * M, 256 * M],
        optimal_bytes: [128 * M, 256 * M, 256 * M, 128 * M, 128 * M, 128 * M],
    },
    PublishedSizes {
        pattern: "random-8M",
        adaptive_bytes: [8 * M, 8 * M, 8 * M, 16 * M, 16 * M, 16 * M],
        optimal_bytes: [8 * M; 6],
    },
];
