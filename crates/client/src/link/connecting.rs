//! Connecting. Owns how the slots of one link or of several get their connections, and that an engine which does not
//! know what this session has there is told so before anything is asked.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_proto::Incarnation;
use azekura_proto::limits::LEASE_MS;
use azekura_proto::message::{Ticket, Welcome};
use azekura_proto::pool_map::Address;
use azekura_rpc::transport::{EarlyMet, EarlyWanted, Met, Said, Wanted};
use azekura_rpc::{Failure, Slot};

use super::early::EarlySaid;
use super::{Borrowed, Identity, Link};

/// Whoever tries to connect gets this much time for it, also where another engine has used up the call's:
/// with less, one that is there would be taken for one that is away.
const CONNECT_MIN: Duration = Duration::from_secs(1);
/// An engine that has answered within this time knows what there is of the session, unless it has ended since.
const KNOWS_FOR: Duration = Duration::from_secs(10);
/// A connection over which something is asked before the engine lets it in is made within this time.
const EARLY_TIMEOUT: Duration = Duration::from_secs(5);
const _: () = assert!(KNOWS_FOR.as_millis() + EARLY_TIMEOUT.as_millis() < LEASE_MS as u128);

/// What an engine says when it is first called, and about how far away it is.
#[derive(Debug)]
pub(crate) struct FirstWords {
    pub(super) said: Arc<Said>,
    round_trip: Duration,
}

/// Slots of a link that have no connection.
pub(super) struct Lacking<'s> {
    pub(super) link: &'s Link,
    pub(super) slots: Vec<&'s mut Slot>,
    /// How long it may take to make them.
    pub(super) timeout: Duration,
}

/// Gives connections to those of the slots that have none, each link as many as come through: to all engines at once,
/// in the round trips of the farthest, and without threads. `gone` is what has gone already of the calls' time.
pub(crate) fn connect_all<'b>(
    borrowed: impl IntoIterator<Item = &'b mut Borrowed>,
    gone: Duration,
) {
    note_failures(connect_lacking(lacking_among(borrowed, gone)));
}

/// The same for slots over which soon something is asked that changes nothing: engines that are known well enough need
/// not have let them in before.
pub(crate) fn connect_for_looks<'b>(borrowed: impl IntoIterator<Item = &'b mut Borrowed>) {
    let lacking = lacking_among(borrowed, Duration::ZERO);
    let lacking = lacking.into_iter().map(|lacking| (lacking.link.entry(), lacking));
    let (mut early, mut usual) = (Vec::new(), Vec::new());
    for (entry, lacking) in lacking {
        match entry {
            Some(entry) => early.push((entry, lacking)),
            None => usual.push(lacking),
        }
    }
    usual.extend(connect_early(early));
    note_failures(connect_lacking(usual));
}

fn note_failures(connected: Vec<Result<(), Failure>>) {
    for failure in connected.into_iter().filter_map(Result::err) {
        note_failure(&failure);
    }
}

fn note_failure(failure: &impl Display) {
    tracing::debug!("fewer connections for several requests: {failure}");
}

/// The slots that have no connection, by their links.
fn lacking_among<'b>(
    borrowed: impl IntoIterator<Item = &'b mut Borrowed>,
    gone: Duration,
) -> Vec<Lacking<'b>> {
    let mut lacking: Vec<Lacking<'b>> = Vec::new();
    for borrowed in borrowed {
        if borrowed.is_connected() {
            continue;
        }
        let (link, slot) = borrowed.parts();
        let known = lacking.iter_mut().find(|lacking| lacking.link.engine == link.engine);
        if let Some(lacking) = known {
            lacking.slots.push(slot);
        } else {
            let timeout = link.patience().saturating_sub(gone);
            lacking.push(Lacking { link, slots: vec![slot], timeout });
        }
    }
    lacking
}

/// What is known of an engine by which something may be asked over a new connection before it has let that in.
pub(super) struct Entry {
    ticket: Ticket,
    /// The run that knows what there is of the session.
    known_to: Incarnation,
}

/// Gives the slots connections over which nothing was said yet. Gives back what is to be connected in the usual way.
fn connect_early(early: Vec<(Entry, Lacking<'_>)>) -> Vec<Lacking<'_>> {
    let Some((_, Lacking { link, .. })) = early.first() else { return Vec::new() };
    let Identity { network, caller, .. } = &*link.identity;
    let addresses: Vec<Vec<Address>> =
        early.iter().map(|(_, Lacking { link, .. })| link.addresses()).collect();
    let wanted: Vec<EarlyWanted<'_>> = early
        .iter()
        .zip(&addresses)
        .map(|((Entry { ticket, known_to }, Lacking { link, slots, timeout }), addresses)| {
            let (engine, count) = (link.engine, slots.len());
            let timeout = (*timeout).min(EARLY_TIMEOUT);
            let wanted = Wanted { engine, addresses, count, timeout };
            EarlyWanted { wanted, ticket: Some(*ticket), known_to: Some(*known_to) }
        })
        .collect();
    let Some(met) = network.open_early(&wanted, caller) else {
        return early.into_iter().map(|(_, lacking)| lacking).collect();
    };
    for (met, (_, Lacking { link, slots, .. })) in met.into_iter().zip(early) {
        let EarlyMet { conversations, first_error, said, .. } = met;
        first_error.iter().for_each(note_failure);
        *link.early.lock() = Some(EarlySaid::new(said, link.now_us()));
        for (slot, conversation) in slots.into_iter().zip(conversations) {
            slot.attach(conversation);
        }
    }
    Vec::new()
}

/// For each link the error of the first failure, if there was one; the first of its slots are connected, as many as
/// came through.
pub(super) fn connect_lacking(lacking: Vec<Lacking<'_>>) -> Vec<Result<(), Failure>> {
    let Some(Lacking { link, .. }) = lacking.first() else { return Vec::new() };
    let Identity { network, caller, platform, .. } = &*link.identity;
    let addresses: Vec<Vec<Address>> = lacking
        .iter()
        .map(|Lacking { link, .. }| {
            link.nearness.forget();
            link.addresses()
        })
        .collect();
    let now = platform.now();
    let wanted: Vec<Wanted<'_>> = lacking
        .iter()
        .zip(&addresses)
        .map(|(Lacking { link, slots, timeout }, addresses)| Wanted {
            engine: link.engine,
            addresses,
            count: slots.len(),
            timeout: (*timeout).max(CONNECT_MIN),
        })
        .collect();
    let met = network.open_all(&wanted, caller);
    let met = met.into_iter().zip(&wanted).zip(lacking);
    met.map(|((met, wanted), Lacking { link, slots, .. })| {
        link.attach(met, slots, now + wanted.timeout)
    })
    .collect()
}

impl Link {
    /// Gives the slot the first connection of all to the engine, over which something is asked before the
    /// engine has let this session in: it has nothing there that would have to be claimed before. Gives what
    /// the engine will have said with its first answer, which is for [`Link::note_first`]; `None` if the
    /// slot is to be connected in the usual way. What is asked goes out with the hello if it changes nothing
    /// (`only_looks`) and an earlier call has brought a ticket.
    pub(crate) fn connect_first(
        &self,
        slot: &mut Slot,
        only_looks: bool,
        gone: Duration,
    ) -> Result<Option<FirstWords>, Failure> {
        let is_first = !slot.is_connected()
            && !self.is_down()
            && !self.open_references.holds_anything()
            && self.claims.begin_first();
        if !is_first {
            return Ok(None);
        }
        self.nearness.forget();
        let Identity { network, caller, memory, .. } = &*self.identity;
        let timeout = self.patience().saturating_sub(gone).max(CONNECT_MIN);
        let ticket = if only_looks && self.is_remote() {
            memory.links().ticket(&self.shown_addresses())
        } else {
            None
        };
        let addresses = self.addresses();
        let wanted = Wanted { engine: self.engine, addresses: &addresses, count: 1, timeout };
        let wanted = EarlyWanted { wanted, ticket, known_to: None };
        let Some(met) = network.open_early(&[wanted], caller).and_then(|mut met| met.pop()) else {
            return Ok(None);
        };
        let EarlyMet { mut conversations, first_error, said, round_trip } = met;
        let Some(conversation) = conversations.pop() else {
            return Err(first_error.map_or_else(Failure::not_connected, Failure::Broken));
        };
        let round_trip = round_trip.unwrap_or_default();
        self.note_dialled(round_trip);
        slot.attach(conversation);
        Ok(Some(FirstWords { said, round_trip }))
    }

    /// The first answer of the engine has come.
    pub(crate) fn note_first(&self, words: &FirstWords) {
        let FirstWords { said, round_trip } = words;
        if let Some(welcome) = said.welcome.get() {
            self.claims.note_first(welcome.incarnation);
            self.health.note_answered(self.now_us());
        }
        if let Some(ticket) = said.ticket.get()
            && self.is_remote()
            && let Ok(round_trip_us) = u64::try_from(round_trip.as_micros())
        {
            let mut links = self.identity.memory.links();
            links.note_ticket(&self.shown_addresses(), *ticket, round_trip_us);
        }
    }

    /// Gives the slot a connection if it has none.
    pub(crate) fn connect(&self, slot: &mut Slot, timeout: Duration) -> Result<(), Failure> {
        if slot.is_connected() {
            return Ok(());
        }
        let lacking = vec![Lacking { link: self, slots: vec![slot], timeout }];
        connect_lacking(lacking).pop().unwrap_or(Ok(()))
    }

    /// What connections may be made by over which something is asked before the engine has let them in.
    pub(super) fn entry(&self) -> Option<Entry> {
        let now_us = self.now_us();
        let is_known = self.is_remote()
            && !self.is_down()
            && self.health.has_answered_within(now_us, KNOWS_FOR)
            && self.early.lock().as_ref().is_none_or(|early| early.allows_more(now_us));
        if !is_known {
            return None;
        }
        let ticket = self.identity.memory.links().ticket(&self.shown_addresses())?;
        Some(Entry { ticket, known_to: self.claims.incarnation()? })
    }

    /// Gives the slots what came of calling the engine for them, and tells the engine what there is of this session.
    fn attach(
        &self,
        mut met: Met,
        slots: Vec<&mut Slot>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        if let Some(round_trip) = met.round_trip {
            self.note_dialled(round_trip);
        }
        if self.early.lock().take_if(|early| early.has_forgotten()).is_some() {
            self.claims.forget();
        }
        // Whoever was told that the engine knows nothing of the session says first what is open.
        met.good.sort_by_key(|(_, welcome)| !welcome.fresh_session);
        // A time-out of the dialling is a broken link like any other.
        let mut first_failure = met.first_error.map(Failure::Broken);
        let mut slots = slots.into_iter();
        let mut next = slots.next();
        for (conversation, welcome) in met.good {
            let Some(slot) = &mut next else { break };
            slot.attach(conversation);
            match self.claim(slot, &welcome, deadline) {
                Ok(()) => {
                    self.note_up();
                    next = slots.next();
                }
                Err(failure) => {
                    slot.disconnect();
                    let is_late = matches!(failure, Failure::Late);
                    first_failure.get_or_insert(failure);
                    if is_late {
                        // It would be as late for the others, one after another.
                        break;
                    }
                }
            }
        }
        first_failure.map_or(Ok(()), Err)
    }

    fn claim(&self, slot: &mut Slot, welcome: &Welcome, deadline: Instant) -> Result<(), Failure> {
        let Identity { platform, caller, .. } = &*self.identity;
        let left = deadline.saturating_duration_since(platform.now()).max(CONNECT_MIN);
        let time = (&**platform, caller.timeout, left);
        let to = (welcome, self.any_target);
        self.claims.make(slot, to, &self.open_references, time, |status| {
            tracing::warn!(
                "engine {} of pool '{}' has restarted or the session's lease ran out, and what it had open or locked there is not whole: {status}",
                self.engine.0,
                self.identity.pool_name,
            );
        })
    }
}
