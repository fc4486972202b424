//! The link to one engine: its addresses, its slots, and what is known of its health. Whatever is asked goes over a
//! slot of a link, which is made ready for it here.

mod connecting;
mod early;
#[cfg(test)]
mod early_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::message::Request;
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, TargetId};
use azekura_rpc::transport::{Caller, Network};
use azekura_rpc::{Attempt, Destination, Failure, Slot};
use parking_lot::{Mutex, RwLock};

use crate::claims::Claims;
use crate::health::Health;
use crate::nearness::Nearness;
use crate::open_references::OpenReferences;
use crate::remembered_links::{FAR_US, LinkMemory};
use crate::slots::Slots;
pub(crate) use connecting::{connect_all, connect_for_looks};
use early::EarlySaid;

/// Whoever has an answer already waits no longer than this to find out how far the engine is.
const ASKED_FOR: Duration = Duration::from_secs(2);

/// What all links of a session share.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) caller: Caller,
    pub(crate) pool_name: String,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) platform: SharedPlatform,
    pub(crate) is_guest: bool,
    pub(crate) memory: Arc<LinkMemory>,
}

/// The link to one engine.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) engine: EngineId,
    identity: Arc<Identity>,
    addresses: RwLock<Vec<Address>>,
    nearness: Nearness,
    /// What is sent to the engine is carried out by the thread that sends it.
    pub(crate) is_called: bool,
    /// Any target of the engine, to address what concerns the engine as a whole.
    pub(crate) any_target: TargetId,
    pub(crate) slots: Slots,
    claims: Claims,
    early: Mutex<Option<EarlySaid>>,
    health: Health,
    started: Instant,
    /// The run of the engine that has refused to pass descriptors.
    refused_by: AtomicU64,
    pub(crate) open_references: Arc<OpenReferences>,
}

/// A slot borrowed by a calling thread; given back on drop.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pub(crate) link: Arc<Link>,
    slot: Option<Box<Slot>>,
}

impl Borrowed {
    /// The link and the slot.
    #[expect(clippy::expect_used, reason = "the slot is taken only by drop")]
    pub(crate) fn parts(&mut self) -> (&Link, &mut Slot) {
        (&self.link, self.slot.as_mut().expect("a borrowed slot is there until drop"))
    }
}

impl Deref for Borrowed {
    type Target = Slot;

    #[expect(clippy::expect_used, reason = "the slot is taken only by drop")]
    fn deref(&self) -> &Slot {
        self.slot.as_ref().expect("a borrowed slot is there until drop")
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Slot {
        self.parts().1
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.link.slots.put(slot);
        }
    }
}

impl Link {
    pub(crate) fn new(
        engine: EngineId,
        any_target: TargetId,
        addresses: Vec<Address>,
        identity: Arc<Identity>,
        open_references: OpenReferences,
    ) -> Self {
        let open_references = Arc::new(open_references);
        Self {
            engine,
            addresses: RwLock::new(addresses),
            nearness: Nearness::default(),
            any_target,
            slots: Slots::new(Arc::clone(&open_references) as Arc<_>),
            claims: Claims::default(),
            early: Mutex::default(),
            health: Health::default(),
            is_called: identity.network.is_called(engine),
            started: identity.platform.now(),
            refused_by: AtomicU64::new(0),
            identity,
            open_references,
        }
    }

    /// Takes the slot that was used last, makes one, or waits for one until the request time-out.
    /// Then, the link itself is given back.
    pub(crate) fn borrow(self: Arc<Self>) -> Result<Borrowed, Arc<Self>> {
        match self.slots.take(&*self.identity.platform, self.identity.caller.timeout) {
            Some(slot) => Ok(Borrowed { link: self, slot: Some(slot) }),
            None => Err(self),
        }
    }

    /// Takes a slot if one is idle or can be made. Of an engine that is far away one for which nobody waits: a
    /// connection is made in two round trips, and who needs one is not to wait for that.
    pub(crate) fn borrow_idle(self: Arc<Self>) -> Option<Borrowed> {
        let is_far = self.round_trip_us().is_some_and(|us| us >= FAR_US);
        let slot = if is_far {
            self.slots.take_spare()?
        } else {
            self.slots.take(&*self.identity.platform, Duration::ZERO)?
        };
        Some(Borrowed { link: self, slot: Some(slot) })
    }

    /// Whether any connection is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.slots.conversations().open_count() > 0
    }

    /// See [`Claims::losses`].
    pub(crate) fn losses(&self) -> u64 {
        self.claims.losses()
    }

    /// How often the engine was told what this session has there.
    pub(crate) fn claim_count(&self) -> u64 {
        self.claims.count()
    }

    /// Asks whether the engine is there and knows this session, for as long as `limit`; connects anew
    /// where a connection has died. What fails is left to the next request.
    pub(crate) fn look_after(&self, slot: &mut Slot, map_version: u32, limit: Duration) {
        let was_connected = slot.is_connected();
        let looked = (|| {
            if was_connected {
                match self.ping(slot, map_version, limit) {
                    Ok(()) => return Ok(()),
                    Err(failure @ Failure::Late) => return Err(failure),
                    Err(_) => slot.disconnect(),
                }
            }
            self.connect(slot, limit)
        })();
        match looked {
            Ok(()) => self.note_up(),
            Err(failure) => {
                slot.disconnect();
                tracing::debug!("engine {} is not there just now: {failure}", self.engine.0);
            }
        }
    }

    /// The run of the engine that this session is known to, if it is known to one.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.claims.incarnation()
    }

    pub(crate) fn is_down(&self) -> bool {
        self.health.is_down()
    }

    /// How long a request may try to reach the engine.
    pub(crate) fn patience(&self) -> Duration {
        let timeout = self.identity.caller.timeout;
        if self.is_down() { timeout.min(Duration::from_secs(1)) } else { timeout }
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.addresses.read().clone()
    }

    /// About how long a round trip to the engine takes, in microseconds.
    pub(crate) fn round_trip_us(&self) -> Option<u64> {
        self.health.round_trip_us()
    }

    /// How often the engine was found to have moved away since it was first met.
    pub(crate) fn moves(&self) -> u32 {
        self.health.moves()
    }

    /// When a small request goes out whose answer is to be timed, by [`Link::note_answer`]. A call tells
    /// nothing of a way: however long it takes, it is none.
    pub(crate) fn begin_timing(&self) -> Option<Instant> {
        (!self.is_called && self.health.times_next()).then(|| self.identity.platform.now())
    }

    pub(crate) fn note_answer(&self, sent: Instant) {
        let now = self.identity.platform.now();
        self.health.note_answered(self.us(now));
        self.health.note_round_trip(self.us(now), now.saturating_duration_since(sent));
    }

    /// Whether answers with much data that were asked for then have come so late that [`Link::ask_distance`] is due.
    pub(crate) fn doubts_distance(&self, sent: Instant) -> bool {
        let now = self.identity.platform.now();
        let took = now.saturating_duration_since(sent);
        !self.is_called && self.health.doubts_distance(self.us(now), took)
    }

    /// Asks for something small, over a connection that is there: without that, nothing would tell of an engine that has
    /// moved away while only data are asked for.
    pub(crate) fn ask_distance(&self, slot: &mut Slot, map_version: u32) {
        let sent = self.identity.platform.now();
        match self.ping(slot, map_version, ASKED_FOR) {
            Ok(()) => self.note_answer(sent),
            // The next request meets it again.
            Err(_) => slot.disconnect(),
        }
    }

    /// Something was answered after so long that took a round trip, or more.
    pub(crate) fn note_at_most(&self, took: Duration) {
        self.health.note_at_most(self.now_us(), took);
    }

    /// Somebody else has found out how long a round trip takes, in microseconds: that counts until the engine is met.
    pub(crate) fn suppose_round_trip(&self, round_trip_us: Option<u64>) {
        if let Some(us) = round_trip_us.filter(|us| *us > 0 && self.round_trip_us().is_none()) {
            self.note_dialled(Duration::from_micros(us));
        }
    }

    fn note_dialled(&self, took: Duration) {
        self.health.note_round_trip(self.now_us(), took);
    }

    fn now_us(&self) -> u64 {
        self.us(self.identity.platform.now())
    }

    fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_micros() as u64
    }

    /// Whether the engine may be asked for descriptors: it is on this host, and this run of it has not
    /// refused any.
    pub(crate) fn may_pass_descriptors(&self) -> bool {
        let refused = self.refused_by.load(Ordering::Relaxed);
        let may_come_through = || self.identity.network.passes_descriptors() && self.is_here();
        self.incarnation().is_some_and(|run| run.0 != refused)
            && (self.is_called || may_come_through())
    }

    /// This run of the engine passes none.
    pub(crate) fn note_descriptors_refused(&self) {
        let run = self.incarnation().map_or(0, |run| run.0);
        self.refused_by.store(run, Ordering::Relaxed);
    }

    /// Whether it is reached over a network.
    pub(crate) fn is_remote(&self) -> bool {
        !self.is_called && !self.is_here()
    }

    fn is_here(&self) -> bool {
        self.nearness.is_here(|| self.identity.network.is_near(&self.addresses.read()))
    }

    pub(crate) fn set_addresses(&self, addresses: Vec<Address>) {
        *self.addresses.write() = addresses;
        self.nearness.forget();
    }

    /// The addresses as one text, for messages.
    pub(crate) fn shown_addresses(&self) -> String {
        let shown: Vec<String> = self.addresses.read().iter().map(Address::to_string).collect();
        shown.join(", ")
    }

    /// The engine was not to be reached in time: logged once until it is back.
    pub(crate) fn note_down(&self, cause: &str) {
        if self.health.set_down(true) {
            tracing::warn!(
                "engine {} of pool '{}' at {} cannot be reached: {cause}",
                self.engine.0,
                self.identity.pool_name,
                self.shown_addresses(),
            );
        }
    }

    /// The engine has answered.
    pub(crate) fn note_up(&self) {
        if self.health.set_down(false) {
            tracing::info!(
                "engine {} of pool '{}' at {} is back",
                self.engine.0,
                self.identity.pool_name,
                self.shown_addresses(),
            );
        }
    }

    /// Whether a request may go over the slot as it is; one that `changes` something not while anything
    /// that was given up may still come.
    pub(crate) fn is_ready(&self, slot: &Slot, changes: bool) -> bool {
        let may_change = !changes || !self.slots.conversations().has_given_up();
        slot.is_connected() && !self.is_down() && may_change
    }

    /// Makes the slot ready for a request of a call of which so much time has gone. An engine that was
    /// silent is asked first whether it is there, which it can say however busy it is: a request may
    /// wait for a slow engine, and not once more for one that is away.
    pub(crate) fn reach(
        &self,
        slot: &mut Slot,
        map_version: u32,
        changes: bool,
        gone: Duration,
    ) -> Result<(), Failure> {
        if !slot.is_connected() {
            self.connect(slot, self.patience().saturating_sub(gone))?;
        } else if self.is_down() {
            self.find_out(slot, map_version)?;
        }
        if changes { self.fence(slot, map_version, gone) } else { Ok(()) }
    }

    /// Asks the engine for a sign of life.
    fn find_out(&self, slot: &mut Slot, map_version: u32) -> Result<(), Failure> {
        self.ping(slot, map_version, self.patience())?;
        self.note_up();
        Ok(())
    }

    /// The same, for as long as `limit`.
    fn ping(&self, slot: &mut Slot, map_version: u32, limit: Duration) -> Result<(), Failure> {
        let to = Destination { target: self.any_target, map_version };
        let gone = self.identity.caller.timeout.saturating_sub(limit);
        // Whatever it answers, it is there.
        slot.exchange(to, Attempt::default(), &Request::Ping, &[], &mut [], gone).map(drop)
    }

    /// Tells the engine which connections were given up, so that nothing they still bring is carried out
    /// after what is asked next.
    fn fence(&self, slot: &mut Slot, map_version: u32, gone: Duration) -> Result<(), Failure> {
        let conversations = self.slots.conversations();
        if !conversations.has_given_up() {
            return Ok(());
        }
        let to = Destination { target: self.any_target, map_version };
        let slots = conversations.given_up();
        let fence = Request::Fence { slots: slots.clone() };
        match slot.exchange(to, Attempt::default(), &fence, &[], &mut [], gone)? {
            Ok(_) => conversations.note_fenced(&slots),
            Err(status) => return Err(Failure::Broken(io::Error::other(status.to_string()))),
        }
        Ok(())
    }
}
