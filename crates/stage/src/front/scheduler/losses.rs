//! What becomes of contents when something is lost: a supplier, a node, the version of a file. Owns who gets the
//! rest from whom then, and how often that is tried.

use std::time::Instant;

use azekura_proto::staging::NodeId;
use rustix::io::Errno;

use super::{Scheduler, State, Travelling, path_of, text_of};
use crate::front::event::Event;
use crate::front::route::Taker;
use crate::message::{ContentId, Supplier, ToAgent};
use crate::stock::Cut;

/// A file that changes whenever it is read is given up after so many times.
const TRIES_MAX: u32 = 5;
/// A node that loses so many suppliers of one content does not get it.
const LOSSES_MAX: u32 = 64;

impl Scheduler {
    /// Nodes that get nothing of what their suppliers have get other suppliers, and those that they supply get
    /// theirs.
    pub(super) fn splice_out_stalled(&mut self, now: Instant) {
        let State { contents, under_way, .. } = &mut self.state;
        let mut stalled = Vec::new();
        for id in under_way.iter() {
            let Some(content) = contents.get_mut(id) else { continue };
            let nodes = content.pace.stalled(&content.route, self.stock.pieces_read(*id), now);
            stalled.extend(nodes.into_iter().map(|node| (node, *id)));
        }
        for (node, id) in stalled {
            self.splice_out(node, id);
        }
    }

    fn splice_out(&mut self, node: NodeId, id: ContentId) {
        let front_has = self.stock.has(id);
        let Some(Travelling { route, pace, .. }) = self.state.contents.get(&id) else { return };
        let Some(at) = route.taker(node).map(|taker| taker.supplier) else { return };
        // Whether it is the node that is sick or what supplies it, nobody is to wait for it.
        let waits = |(_, taker): &(NodeId, Taker)| taker.supplier == Supplier::Node(node);
        let below = route.nodes().filter(|(_, taker)| !taker.has).filter(waits);
        let below = below.map(|(below, _)| below);
        let no_more = below.filter(|below| pace.pieces(*below) >= pace.pieces(node));
        for below in no_more.collect::<Vec<_>>() {
            self.supply_by(below, id, Supplier::Node(node), at);
        }
        let Some(content) = self.state.contents.get(&id) else { return };
        match content.route.replace(node, at, front_has) {
            Some(other) if other != at => self.supply_by(node, id, at, other),
            // There is no other. Its connection may be at fault, which is not told from a slow one.
            _ => {}
        }
    }

    /// Has a node fetch from another supplier than before.
    fn supply_by(&mut self, node: NodeId, id: ContentId, lost: Supplier, supplier: Supplier) {
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        let at_piece = content.pace.pieces(node);
        content.route.set(node, supplier);
        content.pace.given(node);
        self.tell(Event::SupplierLost { content: id.0, node, supplier: lost, at_piece });
        self.say(node, ToAgent::Resupply { content: id, supplier });
    }

    pub(super) fn supplier_lost(
        &mut self,
        node: NodeId,
        id: ContentId,
        lost: Supplier,
        at_piece: u32,
    ) {
        let Some(content) = self.state.contents.get(&id) else { return };
        // If it is another by now, the node has been told.
        let waits = |taker: Taker| !taker.has && taker.supplier == lost;
        if !content.route.taker(node).is_some_and(waits) {
            return;
        }
        self.tell(Event::SupplierLost { content: id.0, node, supplier: lost, at_piece });
        self.resupply(node, id, lost);
    }

    /// Finds another supplier for a node.
    pub(super) fn resupply(&mut self, node: NodeId, id: ContentId, lost: Supplier) {
        let front_has = self.stock.has(id);
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        if let Supplier::Node(lost) = lost {
            content.route.forget_holder(lost);
        }
        let Some(supplier) = content.route.replace(node, lost, front_has) else {
            return self.restart(id, None);
        };
        if content.route.set(node, supplier) > LOSSES_MAX {
            return self.node_failed(node, id, "every supplier of it was lost".to_owned());
        }
        self.say(node, ToAgent::Resupply { content: id, supplier });
    }

    /// A node takes part in a content no more.
    pub(super) fn take_out(&mut self, node: NodeId, id: ContentId) {
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        let lost = Supplier::Node(node);
        let at = content.route.taker(node).map(|taker| taker.supplier);
        let (orphans, _) = content.route.remove(node);
        for orphan in orphans {
            self.tell(Event::SupplierLost {
                content: id.0,
                node: orphan,
                supplier: lost,
                at_piece: 0,
            });
            // What supplied the lost one goes on with the one behind it.
            match at.filter(|at| self.may_supply(*at, id)) {
                Some(supplier) => {
                    if let Some(content) = self.state.contents.get_mut(&id) {
                        content.route.set(orphan, supplier);
                    }
                    self.say(orphan, ToAgent::Resupply { content: id, supplier });
                }
                None => self.resupply(orphan, id, lost),
            }
        }
        self.check_settled(id);
    }

    pub(super) fn may_supply(&self, supplier: Supplier, id: ContentId) -> bool {
        match supplier {
            Supplier::Front => self.stock.has(id),
            Supplier::Node(node) => {
                let content = self.state.contents.get(&id);
                content.is_some_and(|content| content.route.taker(node).is_some())
            }
        }
    }

    pub(super) fn node_gone(&mut self, node: NodeId, why: String) {
        if self.agents.remove(&node).is_none() {
            return;
        }
        tracing::warn!("node {} takes part no more: {why}", node.0);
        self.tell(Event::NodeGone { node, why });
        for wanted in self.state.files.values_mut() {
            wanted.by.remove(&node);
        }
        let has_it = |(id, content): (&ContentId, &Travelling)| {
            content.route.taker(node).is_some().then_some(*id)
        };
        let contents: Vec<ContentId> = self.state.contents.iter().filter_map(has_it).collect();
        for id in contents {
            self.take_out(node, id);
        }
    }

    pub(super) fn node_failed(&mut self, node: NodeId, id: ContentId, why: String) {
        let Some(content) = self.state.contents.get(&id) else { return };
        let path = path_of(&content.description);
        // First: programs that have it open must not wait for another version.
        self.say(node, ToAgent::Abandon { content: id });
        for part in &content.description.parts {
            let place = part.place.clone();
            self.say(node, ToAgent::Refuse { place, errno: Errno::IO.raw_os_error() });
        }
        self.tell(Event::Failed { path, node: Some(node), why });
        self.take_out(node, id);
    }

    /// A node has no room for a content.
    pub(super) fn read_through(&mut self, node: NodeId, id: ContentId, why: String) {
        let Some(content) = self.state.contents.get(&id) else { return };
        let path = path_of(&content.description);
        self.tell(Event::ReadThrough { path, node, why });
        self.take_out(node, id);
    }

    /// A file is not what it was. Whoever has all of it keeps it, and gives it to the others.
    pub(super) fn changed(&mut self, id: ContentId) {
        let Some(content) = self.state.contents.get(&id) else { return };
        if !content.route.nodes().any(|(_, taker)| taker.has) {
            return self.restart(id, None);
        }
        let from_front = |(node, taker): (NodeId, Taker)| {
            (!taker.has && taker.supplier == Supplier::Front).then_some(node)
        };
        for node in content.route.nodes().filter_map(from_front).collect::<Vec<_>>() {
            self.resupply(node, id, Supplier::Front);
        }
    }

    /// Begins the files of a content anew.
    pub(super) fn restart(&mut self, id: ContentId, also: Option<NodeId>) {
        let Some(content) = self.state.contents.remove(&id) else { return };
        self.state.under_way.remove(&id);
        self.stock.forget(id);
        let waiting = content.route.waiting();
        for node in &waiting {
            self.say(*node, ToAgent::Abandon { content: id });
        }
        let description = &content.description;
        let cut = Cut { bytes: description.bytes(), piece_bytes: description.piece_bytes };
        for part in &description.parts {
            let Some(wanted) = self.state.files.get_mut(&part.place) else { continue };
            wanted.before = (!description.is_small()).then_some(cut);
            wanted.content = None;
            wanted.by.extend(waiting.iter().copied().chain(also));
            wanted.tries += 1;
            wanted.bytes = part.attributes.size;
            if wanted.tries >= TRIES_MAX {
                let why = "it changes whenever it is read: stage it when nobody writes to it";
                self.refuse(&part.place, Errno::IO.raw_os_error(), why);
                continue;
            }
            wanted.is_queued = true;
            self.queue(part.place.clone(), part.attributes.size);
            self.tell(Event::Restarted { path: text_of(&part.place) });
        }
    }

    pub(super) fn unreadable(&mut self, id: ContentId, errno: i32) {
        let Some(content) = self.state.contents.remove(&id) else { return };
        self.state.under_way.remove(&id);
        let waiting = content.route.waiting();
        // First: programs that have it open must not wait for another version.
        for node in &waiting {
            self.say(*node, ToAgent::Abandon { content: id });
        }
        for part in &content.description.parts {
            if let Some(wanted) = self.state.files.get_mut(&part.place) {
                wanted.content = None;
                wanted.by.extend(&waiting);
            }
            self.refuse(&part.place, errno, "it cannot be read");
        }
    }
}
