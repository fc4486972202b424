//! Who supplies whom, whatever happens in whatever order: no cycle, nobody without a supplier,
//! nobody with too many receivers, and no change that was not told.

#![allow(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::collections::BTreeMap;
use std::time::Instant;

use azekura_policy::spread::{
    Assignment, Candidate, Link, Links, NodeId, SLOW_RECEIVERS_MAX, Shape, Spread, Supplier,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const FAST_ETHERNET: Link = Link { bytes_per_second: 12_500_000, delay_us: 200, message_us: 20 };
const LINKS: Links = Links { source: FAST_ETHERNET, node: FAST_ETHERNET };

#[derive(Clone, Copy, Debug)]
enum Event {
    Failed(u32),
    Slow(u32),
    Joined(u32),
    Done(u32),
}

/// What is known of a node that takes part.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    is_slow: bool,
    has_content: bool,
}

/// The spread, and beside it what was said to it.
struct Watched {
    spread: Spread,
    known: BTreeMap<NodeId, Known>,
    suppliers: BTreeMap<NodeId, Supplier>,
}

impl Watched {
    fn new(shape: Shape, candidates: &[Candidate]) -> Self {
        let spread = Spread::with_shape(shape, 64 * MIB, candidates, LINKS);
        let known = candidates.iter().map(|candidate| {
            let Candidate { has_content, is_slow, .. } = *candidate;
            (candidate.node, Known { is_slow, has_content })
        });
        let mut watched = Self { spread, known: known.collect(), suppliers: BTreeMap::new() };
        watched.suppliers = watched.asked();
        watched.check();
        watched
    }

    fn asked(&self) -> BTreeMap<NodeId, Supplier> {
        let asked = |node: &NodeId| Some((*node, self.spread.supplier_of(*node)?));
        self.known.keys().filter_map(asked).collect()
    }

    fn has_fast(&self) -> bool {
        self.known.values().any(|known| !known.is_slow)
    }

    fn happens(&mut self, event: Event) {
        let assignments = match event {
            Event::Failed(node) => {
                self.known.remove(&NodeId(node));
                self.suppliers.remove(&NodeId(node));
                self.spread.node_failed(NodeId(node))
            }
            Event::Slow(node) => {
                self.known.entry(NodeId(node)).and_modify(|known| known.is_slow = true);
                self.spread.node_is_slow(NodeId(node))
            }
            Event::Joined(node) => {
                let had_fast = self.has_fast();
                let is_new = !self.known.contains_key(&NodeId(node));
                self.known.entry(NodeId(node)).or_default();
                let assignment = self.spread.node_joined(NodeId(node));
                assert_eq!(assignment.is_some(), is_new);
                let from_source = assignment.is_some_and(|a| a.supplier == Supplier::Source);
                assert!(!(from_source && had_fast), "the source is asked though others are there");
                assignment.into_iter().collect()
            }
            Event::Done(node) => {
                self.known.entry(NodeId(node)).and_modify(|known| known.has_content = true);
                self.suppliers.remove(&NodeId(node));
                self.spread.node_done(NodeId(node));
                Vec::new()
            }
        };
        let bound = 1 + self.spread.shape().fan_out as usize + SLOW_RECEIVERS_MAX;
        assert!(assignments.len() <= bound, "{event:?}: {assignments:?}");
        for Assignment { node, supplier } in assignments {
            self.suppliers.insert(node, supplier);
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.suppliers, self.asked(), "told and done are not the same");
        for (node, known) in &self.known {
            assert_eq!(self.spread.has_content(*node), known.has_content, "{node:?}");
            assert_eq!(self.suppliers.contains_key(node), !known.has_content, "{node:?}");
            self.check_way(*node);
            self.check_receivers(Supplier::Node(*node), *known);
        }
        self.check_receivers(Supplier::Source, Known { is_slow: false, has_content: true });
    }

    /// The way from a node up ends at one that has everything, and is made of living nodes.
    fn check_way(&self, node: NodeId) {
        let (mut at, mut steps) = (node, 0);
        while let Some(supplier) = self.suppliers.get(&at) {
            assert!(self.spread.receivers_of(*supplier).any(|receiver| receiver == at));
            let Supplier::Node(above) = supplier else { return };
            assert!(self.known.contains_key(above), "{above:?} is not there");
            (at, steps) = (*above, steps + 1);
            assert!(steps <= self.known.len(), "a cycle at {node:?}");
        }
        assert!(self.known[&at].has_content, "{node:?} hangs at {at:?}, which gets nothing");
    }

    fn check_receivers(&self, supplier: Supplier, known: Known) {
        let shape = self.spread.shape();
        let is_slow = |node: &NodeId| self.known[node].is_slow;
        let (slow, fast): (Vec<_>, Vec<_>) = self.spread.receivers_of(supplier).partition(is_slow);
        let bound = if supplier == Supplier::Source { shape.source_fan_out } else { shape.fan_out };
        assert!(fast.len() <= bound as usize, "{supplier:?} has {fast:?}");
        assert!(slow.len() <= SLOW_RECEIVERS_MAX, "{supplier:?} has {slow:?}");
        assert!(fast.is_empty() || !known.is_slow || known.has_content, "{supplier:?} is slow");
    }
}

fn event(nodes: u32) -> impl Strategy<Value = Event> {
    (0..nodes, 0u32..4).prop_map(|(node, kind)| match kind {
        0 => Event::Failed(node),
        1 => Event::Slow(node),
        2 => Event::Joined(node),
        _ => Event::Done(node),
    })
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let one = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    prop::collection::vec(one, 0..60).prop_map(|all| {
        let numbered = (0..).map(NodeId).zip(all);
        numbered
            .map(|(node, (has_content, is_slow))| Candidate { node, has_content, is_slow })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn whatever_happens_everybody_is_supplied(
        candidates in candidates(),
        fan_out in 1u32..5,
        source_fan_out in 1u32..4,
        events in prop::collection::vec(event(70), 0..200),
    ) {
        let chain = Shape::choose(0, 0, 0, LINKS);
        let mut watched = Watched::new(Shape { fan_out, source_fan_out, ..chain }, &candidates);
        for event in events {
            watched.happens(event);
        }
    }

    #[test]
    fn every_plan_is_a_tree_in_its_bounds(
        nodes in 0u32..300,
        bytes in prop_oneof![0u64..100_000, 0u64..100 * MIB],
        rates in (0u64..200_000_000, 0u64..200_000_000),
        delay_us in 0u64..50_000,
        message_us in 0u64..2_000,
    ) {
        let link = |bytes_per_second| Link { bytes_per_second, delay_us, message_us };
        let links = Links { source: link(rates.0), node: link(rates.1) };
        let shape = Shape::choose(bytes, nodes as usize, 0, links);
        let candidates: Vec<_> = (0..nodes).map(|node| Candidate::new(NodeId(node))).collect();
        prop_assert_eq!(Spread::plan(bytes, &candidates, links).shape(), shape);
        Watched::new(shape, &candidates);
    }
}

fn planned(bytes: u64, nodes: u32) -> Spread {
    let candidates: Vec<_> = (0..nodes).map(|node| Candidate::new(NodeId(node))).collect();
    Spread::plan(bytes, &candidates, LINKS)
}

fn chain_of(spread: &Spread) -> Vec<NodeId> {
    let next = |node: &NodeId| spread.receivers_of(Supplier::Node(*node)).next();
    std::iter::successors(spread.receivers_of(Supplier::Source).next(), next).collect()
}

fn nodes(numbers: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

#[test]
fn a_dead_node_of_a_chain_is_spliced_out() {
    let mut spread = planned(64 * MIB, 6);
    assert_eq!(chain_of(&spread), nodes(0..6));
    let moved = spread.node_failed(NodeId(2));
    assert_eq!(moved, [Assignment { node: NodeId(3), supplier: Supplier::Node(NodeId(1)) }]);
    let moved = spread.node_failed(NodeId(0));
    assert_eq!(moved, [Assignment { node: NodeId(1), supplier: Supplier::Source }]);
    assert_eq!(spread.node_failed(NodeId(5)), [], "nobody hangs at the tail");
    assert_eq!(chain_of(&spread), nodes([1, 3, 4]));
}

#[test]
fn a_slow_node_of_a_chain_becomes_its_end() {
    let mut spread = planned(64 * MIB, 5);
    spread.node_is_slow(NodeId(1));
    assert_eq!(chain_of(&spread), nodes([0, 2, 3, 4, 1]));
    assert_eq!(spread.node_is_slow(NodeId(1)), [], "once is enough");
    let known = [Candidate { is_slow: true, ..Candidate::new(NodeId(0)) }]
        .into_iter()
        .chain((1..4).map(|node| Candidate::new(NodeId(node))));
    let spread = Spread::plan(64 * MIB, &known.collect::<Vec<_>>(), LINKS);
    assert_eq!(chain_of(&spread), nodes([1, 2, 3, 0]), "also when it is known before");
}

#[test]
fn those_that_a_dead_holder_leaves_go_to_another_and_not_to_the_source() {
    let mut spread = planned(64 * MIB, 2);
    spread.node_done(NodeId(0));
    spread.node_done(NodeId(1));
    let asked = spread.node_joined(NodeId(2)).unwrap().supplier;
    assert_eq!(asked, Supplier::Node(NodeId(0)));
    let moved = spread.node_failed(NodeId(0));
    assert_eq!(moved, [Assignment { node: NodeId(2), supplier: Supplier::Node(NodeId(1)) }]);
    let moved = spread.node_failed(NodeId(1));
    assert_eq!(moved, [Assignment { node: NodeId(2), supplier: Supplier::Source }]);
}

#[test]
fn late_nodes_go_to_those_that_have_everything_and_then_to_those_that_have_room() {
    let mut spread = planned(64 * MIB, 4);
    for node in [0, 1, 2] {
        spread.node_done(NodeId(node));
    }
    let asked = (10..14).map(|node| spread.node_joined(NodeId(node)).unwrap().supplier);
    // Node 3 still asks node 2, which has no room for a second; so it goes on below node 3.
    assert_eq!(asked.collect::<Vec<_>>(), [0, 1, 3, 10].map(|node| Supplier::Node(NodeId(node))));
}

#[test]
fn an_event_among_ten_thousand_nodes_costs_little() {
    for bytes in [8 << 10, 64 * MIB] {
        let mut spread = planned(bytes, 10_000);
        let began = Instant::now();
        for node in (0..10_000).step_by(10) {
            spread.node_failed(NodeId(node));
            spread.node_is_slow(NodeId(node + 1));
            spread.node_done(NodeId(node + 2));
            spread.node_joined(NodeId(node));
        }
        let each_us = began.elapsed().as_secs_f64() * 1e6 / 4000.0;
        // An unoptimised build on a busy machine takes some tens of microseconds.
        assert!(each_us < 500.0, "{each_us} us");
        println!("{bytes} bytes: {each_us:.1} us an event");
    }
}
