//! Who gets a new content from whom, and in pieces of which length: what the planner of `azekura_policy` says of
//! the links as they were measured. The one place where that is decided; what happens on the way is the route's.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use azekura_policy::spread::{self, Candidate, Link, Links, Shape, Spread};
use azekura_proto::staging::NodeId;

use crate::message::{PIECE_BYTES_MAX, Supplier};

const _: () = assert!(spread::PIECE_BYTES_MAX <= PIECE_BYTES_MAX as u64);

/// What a piece costs a link beside its bytes, in microseconds: its head, and a packet that it does not fill. The
/// kernel sends on while the next piece is made ready.
const PIECE_US: u64 = 2;
/// A shorter content says little of the links that it went over.
const TELLING_BYTES: u64 = 1 << 20;

/// The links of a job, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known(Links);

impl Default for Known {
    fn default() -> Self {
        let link = Link { message_us: PIECE_US, ..Link::default() };
        Self(Links { source: link, node: link })
    }
}

/// How one content goes.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// A supplier for each receiver, those that supply before those that they supply.
    pub(crate) suppliers: Vec<(NodeId, Supplier)>,
    /// How many a supplier has.
    pub(crate) receivers: BTreeMap<Supplier, u64>,
}

impl Known {
    /// Nothing is known yet but how long the way to a node and back takes.
    pub(crate) fn with_round_trip(round_trip: Duration) -> Self {
        let mut known = Self::default();
        let delay_us = u64::try_from(round_trip.as_micros() / 2).unwrap_or(u64::MAX).max(1);
        (known.0.source.delay_us, known.0.node.delay_us) = (delay_us, delay_us);
        known
    }

    /// A node has got a content of so many bytes at this rate, by that plan.
    pub(crate) fn measured(
        &mut self,
        plan: &Plan,
        supplier: Supplier,
        bytes: u64,
        bytes_per_second: u64,
    ) {
        if bytes < TELLING_BYTES || bytes_per_second == 0 {
            return;
        }
        // A supplier serves its receivers at the same time.
        let receivers = plan.receivers.get(&supplier).copied().unwrap_or(1);
        let rate = bytes_per_second.saturating_mul(receivers);
        let link = match supplier {
            Supplier::Front => &mut self.0.source,
            Supplier::Node(_) => &mut self.0.node,
        };
        link.bytes_per_second = match link.bytes_per_second {
            0 => rate,
            before => before.midpoint(rate),
        };
        // Of links that nothing has gone over, those that are known say most.
        let Links { source, node } = &mut self.0;
        if node.bytes_per_second == 0 {
            node.bytes_per_second = source.bytes_per_second;
        } else if source.bytes_per_second == 0 {
            source.bytes_per_second = node.bytes_per_second;
        }
    }

    /// The length of a piece for so many bytes that go to so many nodes.
    pub(crate) fn piece_bytes(self, bytes: u64, nodes: usize) -> u32 {
        let shape = Shape::choose(bytes, nodes, 0, self.0);
        shape.piece_bytes.min(u64::from(PIECE_BYTES_MAX)) as u32
    }

    /// How so many bytes come to these nodes, when `beside` more go the same way with them or at once after them:
    /// a stream of small contents is moved by what its links carry, as one large content is, and not by what one
    /// of them needs for the way.
    pub(crate) fn plan(self, bytes: u64, beside: u64, receivers: &[NodeId]) -> Plan {
        let bytes = bytes.saturating_add(beside);
        let candidate = |node: &NodeId| Candidate::new(spread::NodeId(u32::from(node.0)));
        let candidates: Vec<_> = receivers.iter().map(candidate).collect();
        let spread = Spread::plan(bytes, &candidates, self.0);
        let mut plan = Plan::default();
        let mut suppliers = VecDeque::from([spread::Supplier::Source]);
        while let Some(supplier) = suppliers.pop_front() {
            let ours = match supplier {
                spread::Supplier::Source => Supplier::Front,
                spread::Supplier::Node(node) => Supplier::Node(NodeId(node.0 as u16)),
            };
            for node in spread.receivers_of(supplier) {
                plan.suppliers.push((NodeId(node.0 as u16), ours));
                *plan.receivers.entry(ours).or_default() += 1;
                suppliers.push_back(spread::Supplier::Node(node));
            }
        }
        plan
    }
}

impl Plan {
    /// Most receivers of one supplier: 1 is a chain.
    pub(crate) fn fan_out(&self) -> u64 {
        self.receivers.values().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn nodes(count: u16) -> Vec<NodeId> {
        (0..count).map(|node| NodeId(node * 3)).collect()
    }

    #[test]
    fn all_receivers_are_supplied_and_none_before_its_supplier() {
        let (known, receivers) = (Known::default(), nodes(40));
        for bytes in [0, 1, 100_000, 1 << 30] {
            let planned = known.plan(bytes, 0, &receivers).suppliers;
            let mut nodes: Vec<_> = planned.iter().map(|(node, _)| *node).collect();
            for (place, (_, supplier)) in planned.iter().enumerate() {
                let Supplier::Node(supplier) = supplier else { continue };
                assert!(nodes[..place].contains(supplier), "{bytes} bytes: {planned:?}");
            }
            nodes.sort();
            assert_eq!(nodes, receivers);
            assert!(known.piece_bytes(bytes, 40) > 0);
        }
        assert_eq!(known.plan(1000, 0, &[]).suppliers, []);
    }

    #[test]
    fn large_contents_go_along_a_chain_and_small_ones_down_a_tree() {
        let known = Known::with_round_trip(Duration::from_micros(800));
        assert_eq!(known.plan(64 * MIB, 0, &nodes(16)).fan_out(), 1);
        assert!(known.plan(8 << 10, 0, &nodes(16)).fan_out() > 1);
        assert!(known.plan(64 * MIB, 0, &nodes(4000)).fan_out() > 1);
    }

    #[test]
    fn a_stream_of_small_contents_goes_along_a_chain() {
        let known = Known::with_round_trip(Duration::from_millis(2));
        assert!(known.plan(MIB, 0, &nodes(16)).fan_out() > 1);
        assert_eq!(known.plan(MIB, 39 * MIB, &nodes(16)).fan_out(), 1);
    }

    #[test]
    fn what_was_measured_decides() {
        let (chain, mut known) = (Known::default().plan(MIB, 0, &nodes(2)), Known::default());
        let before = known.plan(4 * MIB, 0, &nodes(16)).fan_out();
        // On a fast link that is long the way of many nodes costs more than sending twice.
        let mut long = Known::with_round_trip(Duration::from_millis(100));
        long.measured(&chain, Supplier::Front, MIB, 1 << 30);
        assert_eq!(before, 1);
        assert!(long.plan(4 * MIB, 0, &nodes(16)).fan_out() > 1);
        // A short content says nothing, and a slow link keeps the pieces small.
        known.measured(&chain, Supplier::Front, MIB - 1, 1);
        assert_eq!(known.0.source.bytes_per_second, 0);
        known.measured(&chain, Supplier::Front, MIB, 11_770_000);
        assert_eq!(known.0.node.bytes_per_second, 11_770_000);
        assert_eq!(known.piece_bytes(64 * MIB, 16), 64 << 10);
        // One that serves several at a time is as fast as all of them together.
        let flat = Plan { receivers: BTreeMap::from([(Supplier::Front, 4)]), ..Plan::default() };
        known.measured(&flat, Supplier::Front, MIB, 11_770_000 / 4);
        assert_eq!(known.0.source.bytes_per_second, 11_770_000);
    }
}
