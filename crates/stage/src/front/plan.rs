//! Who gets a new content from whom. The one place where that is decided.

use azekura_proto::staging::NodeId;

use crate::message::Supplier;

/// A supplier for each receiver, those that supply before those that they supply.
pub(crate) fn plan(receivers: &[NodeId]) -> Vec<(NodeId, Supplier)> {
    let mut before = Supplier::Front;
    let link = |node: &NodeId| (*node, std::mem::replace(&mut before, Supplier::Node(*node)));
    receivers.iter().map(link).collect()
}
