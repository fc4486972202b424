//! The table of who supplies whom, the source at place 0 and node *i* at place *i + 1*. Owns the
//! two directions of each edge and the order in which suppliers with room are found; must never
//! decide that an edge is to change.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The place of the source.
pub(super) const SOURCE: usize = 0;
/// Most slow receivers of a supplier: they hardly load it, but everybody may be slow.
pub const SLOW_RECEIVERS_MAX: usize = 2;

/// How far a peer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    /// It takes no part.
    #[default]
    Absent,
    /// It receives.
    Receiving,
    /// It has all of the content.
    Complete,
}

/// What a receiver is to its supplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It keeps up, and may supply others.
    Fast,
    /// It is slow, and supplies slow ones only.
    Slow,
}

/// One peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// How far it is.
    pub(super) condition: Condition,
    /// Whether it is slow.
    pub(super) is_slow: bool,
    /// Where its pieces come from; none for those who need none.
    pub(super) supplier: Option<usize>,
    /// Its place in the order of attachment: the smaller, the closer to the source.
    rank: u32,
    /// Receivers that are not slow.
    pub(super) fast: Vec<usize>,
    /// Slow receivers.
    pub(super) slow: Vec<usize>,
}

impl Peer {
    /// What it is to its supplier.
    pub(super) const fn kind(&self) -> Kind {
        if self.is_slow { Kind::Slow } else { Kind::Fast }
    }

    fn receivers(&mut self, kind: Kind) -> &mut Vec<usize> {
        match kind {
            Kind::Fast => &mut self.fast,
            Kind::Slow => &mut self.slow,
        }
    }
}

/// Who is to be asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// Has everything.
    Holder,
    /// Receives, and passes on what it has.
    Relay,
    /// Has everything, and is slow.
    SlowHolder,
}

/// By tier; holders by receivers, relays by rank.
type FastKey = (Tier, usize, u32, usize);
/// By tier, slow receivers, fast receivers, and the last in rank first.
type SlowKey = (Tier, usize, usize, Reverse<u32>, usize);

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    table: Vec<Peer>,
    fan_out: usize,
    source_fan_out: usize,
    ranks: u32,
    /// Turns the way down, so that no branch of the tree grows alone.
    turn: usize,
    /// Nodes that have room for another fast receiver.
    fast_room: BTreeSet<FastKey>,
    /// Nodes that have room for another slow receiver.
    slow_room: BTreeSet<SlowKey>,
}

impl Peers {
    /// A table with the source only.
    pub(super) fn new(fan_out: u32, source_fan_out: u32) -> Self {
        let source = Peer { condition: Condition::Complete, ..Peer::default() };
        Self {
            table: vec![source],
            fan_out: fan_out.max(1) as usize,
            source_fan_out: source_fan_out.max(1) as usize,
            ranks: 0,
            turn: 0,
            fast_room: BTreeSet::new(),
            slow_room: BTreeSet::new(),
        }
    }

    /// A peer, if the table reaches so far.
    pub(super) fn get(&self, place: usize) -> Option<&Peer> {
        self.table.get(place)
    }

    /// How far a peer is.
    pub(super) fn condition(&self, place: usize) -> Condition {
        self.get(place).map_or(Condition::Absent, |peer| peer.condition)
    }

    fn keys(&self, place: usize) -> (Option<FastKey>, Option<SlowKey>) {
        let peer = &self.table[place];
        let tier = match (peer.condition, peer.is_slow) {
            (Condition::Complete, false) => Tier::Holder,
            (Condition::Receiving, false) => Tier::Relay,
            (Condition::Complete, true) => Tier::SlowHolder,
            _ => return (None, None),
        };
        if place == SOURCE {
            return (None, None);
        }
        let load = if tier == Tier::Relay { 0 } else { peer.fast.len() };
        let fast = (tier, load, peer.rank, place);
        let slow = (tier, peer.slow.len(), peer.fast.len(), Reverse(peer.rank), place);
        (
            self.has_room(place, Kind::Fast).then_some(fast),
            self.has_room(place, Kind::Slow).then_some(slow),
        )
    }

    /// Changes a peer and keeps the order of those with room right.
    fn change(&mut self, place: usize, change: impl FnOnce(&mut Peer)) {
        let (fast, slow) = self.keys(place);
        fast.map(|key| self.fast_room.remove(&key));
        slow.map(|key| self.slow_room.remove(&key));
        change(&mut self.table[place]);
        let (fast, slow) = self.keys(place);
        fast.map(|key| self.fast_room.insert(key));
        slow.map(|key| self.slow_room.insert(key));
    }

    /// Takes a peer in that has neither supplier nor receivers.
    pub(super) fn enter(&mut self, place: usize, condition: Condition, is_slow: bool) {
        if place >= self.table.len() {
            self.table.resize_with(place + 1, Peer::default);
        }
        let rank = self.ranks;
        self.ranks += 1;
        self.change(place, |peer| {
            *peer = Peer { condition, is_slow, rank, ..Peer::default() };
        });
    }

    /// Makes a peer slow, or complete; it must have no supplier.
    pub(super) fn mark(&mut self, place: usize, condition: Condition, is_slow: bool) {
        debug_assert!(self.table[place].supplier.is_none());
        self.change(place, |peer| {
            peer.condition = condition;
            peer.is_slow = is_slow;
        });
    }

    /// Gives a peer without a supplier one.
    pub(super) fn attach(&mut self, place: usize, supplier: usize) {
        let kind = self.table[place].kind();
        self.table[place].supplier = Some(supplier);
        self.change(supplier, |peer| peer.receivers(kind).push(place));
    }

    /// Takes a peer's supplier from it.
    pub(super) fn detach(&mut self, place: usize) -> Option<usize> {
        let kind = self.table[place].kind();
        let supplier = self.table[place].supplier.take()?;
        self.change(supplier, |peer| peer.receivers(kind).retain(|other| *other != place));
        Some(supplier)
    }

    /// Takes a peer's receivers of a kind from it.
    pub(super) fn release(&mut self, place: usize, kind: Kind) -> Vec<usize> {
        let mut released = Vec::new();
        self.change(place, |peer| released = std::mem::take(peer.receivers(kind)));
        for receiver in &released {
            self.table[*receiver].supplier = None;
        }
        released
    }

    /// Whether a peer may have another receiver.
    pub(super) fn has_room(&self, place: usize, kind: Kind) -> bool {
        let peer = &self.table[place];
        let is_tail = peer.is_slow && peer.condition == Condition::Receiving;
        match kind {
            _ if peer.condition == Condition::Absent => false,
            Kind::Slow => peer.slow.len() < SLOW_RECEIVERS_MAX,
            Kind::Fast if place == SOURCE => peer.fast.len() < self.source_fan_out,
            Kind::Fast => !is_tail && peer.fast.len() < self.fan_out,
        }
    }

    /// The node that has the content, is fast and has fewest receivers, if one has room.
    pub(super) fn holder(&self) -> Option<usize> {
        let (tier, _, _, place) = self.fast_room.first()?;
        (*tier == Tier::Holder).then_some(*place)
    }

    /// The node that is best for a fast receiver without receivers of its own.
    pub(super) fn roomiest(&self) -> Option<usize> {
        self.fast_room.first().map(|(.., place)| *place)
    }

    /// The node that is best for a slow receiver, whatever slow ones this supplies.
    pub(super) fn roomiest_for_slow(&self) -> Option<usize> {
        self.slow_room.first().map(|(.., place)| *place)
    }

    /// The first with room from `start` on along its receivers. What hangs below a detached peer is
    /// never met, so that no edge to the answer closes a cycle.
    pub(super) fn down_from(&mut self, start: usize, kind: Kind) -> usize {
        let mut place = start;
        while !self.has_room(place, kind) {
            let peer = &self.table[place];
            let receivers = if kind == Kind::Fast { &peer.fast } else { &peer.slow };
            let Some(next) = receivers.get(self.turn % receivers.len().max(1)) else { break };
            place = *next;
            self.turn = self.turn.wrapping_add(1);
        }
        place
    }
}
