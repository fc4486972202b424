//! Who gets a new content from whom, and in pieces of which length: what the planner of `azekura_policy` says.
//! The one place where that is decided; what happens on the way is the route's.

use std::collections::VecDeque;

use azekura_policy::spread::{self, Candidate, Links, Shape, Spread};
use azekura_proto::staging::NodeId;

use crate::message::{PIECE_BYTES_MAX, Supplier};

const _: () = assert!(spread::PIECE_BYTES_MAX <= PIECE_BYTES_MAX as u64);

/// The length of a piece for so many bytes that go to so many nodes.
pub(crate) fn piece_bytes(bytes: u64, nodes: usize) -> u32 {
    let shape = Shape::choose(bytes, nodes, 0, Links::default());
    shape.piece_bytes.min(u64::from(PIECE_BYTES_MAX)) as u32
}

/// A supplier for each receiver, those that supply before those that they supply.
pub(crate) fn plan(bytes: u64, receivers: &[NodeId]) -> Vec<(NodeId, Supplier)> {
    let candidate = |node: &NodeId| Candidate::new(spread::NodeId(u32::from(node.0)));
    let candidates: Vec<_> = receivers.iter().map(candidate).collect();
    let spread = Spread::plan(bytes, &candidates, Links::default());
    let mut planned = Vec::with_capacity(receivers.len());
    let mut suppliers = VecDeque::from([spread::Supplier::Source]);
    while let Some(supplier) = suppliers.pop_front() {
        let ours = match supplier {
            spread::Supplier::Source => Supplier::Front,
            spread::Supplier::Node(node) => Supplier::Node(NodeId(node.0 as u16)),
        };
        for node in spread.receivers_of(supplier) {
            planned.push((NodeId(node.0 as u16), ours));
            suppliers.push_back(spread::Supplier::Node(node));
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_receivers_are_supplied_and_none_before_its_supplier() {
        let receivers: Vec<_> = (0..40).map(|node| NodeId(node * 3)).collect();
        for bytes in [0, 1, 100_000, 1 << 30] {
            let planned = plan(bytes, &receivers);
            let mut nodes: Vec<_> = planned.iter().map(|(node, _)| *node).collect();
            for (place, (_, supplier)) in planned.iter().enumerate() {
                let Supplier::Node(supplier) = supplier else { continue };
                assert!(nodes[..place].contains(supplier), "{bytes} bytes: {planned:?}");
            }
            nodes.sort();
            assert_eq!(nodes, receivers);
            assert!(piece_bytes(bytes, 40) > 0);
        }
        assert_eq!(plan(1000, &[]), []);
    }
}
