//! The state of one content on its way to many nodes: who supplies whom, and who does after a node
//! has died, stalled, come late or got everything. Owns the rules of re-assignment; must never
//! close a cycle, or leave a node without a supplier that needs one.

use super::peers::{Condition, Kind, Peers, SOURCE};
use super::shape::{Links, Shape};

/// How far up the tree one looks for room: all there are at least as far as those below.
const CLIMB_MAX: usize = 8;

/// A node by its number in the caller's list. Numbers are to be dense: memory goes by the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    const fn place(self) -> usize {
        self.0 as usize + 1
    }
}

/// Where a node's pieces come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Supplier {
    /// The file server.
    Source,
    /// Another node.
    Node(NodeId),
}

impl Supplier {
    const fn of(place: usize) -> Self {
        match place {
            SOURCE => Self::Source,
            place => Self::Node(NodeId(place as u32 - 1)),
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Source => SOURCE,
            Self::Node(node) => node.place(),
        }
    }
}

/// A node that asks another supplier from now on, from its own watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Who asks.
    pub node: NodeId,
    /// Who is asked.
    pub supplier: Supplier,
}

/// A node as it is known before the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which one.
    pub node: NodeId,
    /// Whether it has the content already.
    pub has_content: bool,
    /// Whether it is known to be slow.
    pub is_slow: bool,
}

impl Candidate {
    /// A node that is to get the content, and of which nothing is known.
    pub const fn new(node: NodeId) -> Self {
        Self { node, has_content: false, is_slow: false }
    }
}

/// Who supplies whom with one content.
#[derive(Clone, Debug)]
pub struct Spread {
    shape: Shape,
    peers: Peers,
}

impl Spread {
    /// Plans how `bytes` bytes come to `candidates`, those first that stand first. A node that
    /// stands there twice is taken once.
    pub fn plan(bytes: u64, candidates: &[Candidate], links: Links) -> Self {
        let is_holder = |known: &&Candidate| known.has_content && !known.is_slow;
        let holders = candidates.iter().filter(is_holder).count();
        let receivers = candidates.iter().filter(|known| !known.has_content && !known.is_slow);
        let shape = Shape::choose(bytes, receivers.count(), holders, links);
        Self::with_shape(shape, bytes, candidates, links)
    }

    /// The same with a given shape, of which the estimate is not looked at. Who expects many to come
    /// late chooses the shape for all of them, since its bounds stay.
    pub fn with_shape(shape: Shape, bytes: u64, candidates: &[Candidate], links: Links) -> Self {
        let mut spread = Self { shape, peers: Peers::new(shape.fan_out, shape.source_fan_out) };
        let (mut places, mut slow) = (Vec::with_capacity(candidates.len()), Vec::new());
        for holds in [true, false] {
            for known in candidates.iter().filter(|known| known.has_content == holds) {
                let place = known.node.place();
                if spread.peers.condition(place) != Condition::Absent {
                    continue;
                }
                let condition = if holds { Condition::Complete } else { Condition::Receiving };
                match (known.is_slow, holds) {
                    (true, true) => spread.peers.enter(place, condition, true),
                    (true, false) => slow.push(place),
                    (false, _) => {
                        spread.peers.enter(place, condition, false);
                        places.push(place);
                    }
                }
            }
        }
        let is_receiving = |place: &&usize| spread.peers.condition(**place) == Condition::Receiving;
        let receivers = places.iter().filter(is_receiving).count();
        let holders = places.len() - receivers;
        let grown = shape.growth(bytes, holders, links).grow(receivers, f64::INFINITY);
        let suppliers = grown.map(|grown| grown.suppliers).unwrap_or_default();
        for (place, supplier) in places[holders..].iter().zip(suppliers) {
            spread.peers.attach(*place, supplier.map_or(SOURCE, |index| places[index]));
        }
        for place in slow {
            if spread.peers.condition(place) == Condition::Absent {
                spread.peers.enter(place, Condition::Receiving, true);
                spread.attach_slow(place);
            }
        }
        spread
    }

    /// Chain or tree, and the piece size.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Whom a node asks; nobody when it has everything or takes no part.
    pub fn supplier_of(&self, node: NodeId) -> Option<Supplier> {
        self.peers.get(node.place())?.supplier.map(Supplier::of)
    }

    /// Who asks a supplier.
    pub fn receivers_of(&self, supplier: Supplier) -> impl Iterator<Item = NodeId> {
        let peer = self.peers.get(supplier.place());
        let receivers = peer.into_iter().flat_map(|peer| peer.fast.iter().chain(&peer.slow));
        receivers.map(|place| NodeId(*place as u32 - 1))
    }

    /// Whether a node is known to have everything.
    pub fn has_content(&self, node: NodeId) -> bool {
        self.peers.condition(node.place()) == Condition::Complete
    }

    /// A node is gone. Each of its receivers goes to the node's own supplier while that has room,
    /// then to one that has everything, then to one further up the tree, and else to the first with
    /// room below the supplier, where it may wait for what it is ahead.
    pub fn node_failed(&mut self, node: NodeId) -> Vec<Assignment> {
        let place = node.place();
        if self.peers.condition(place) == Condition::Absent {
            return Vec::new();
        }
        let former = self.peers.detach(place);
        let fast = self.peers.release(place, Kind::Fast);
        let slow = self.peers.release(place, Kind::Slow);
        self.peers.mark(place, Condition::Absent, false);
        let mut assignments = self.move_past(former, fast);
        assignments.extend(slow.into_iter().map(|stranded| self.attach_slow(stranded)));
        assignments
    }

    /// A node lags behind what its supplier has. The others are led past it, and it goes where it
    /// holds up nobody.
    pub fn node_is_slow(&mut self, node: NodeId) -> Vec<Assignment> {
        let place = node.place();
        let Some(peer) = self.peers.get(place) else { return Vec::new() };
        let condition = peer.condition;
        if peer.is_slow || condition == Condition::Absent {
            return Vec::new();
        }
        let former = self.peers.detach(place);
        let fast = self.peers.release(place, Kind::Fast);
        self.peers.mark(place, condition, true);
        let mut assignments = self.move_past(former, fast);
        if condition == Condition::Receiving {
            let moved = self.attach_slow(place);
            assignments.extend((Some(moved.supplier.place()) != former).then_some(moved));
        }
        assignments
    }

    /// A node takes part from now on, or again: it asks one that has everything, else one that has
    /// room, and the source only where no other can be asked.
    pub fn node_joined(&mut self, node: NodeId) -> Option<Assignment> {
        let place = node.place();
        if self.peers.condition(place) != Condition::Absent {
            return None;
        }
        let supplier = self.peers.roomiest();
        let supplier = supplier.unwrap_or_else(|| self.peers.down_from(SOURCE, Kind::Fast));
        self.peers.enter(place, Condition::Receiving, false);
        Some(self.attach(place, supplier))
    }

    /// A node has everything: it asks nobody any more, and may be asked by all.
    pub fn node_done(&mut self, node: NodeId) {
        let place = node.place();
        if self.peers.condition(place) == Condition::Receiving {
            self.peers.detach(place);
            let is_slow = self.peers.get(place).is_some_and(|peer| peer.is_slow);
            self.peers.mark(place, Condition::Complete, is_slow);
        }
    }

    fn attach(&mut self, place: usize, supplier: usize) -> Assignment {
        self.peers.attach(place, supplier);
        Assignment { node: NodeId(place as u32 - 1), supplier: Supplier::of(supplier) }
    }

    fn move_past(&mut self, former: Option<usize>, stranded: Vec<usize>) -> Vec<Assignment> {
        let mut assignments = Vec::with_capacity(stranded.len());
        for place in stranded {
            let supplier = self.supplier_for(former.unwrap_or(SOURCE));
            assignments.push(self.attach(place, supplier));
        }
        assignments
    }

    /// Who supplies a detached node with all that hangs below it, after `former`.
    fn supplier_for(&mut self, former: usize) -> usize {
        let has_room = |place: usize| self.peers.has_room(place, Kind::Fast);
        if former != SOURCE && has_room(former) {
            return former;
        }
        if let Some(holder) = self.peers.holder() {
            return holder;
        }
        let above = |place: &usize| self.peers.get(*place).and_then(|peer| peer.supplier);
        let mut ancestors = std::iter::successors(Some(former), above).take(CLIMB_MAX);
        let above = ancestors.find(|place| *place != SOURCE && has_room(*place));
        above.unwrap_or_else(|| self.peers.down_from(former, Kind::Fast))
    }

    /// Hangs a detached slow node where it is in nobody's way: at one that has everything, at the
    /// ends of the tree, and else below other slow ones. Only slow ones hang below it, and none of
    /// these is on any of the ways that are looked at.
    fn attach_slow(&mut self, place: usize) -> Assignment {
        let supplier = self.peers.roomiest_for_slow().unwrap_or_else(|| {
            let start = self.peers.roomiest().unwrap_or(SOURCE);
            self.peers.down_from(start, Kind::Slow)
        });
        self.attach(place, supplier)
    }
}
