//! Chain or tree, and how large a piece: chosen by the estimated time to the last byte. Owns the
//! estimate and what is supposed of links that nobody has measured; must never know one node from
//! another.
//!
//! # The estimate
//!
//! A content of *S* bytes goes in *M* pieces of *k* bytes over links of *B* bytes/s, delay *a* and
//! cost per message *c*; *p = c + k/B* is the time that a piece keeps a sender busy. A supplier of
//! *f* receivers serves them in turn, so that a piece takes it *f p*, and the last byte follows the
//! first piece by *M - 1* such turns:
//!
//! > *T(f, k) = (M - 1) f p + D(f, n)*
//!
//! where *D(f, n)* is when the last of *n* nodes has its first piece in the tree of
//! `growth`. For a chain that is *n (a + p)*, hence the known
//! *T = S/B + n a + (n - 1) k/B* of a pipelined chain; for a full tree it is at most
//! *depth (a + f p)*, hence *T <= S f/B + depth (a + f k/B)*. A source of another rate takes its own
//! turns *g p'*, and the slower of the two sets the pace. One piece alone (*M = 1*) leaves *D*, of
//! which the tree without a bound is the best.
//!
//! A chain moves all of the content at the full rate of the links and pays for every node; a tree
//! of fan-out *f* pays for *log n* nodes and moves the content *f* times slower: hence chains for
//! large contents on few nodes, and trees for small contents and very many nodes.

use super::growth::{Growth, Sender};
use crate::link::LinkEstimate;

/// Smallest piece of a content that has more than one, in bytes.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Largest piece, in bytes.
pub const PIECE_BYTES_MAX: u64 = 256 << 10;
/// Most receivers of a supplier, slow ones not counted.
pub const FAN_OUT_MAX: u32 = 16;

const PIECES_BYTES: [u64; 3] = [PIECE_BYTES_MIN, 128 << 10, PIECE_BYTES_MAX];
const FAN_OUTS: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, FAN_OUT_MAX];

/// What is left of 1 Gbit/s for contents.
const SUPPOSED_BYTES_PER_SECOND: u64 = 117_700_000;
/// Half the round trip of a local network.
const SUPPOSED_DELAY_US: u64 = 100;
/// What two system calls, a checksum and a wake-up take for a piece.
const SUPPOSED_MESSAGE_US: u64 = 50;

/// The network link of one machine, the same both ways. 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Rate in bytes per second.
    pub bytes_per_second: u64,
    /// Time on the way, half the round trip, in microseconds.
    pub delay_us: u64,
    /// Time that a piece costs its sender beside its bytes, in microseconds.
    pub message_us: u64,
}

impl From<LinkEstimate> for Link {
    fn from(link: LinkEstimate) -> Self {
        Self {
            bytes_per_second: link.bytes_per_second,
            delay_us: link.round_trip_us / 2,
            message_us: 0,
        }
    }
}

impl Link {
    /// The link, with what is usual in place of what is unknown.
    #[must_use]
    pub const fn supposed(self) -> Self {
        const fn known(value: u64, usual: u64) -> u64 {
            if value == 0 { usual } else { value }
        }
        Self {
            bytes_per_second: known(self.bytes_per_second, SUPPOSED_BYTES_PER_SECOND),
            delay_us: known(self.delay_us, SUPPOSED_DELAY_US),
            message_us: known(self.message_us, SUPPOSED_MESSAGE_US),
        }
    }

    /// How long `messages` pieces of `bytes` bytes in all keep the sender busy, in microseconds.
    pub(crate) fn service_us(self, bytes: u64, messages: u64) -> f64 {
        bytes as f64 * 1e6 / self.bytes_per_second as f64 + messages as f64 * self.message_us as f64
    }

    fn sender(self, fan_out: u32, bytes: u64, piece_bytes: u64) -> Sender {
        let first_bytes = bytes.min(piece_bytes);
        let rest_pieces = bytes.div_ceil(piece_bytes).max(1) - 1;
        Sender {
            fan_out,
            service_us: self.service_us(first_bytes, 1),
            rest_us: self.service_us(bytes - first_bytes, rest_pieces),
            delay_us: self.delay_us as f64,
        }
    }
}

/// The links that the content goes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// That of the source.
    pub source: Link,
    /// That of a usual node.
    pub node: Link,
}

/// How a content is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a piece; the last one has what is left.
    pub piece_bytes: u64,
    /// Receivers of the source at most, at least 1.
    pub source_fan_out: u32,
    /// Receivers of a node at most, at least 1.
    pub fan_out: u32,
    /// Estimated time until the last node has the last byte, in microseconds.
    pub estimated_us: u64,
}

impl Shape {
    /// The best shape for `bytes` bytes on `nodes` nodes, when `holders` others have them already.
    pub fn choose(bytes: u64, nodes: usize, holders: usize, links: Links) -> Self {
        // The simplest comes first, and stays where nothing is better.
        let mut best = Self::chain(PIECE_BYTES_MIN);
        let mut best_us = f64::INFINITY;
        // A single piece is not slowed by fan-out, so that no smaller bound is better.
        let fan_outs = if bytes <= PIECE_BYTES_MIN { &[FAN_OUT_MAX][..] } else { &FAN_OUTS };
        for piece_bytes in PIECES_BYTES {
            let by_source = |node: u32| fan_outs.iter().map(move |source| (*source, node));
            let senders = fan_outs.iter().flat_map(|node| by_source(*node));
            for (source_fan_out, fan_out) in senders {
                let tried = Self { source_fan_out, fan_out, ..Self::chain(piece_bytes) };
                let growth = tried.growth(bytes, holders, links);
                let Some(grown) = growth.grow(nodes, best_us) else { continue };
                best_us = growth.last_byte_us(&grown);
                best = Self {
                    piece_bytes,
                    source_fan_out: grown.source_fan_out.max(1),
                    fan_out: grown.fan_out.max(1),
                    estimated_us: best_us.ceil() as u64,
                };
            }
            if bytes <= piece_bytes {
                break;
            }
        }
        best
    }

    const fn chain(piece_bytes: u64) -> Self {
        Self { piece_bytes, source_fan_out: 1, fan_out: 1, estimated_us: 0 }
    }

    /// Whether every supplier has one receiver.
    pub const fn is_chain(self) -> bool {
        self.fan_out == 1 && self.source_fan_out == 1
    }

    /// Pieces of a content of `bytes` bytes; an empty one has none.
    pub const fn pieces(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.piece_bytes)
    }

    /// How its tree grows.
    pub(super) fn growth(self, bytes: u64, holders: usize, links: Links) -> Growth {
        let source = links.source.supposed();
        let node = links.node.supposed();
        Growth {
            source: source.sender(self.source_fan_out, bytes, self.piece_bytes),
            node: node.sender(self.fan_out, bytes, self.piece_bytes),
            holders,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Links, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Shape};

    const MIB: u64 = 1 << 20;
    const FAST_ETHERNET: Link =
        Link { bytes_per_second: 12_500_000, delay_us: 200, message_us: 20 };
    const LINKS: Links = Links { source: FAST_ETHERNET, node: FAST_ETHERNET };

    #[test]
    fn a_large_content_goes_to_few_nodes_by_a_chain() {
        for nodes in [1, 2, 4, 8, 16, 100] {
            let shape = Shape::choose(64 * MIB, nodes, 0, LINKS);
            assert!(shape.is_chain(), "{nodes}: {shape:?}");
            let (pieces, nodes) = (shape.pieces(64 * MIB) as f64, nodes as f64);
            let piece_us = shape.piece_bytes as f64 / 12.5 + 20.0;
            let known_us = pieces * piece_us + nodes * 200.0 + (nodes - 1.0) * piece_us;
            assert!((shape.estimated_us as f64 - known_us).abs() < 2.0, "{shape:?} {known_us}");
        }
    }

    #[test]
    fn very_many_nodes_have_a_tree_and_a_small_content_an_unbounded_one() {
        let many = Shape::choose(64 * MIB, 10_000, 0, LINKS);
        assert_eq!((many.source_fan_out, many.fan_out), (2, 2), "{many:?}");
        let small = Shape::choose(8 << 10, 1000, 0, LINKS);
        assert!(small.fan_out > 4, "{small:?}");
        let chain_us = 1000.0 * (200.0 + 20.0 + 8192.0 / 12.5);
        assert!((small.estimated_us as f64) < chain_us / 50.0, "{small:?}");
    }

    #[test]
    fn costly_messages_make_large_pieces_and_many_hops_small_ones() {
        let costly = Link { message_us: 2000, ..FAST_ETHERNET };
        let costly = Links { source: costly, node: costly };
        assert_eq!(Shape::choose(1024 * MIB, 16, 0, costly).piece_bytes, PIECE_BYTES_MAX);
        assert_eq!(Shape::choose(64 * MIB, 100, 0, LINKS).piece_bytes, PIECE_BYTES_MIN);
    }

    #[test]
    fn a_source_with_a_fast_link_feeds_several_chains() {
        let source = Link { bytes_per_second: 125_000_000, ..FAST_ETHERNET };
        let links = Links { source, node: FAST_ETHERNET };
        let shape = Shape::choose(64 * MIB, 1000, 0, links);
        assert_eq!(shape.fan_out, 1, "{shape:?}");
        assert!(shape.source_fan_out >= 8, "{shape:?}");
    }

    #[test]
    fn holders_shorten_the_way() {
        let without = Shape::choose(64 * MIB, 1000, 0, LINKS);
        let with = Shape::choose(64 * MIB, 1000, 100, LINKS);
        assert!(with.is_chain(), "a hundred chains of ten: {with:?}");
        assert!(with.estimated_us < without.estimated_us, "{with:?} {without:?}");
    }

    #[test]
    fn nothing_known_and_nothing_to_do_have_a_shape_too() {
        for (bytes, nodes) in [(0, 0), (0, 16), (1, 0), (MIB, 16), (u64::MAX, 3)] {
            let shape = Shape::choose(bytes, nodes, 0, Links::default());
            assert!(shape.fan_out >= 1 && shape.source_fan_out >= 1, "{shape:?}");
            assert!((PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&shape.piece_bytes));
        }
    }
}
