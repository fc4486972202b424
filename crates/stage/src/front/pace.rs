//! Whether a content moves on at each node that waits for it. Owns the clock by which a supplier that lives but
//! gives nothing is found: it runs only while the supplier is known to have more than the node, so that nobody
//! is blamed who waits himself. Knows nothing of what is done about it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_proto::staging::NodeId;

use crate::front::route::Route;
use crate::message::Supplier;

/// A node that gets no piece for so long although its supplier has more, gets another supplier.
pub(crate) const STALL: Duration = Duration::from_secs(5);
/// Each time for the same node and content it takes twice as long, up to so many times.
const DOUBLINGS_MAX: u32 = 5;

/// How far a content has come.
#[derive(Default)]
pub(crate) struct Pace {
    marks: HashMap<NodeId, Mark>,
}

#[derive(Default)]
struct Mark {
    pieces: u32,
    /// Since when it has got nothing of what its supplier has.
    behind_since: Option<Instant>,
    stalls: u32,
}

impl Pace {
    /// A node has so many pieces.
    pub(crate) fn came(&mut self, node: NodeId, pieces: u32) {
        let mark = self.marks.entry(node).or_default();
        if mark.pieces != pieces {
            mark.pieces = pieces;
            mark.behind_since = None;
        }
    }

    pub(crate) fn pieces(&self, node: NodeId) -> u32 {
        self.marks.get(&node).map_or(0, |mark| mark.pieces)
    }

    /// A node has another supplier, or none.
    pub(crate) fn given(&mut self, node: NodeId) {
        if let Some(mark) = self.marks.get_mut(&node) {
            mark.behind_since = None;
        }
    }

    /// The nodes that get nothing though there is something for them, each once in a while; the front has read
    /// so many pieces.
    pub(crate) fn stalled(&mut self, route: &Route, front: u32, now: Instant) -> Vec<NodeId> {
        let mut stalled = Vec::new();
        for (node, taker) in route.nodes().filter(|(_, taker)| !taker.has) {
            let there = match taker.supplier {
                Supplier::Front => front,
                Supplier::Node(other) if route.taker(other).is_some_and(|other| other.has) => {
                    u32::MAX
                }
                Supplier::Node(other) => self.pieces(other),
            };
            let mark = self.marks.entry(node).or_default();
            if there <= mark.pieces {
                mark.behind_since = None;
                continue;
            }
            let since = *mark.behind_since.get_or_insert(now);
            if now.duration_since(since) >= STALL * (1 << mark.stalls.min(DOUBLINGS_MAX)) {
                mark.stalls += 1;
                mark.behind_since = None;
                stalled.push(node);
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Front, 0, 1, 2.
    fn chain() -> Route {
        let nodes = [0, 1, 2].map(NodeId);
        let suppliers = [Supplier::Front, Supplier::Node(nodes[0]), Supplier::Node(nodes[1])];
        Route::new(&nodes.into_iter().zip(suppliers).collect::<Vec<_>>())
    }

    struct Clock {
        pace: Pace,
        route: Route,
        begun: Instant,
    }

    impl Clock {
        fn new(pieces: [u32; 3]) -> Self {
            let mut clock = Self { pace: Pace::default(), route: chain(), begun: Instant::now() };
            for (node, pieces) in pieces.into_iter().enumerate() {
                clock.pace.came(NodeId(node as u16), pieces);
            }
            clock
        }

        /// Who is found to be stalled in a number of seconds from the beginning, with the second.
        fn run(&mut self, front: u32, seconds: std::ops::Range<u64>) -> Vec<(u64, u16)> {
            let mut found = Vec::new();
            for second in seconds {
                let now = self.begun + Duration::from_secs(second);
                let stalled = self.pace.stalled(&self.route, front, now);
                found.extend(stalled.into_iter().map(|node| (second, node.0)));
            }
            found
        }
    }

    #[test]
    fn a_source_that_stalls_is_nobodys_fault() {
        assert_eq!(Clock::new([7, 7, 7]).run(7, 0..1000), []);
    }

    #[test]
    fn only_the_node_whose_supplier_has_more_is_stalled() {
        let mut clock = Clock::new([9, 4, 4]);
        assert_eq!(clock.run(9, 0..6), [(5, 1)]);
        clock.pace.came(NodeId(1), 9);
        assert_eq!(clock.run(9, 6..11), []);
        clock.pace.came(NodeId(2), 9);
        assert_eq!(clock.run(9, 11..100), []);
    }

    #[test]
    fn what_moves_however_slowly_is_not_stalled() {
        let mut clock = Clock::new([100, 0, 0]);
        for step in 1..40 {
            clock.pace.came(NodeId(1), step as u32);
            clock.pace.came(NodeId(2), step as u32);
            assert_eq!(clock.run(100, step * 4..step * 4 + 4), []);
        }
    }

    #[test]
    fn it_is_tried_less_and_less_often() {
        let found = Clock::new([9, 4, 4]).run(9, 0..1000);
        let seconds: Vec<_> = found.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds[..4], [5, 16, 37, 78]);
        assert!(seconds.len() < 11, "{seconds:?}");
    }

    #[test]
    fn a_supplier_that_has_it_all_has_the_end_too() {
        let mut clock = Clock::new([9, 9, 9]);
        clock.route.arrived(NodeId(0));
        assert_eq!(clock.run(9, 0..6), [(5, 1)]);
    }
}
