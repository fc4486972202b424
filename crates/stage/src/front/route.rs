//! Which node has a content, and who gets it from whom. Owns the rule that nobody waits for itself, however
//! many nodes in between are lost. Knows nothing of sockets or sources.

use std::collections::BTreeMap;

use azekura_proto::staging::NodeId;

use crate::message::Supplier;

/// A node that gives to so many others is full while it still receives.
const FAN_OUT: usize = 2;

/// The nodes that get one content.
#[derive(Default, Debug)]
pub(crate) struct Route {
    takers: BTreeMap<NodeId, Taker>,
}

/// A node that gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taker {
    pub(crate) supplier: Supplier,
    /// Whether all of it is there.
    pub(crate) has: bool,
    /// How often its supplier was lost.
    pub(crate) losses: u32,
}

impl Route {
    pub(crate) fn new(plan: &[(NodeId, Supplier)]) -> Self {
        let mut route = Self::default();
        for (node, supplier) in plan {
            route.set(*node, *supplier);
        }
        route
    }

    pub(crate) fn taker(&self, node: NodeId) -> Option<Taker> {
        self.takers.get(&node).copied()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, Taker)> {
        self.takers.iter().map(|(node, taker)| (*node, *taker))
    }

    /// Nodes that still wait for some of it.
    pub(crate) fn waiting(&self) -> Vec<NodeId> {
        self.nodes().filter(|(_, taker)| !taker.has).map(|(node, _)| node).collect()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.takers.values().all(|taker| taker.has)
    }

    pub(crate) fn arrived(&mut self, node: NodeId) {
        if let Some(taker) = self.takers.get_mut(&node) {
            taker.has = true;
        }
    }

    /// A node that had all of it gives it no more: it may have dropped it.
    pub(crate) fn forget_holder(&mut self, node: NodeId) {
        if self.takers.get(&node).is_some_and(|taker| taker.has) {
            self.takers.remove(&node);
        }
    }

    /// Gives a node its supplier; how often it has lost one.
    pub(crate) fn set(&mut self, node: NodeId, supplier: Supplier) -> u32 {
        let losses = self.takers.get(&node).map_or(0, |taker| taker.losses + 1);
        self.takers.insert(node, Taker { supplier, has: false, losses });
        losses
    }

    /// Takes a node out; those that waited for it, and who supplied it.
    pub(crate) fn remove(&mut self, node: NodeId) -> (Vec<NodeId>, Option<Supplier>) {
        let removed = self.takers.remove(&node).map(|taker| taker.supplier);
        let waited =
            |(_, taker): &(NodeId, Taker)| !taker.has && taker.supplier == Supplier::Node(node);
        (self.nodes().filter(waited).map(|(node, _)| node).collect(), removed)
    }

    /// Another supplier for a node in the place of one that was lost: that one's own, if there is one to
    /// take over, since whoever supplies it cannot wait for this node; else any that can.
    pub(crate) fn replace(
        &self,
        node: NodeId,
        lost: Supplier,
        front_has: bool,
    ) -> Option<Supplier> {
        if let Supplier::Node(lost) = lost
            && let Some(taker) = self.taker(lost).filter(|taker| !taker.has)
            && self.can_supply(taker.supplier, node, front_has)
        {
            return Some(taker.supplier);
        }
        self.choose(node, Some(lost), front_has)
    }

    /// A supplier for a node: a neighbour that has all of it, one that is getting it, the front.
    pub(crate) fn choose(
        &self,
        node: NodeId,
        lost: Option<Supplier>,
        front_has: bool,
    ) -> Option<Supplier> {
        let others = self.nodes().filter(|(other, taker)| {
            *other != node
                && Some(Supplier::Node(*other)) != lost
                && (taker.has || self.children(*other) < FAN_OUT)
                && self.can_supply(Supplier::Node(*other), node, front_has)
        });
        let best = others.min_by_key(|(other, taker)| (!taker.has, self.children(*other), *other));
        best.map(|(other, _)| Supplier::Node(other)).or(front_has.then_some(Supplier::Front))
    }

    fn children(&self, node: NodeId) -> usize {
        let waits = |taker: &&Taker| !taker.has && taker.supplier == Supplier::Node(node);
        self.takers.values().filter(waits).count()
    }

    /// Whether a supplier can give to a node without waiting for that node itself.
    fn can_supply(&self, supplier: Supplier, node: NodeId, front_has: bool) -> bool {
        let mut at = supplier;
        // No way to the front is longer than there are nodes.
        for _ in 0..=self.takers.len() {
            let Supplier::Node(other) = at else { return front_has };
            match self.taker(other) {
                Some(taker) if taker.has => return other != node,
                Some(taker) if other != node => at = taker.supplier,
                _ => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(nodes: u16) -> Route {
        let before =
            |node| if node == 0 { Supplier::Front } else { Supplier::Node(NodeId(node - 1)) };
        let plan: Vec<_> = (0..nodes).map(|node| (NodeId(node), before(node))).collect();
        Route::new(&plan)
    }

    /// That everybody who waits comes to the front or to one who has it all.
    fn check(route: &Route) {
        for (node, taker) in route.nodes().filter(|(_, taker)| !taker.has) {
            assert!(route.can_supply(taker.supplier, node, true), "{node:?} in {route:?}");
        }
    }

    #[test]
    fn a_node_in_the_middle_is_spliced_out() {
        let mut route = chain(4);
        let lost = Supplier::Node(NodeId(1));
        assert_eq!(route.replace(NodeId(2), lost, true), Some(Supplier::Node(NodeId(0))));
        let (orphans, supplier) = route.remove(NodeId(0));
        assert_eq!((orphans, supplier), (vec![NodeId(1)], Some(Supplier::Front)));
    }

    #[test]
    fn nobody_ever_waits_for_itself() {
        let mut route = chain(6);
        let mut seed = 1u32;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let node = NodeId((seed >> 16) as u16 % 6);
            match (seed >> 8) % 4 {
                0 => route.arrived(node),
                1 => {
                    let (orphans, _) = route.remove(node);
                    for orphan in orphans {
                        let lost = Supplier::Node(node);
                        route.set(orphan, route.replace(orphan, lost, true).unwrap());
                    }
                }
                2 => {
                    let supplier = route.choose(node, None, true).unwrap();
                    route.set(node, supplier);
                }
                _ => {
                    let Some(taker) = route.taker(node).filter(|taker| !taker.has) else {
                        continue;
                    };
                    let supplier = route.replace(node, taker.supplier, true).unwrap();
                    route.set(node, supplier);
                }
            }
            check(&route);
        }
    }

    #[test]
    fn a_late_node_gets_it_from_one_that_has_it() {
        let mut route = chain(2);
        route.arrived(NodeId(0));
        assert_eq!(route.choose(NodeId(5), None, true), Some(Supplier::Node(NodeId(0))));
        assert_eq!(Route::default().choose(NodeId(5), None, false), None);
    }
}
