//! The link to one engine: its addresses, its slots, and what is known of its health. Owns connecting:
//! whatever is asked goes over a slot of a link, and a slot gets its connection here.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::message::{Request, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, TargetId};
use azekura_rpc::transport::{Caller, Early, Network, Said};
use azekura_rpc::{Attempt, Destination, Failure, Slot};
use parking_lot::RwLock;

use crate::claims::Claims;
use crate::health::Health;
use crate::nearness::Nearness;
use crate::open_references::OpenReferences;
use crate::remembered_links::{FAR_US, LinkMemory};
use crate::slots::Slots;

/// Whoever tries to connect gets this much time for it, also where another engine has used up the call's:
/// with less, one that is there would be taken for one that is away.
const CONNECT_MIN: Duration = Duration::from_secs(1);
/// Whoever has an answer already waits no longer than this to find out how far the engine is.
const ASKED_FOR: Duration = Duration::from_secs(2);

/// What an engine says when it is first called, and about how far away it is.
#[derive(Debug)]
pub(crate) struct FirstWords {
    said: Arc<Said>,
    round_trip: Duration,
}

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
        self.health.note_at_most(self.us(self.identity.platform.now()), took);
    }

    /// Somebody else has found out how long a round trip takes, in microseconds: that counts until the engine is met.
    pub(crate) fn suppose_round_trip(&self, round_trip_us: Option<u64>) {
        if let Some(us) = round_trip_us.filter(|us| *us > 0 && self.round_trip_us().is_none()) {
            self.note_dialled(Duration::from_micros(us));
        }
    }

    fn note_dialled(&self, took: Duration) {
        self.health.note_round_trip(self.us(self.identity.platform.now()), took);
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
        match network.open_early(self.engine, &self.addresses(), caller, ticket, timeout) {
            None => Ok(None),
            Some(Err(error)) => Err(Failure::Broken(error)),
            Some(Ok(Early { conversation, said, round_trip })) => {
                self.note_dialled(round_trip);
                slot.attach(conversation);
                Ok(Some(FirstWords { said, round_trip }))
            }
        }
    }

    /// The first answer of the engine has come.
    pub(crate) fn note_first(&self, words: &FirstWords) {
        let FirstWords { said, round_trip } = words;
        if let Some(welcome) = said.welcome.get() {
            self.claims.note_first(welcome.incarnation);
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
        self.connect_several(&mut [slot], timeout)
    }

    /// Gives connections to those of the slots that have none: all at once, in the round trips of
    /// one, and without threads. If some fail, as many slots as did not are connected, the first
    /// ones; the error is that of the first failure.
    pub(crate) fn connect_several(
        &self,
        slots: &mut [&mut Slot],
        timeout: Duration,
    ) -> Result<(), Failure> {
        let mut lacking: Vec<_> = slots.iter_mut().filter(|slot| !slot.is_connected()).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        self.nearness.forget();
        let Identity { network, caller, .. } = &*self.identity;
        let addresses = self.addresses();
        let timeout = timeout.max(CONNECT_MIN);
        let deadline = self.identity.platform.now() + timeout;
        let mut met = network.open(self.engine, &addresses, lacking.len(), caller, timeout);
        if let Some(round_trip) = met.round_trip {
            self.note_dialled(round_trip);
        }
        // Whoever was told that the engine knows nothing of the session says first what is open.
        met.good.sort_by_key(|(_, welcome)| !welcome.fresh_session);
        // A time-out of the dialling is a broken link like any other.
        let mut first_failure = met.first_error.map(Failure::Broken);
        let mut lacking = lacking.iter_mut();
        let mut next = lacking.next();
        for (conversation, welcome) in met.good {
            let Some(slot) = &mut next else { break };
            slot.attach(conversation);
            match self.claim(slot, &welcome, deadline) {
                Ok(()) => {
                    self.note_up();
                    next = lacking.next();
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

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_platform::system;
    use azekura_proto::message::{Answer, Refusal, Reply, RequestHead, Role};
    use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId, SessionId};
    use azekura_rpc::transport::{Data, Direct, Guest, Service, Sockets, Visit};
    use azekura_wire::{Acceptor, Arrival, Listener, Secret, Tickets};
    use parking_lot::Mutex;

    const SECOND: Duration = Duration::from_secs(1);

    fn link_to(address: Address, secret: &Secret) -> Link {
        let identity = Identity {
            caller: Caller {
                pool: PoolId([1; 16]),
                session: SessionId([2; 16]),
                role: Role::Client,
                secret: secret.clone(),
                timeout: 10 * SECOND,
            },
            pool_name: "p".to_owned(),
            network: Arc::new(Sockets { settle_descriptor: Some(|descriptor| descriptor) }),
            platform: system(),
            is_guest: true,
            memory: Arc::new(LinkMemory::of_this_process()),
        };
        let (engine, target) = (EngineId(0), TargetId(0));
        Link::new(engine, target, vec![address], Arc::new(identity), OpenReferences::default())
    }

    fn free_slots(link: &Link, count: u16) -> Vec<Slot> {
        (0..count).map(|_| *link.slots.take(&*system(), SECOND).unwrap()).collect()
    }

    /// Lets `count` callers in at once, as the engines named, and keeps them until all are in.
    fn serve(listener: &Listener, secret: &Secret, engines: &[u16]) {
        std::thread::scope(|scope| {
            for (number, engine) in engines.iter().enumerate() {
                let socket = listener.accept().unwrap();
                let welcome = Welcome {
                    engine: EngineId(*engine),
                    incarnation: Incarnation(1),
                    map_version: 1,
                    fresh_session: number == 0,
                };
                scope.spawn(move || {
                    let gate = Acceptor { secret, pool: PoolId([1; 16]), tickets: None };
                    gate.receive(socket, |_| Ok(welcome)).map(|arrival| arrival.connection)
                });
            }
        });
    }

    fn connect_to_engines(engines: &[u16], slot_count: u16) -> (Link, Vec<Slot>, bool) {
        let secret = Secret::generate().unwrap();
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &secret);
        let mut slots = free_slots(&link, slot_count);
        let done = std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &secret, engines));
            let mut borrowed: Vec<&mut Slot> = slots.iter_mut().collect();
            link.connect_several(&mut borrowed, 10 * SECOND)
        });
        (link, slots, done.is_ok())
    }

    #[test]
    fn several_slots_are_connected_at_once() {
        let (link, mut slots, is_good) = connect_to_engines(&[0; 8], 8);
        assert!(is_good && slots.iter().all(Slot::is_connected));
        assert_eq!(link.slots.conversations().open_count(), 8);
        assert!(link.round_trip_us().is_some());
        // Nobody listens any more, and nobody is asked.
        let mut again: Vec<&mut Slot> = slots.iter_mut().collect();
        assert!(link.connect_several(&mut again, SECOND).is_ok());
        assert!(link.connect_several(&mut [], SECOND).is_ok());
    }

    #[test]
    fn who_has_time_leaves_a_connection_to_others() {
        let (link, slots, _) = connect_to_engines(&[0; 2], 2);
        for slot in slots {
            link.slots.put(Box::new(slot));
        }
        let spare: Vec<_> = (0..3).map(|_| link.slots.take_spare().unwrap()).collect();
        let are_connected: Vec<_> = spare.iter().map(|slot| slot.is_connected()).collect();
        assert_eq!(are_connected, [true, false, false]);
        assert!(link.slots.take(&*system(), SECOND).unwrap().is_connected());
    }

    /// A frozen engine: its connections stand, and nobody answers on them.
    #[test]
    fn one_known_as_silent_is_asked_for_a_sign_of_life_only() {
        let secret = Secret::generate().unwrap();
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &secret);
        let mut slots = free_slots(&link, 1);
        let slot = &mut slots[0];
        let welcome = Welcome {
            engine: EngineId(0),
            incarnation: Incarnation(1),
            map_version: 1,
            fresh_session: false,
        };
        let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets: None };
        let _frozen = std::thread::scope(|scope| {
            let accepted = || acceptor.receive(listener.accept().unwrap(), |_| Ok(welcome));
            let engine = scope.spawn(accepted);
            link.reach(slot, 1, true, Duration::ZERO).unwrap();
            engine.join().unwrap().unwrap()
        });
        link.reach(slot, 1, true, Duration::ZERO).unwrap();
        link.note_down("it was silent");
        let begun = std::time::Instant::now();
        assert!(matches!(link.reach(slot, 1, true, Duration::ZERO), Err(Failure::Late)));
        assert!((SECOND..5 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    /// The slot, its connection, and the name of a request.
    type WasAsked = (u16, u32, &'static str);

    /// What an engine was asked. It answers no `Release`.
    #[derive(Clone, Default)]
    struct Asked(Arc<Mutex<Vec<WasAsked>>>);

    impl Service for Asked {
        fn admit(&self, _: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
            let (engine, incarnation) = (EngineId(0), Incarnation(1));
            let welcome = Welcome { engine, incarnation, map_version: 1, fresh_session: false };
            Ok((Box::new(self.clone()), welcome))
        }
    }

    impl Visit for Asked {
        fn serve(
            &mut self,
            head: &RequestHead,
            request: &Request<'_>,
            _: &[u8],
        ) -> io::Result<Option<(Answer, Data)>> {
            self.0.lock().push((head.slot, head.connection, request.name()));
            Ok(request.has_reply().then(|| (Ok(Reply::Done), Data::default())))
        }
    }

    #[test]
    fn what_was_given_up_is_fenced_before_anything_is_changed_over_another_slot() {
        let (network, asked) = (Arc::new(Direct::new()), Asked::default());
        network.add(EngineId(0), Arc::new(asked.clone()));
        let secret = Secret::generate().unwrap();
        let mut link = link_to(Address::Tcp("none".to_owned()), &secret);
        let mut identity = Identity::clone(&link.identity);
        (identity.network, identity.caller.timeout) = (network, SECOND / 10);
        link.identity = Arc::new(identity);
        let mut slots = free_slots(&link, 2);
        let [one, other] = slots.as_mut_slice() else { panic!("two slots") };
        for slot in [&mut *one, &mut *other] {
            link.reach(slot, 1, true, Duration::ZERO).unwrap();
        }
        let to = Destination { target: TargetId(0), map_version: 1 };
        let unanswered = Request::Release { oids: Vec::new() };
        let none = Attempt::default();
        one.exchange(to, none, &unanswered, &[], &mut [], Duration::ZERO).unwrap_err();
        one.disconnect();
        assert!(link.is_ready(other, false) && !link.is_ready(other, true));
        link.reach(other, 1, true, Duration::ZERO).unwrap();
        assert!(link.is_ready(other, true));
        link.reach(one, 1, true, Duration::ZERO).unwrap();
        one.exchange(to, none, &Request::Ping, &[], &mut [], Duration::ZERO).unwrap().unwrap();
        let wanted = [(0, 1, "release"), (1, 1, "fence"), (0, 2, "ping")];
        assert_eq!(*asked.0.lock(), wanted);
    }

    /// Lets one caller in who asks before that, as this engine, and answers it once.
    fn serve_early(listener: &Listener, secret: &Secret, engine: u16, refuses: bool) {
        let acceptor = Acceptor { secret, pool: PoolId([1; 16]), tickets: None };
        let welcome = Welcome {
            engine: EngineId(engine),
            incarnation: Incarnation(7),
            map_version: 1,
            fresh_session: true,
        };
        // Long enough for the request to be there as well.
        let pause = Duration::from_millis(50);
        let admitted = acceptor.receive(listener.accept().unwrap(), |_| {
            std::thread::sleep(pause);
            if refuses { Err(Refusal::Full) } else { Ok(welcome) }
        });
        let Ok(Arrival { mut connection, .. }) = admitted else { return };
        connection.recv().unwrap();
        connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
        connection.flush(&[]).unwrap();
    }

    /// What comes of the first request of all, to an engine of this number.
    fn ask_early(engine: u16, refuses: bool) -> (Link, Result<Answer, Failure>) {
        let secret = Secret::generate().unwrap();
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &secret);
        let mut slots = free_slots(&link, 1);
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| serve_early(&listener, &secret, engine, refuses));
            let slot = &mut slots[0];
            let words = link.connect_first(slot, true, Duration::ZERO).unwrap().unwrap();
            assert!(slot.is_connected() && words.said.welcome.get().is_none());
            let to = Destination { target: TargetId(0), map_version: 1 };
            let none = Attempt::default();
            let ping = Request::Ping;
            let answer = slot.exchange(to, none, &ping, &[], &mut [], Duration::ZERO);
            link.note_first(&words);
            answer
        });
        (link, answer)
    }

    #[test]
    fn the_first_request_goes_out_with_the_proof() {
        let (link, answer) = ask_early(0, false);
        assert!(matches!(answer, Ok(Ok(Reply::Done))), "{answer:?}");
        assert_eq!((link.incarnation(), link.claim_count()), (Some(Incarnation(7)), 0));
        // Once only: later connections are made as ever.
        let mut slots = free_slots(&link, 1);
        assert!(link.connect_first(&mut slots[0], true, Duration::ZERO).unwrap().is_none());
    }

    /// What comes of a first request by the ticket of an engine, or of one that has been started anew since.
    fn ask_with_ticket(is_good: bool) -> (bool, Result<Answer, Failure>) {
        let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &secret);
        let welcome = Welcome {
            engine: EngineId(0),
            incarnation: Incarnation(7),
            map_version: 1,
            fresh_session: true,
        };
        let receive = |tickets: &Tickets| {
            let tickets = Some(tickets);
            let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets };
            acceptor.receive(listener.accept().unwrap(), |_| Ok(welcome.clone())).unwrap()
        };
        let slots = &mut free_slots(&link, 2);
        let ask = |slot: &mut Slot, words: &FirstWords| {
            let to = Destination { target: TargetId(0), map_version: 1 };
            let (none, ping) = (Attempt::default(), Request::Ping);
            let answer = slot.exchange(to, none, &ping, &[], &mut [], Duration::ZERO);
            link.note_first(words);
            answer
        };
        let given = std::thread::scope(|scope| {
            let engine = scope.spawn(|| {
                let others = Tickets::new().unwrap();
                let mut arrival = receive(if is_good { &tickets } else { &others });
                arrival.connection.recv().unwrap();
                arrival.connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
                arrival.connection.flush(&[]).unwrap();
            });
            let words = link.connect_first(&mut slots[0], true, Duration::ZERO).unwrap().unwrap();
            ask(&mut slots[0], &words).unwrap().unwrap();
            engine.join().unwrap();
            *words.said.ticket.get().unwrap()
        });
        link.identity.memory.links().note_ticket(&link.shown_addresses(), given, 50_000);
        let next = link_to(listener.address().unwrap(), &secret);
        let mut identity = Identity::clone(&next.identity);
        identity.memory = Arc::clone(&link.identity.memory);
        let next = Link { identity: Arc::new(identity), ..next };
        std::thread::scope(|scope| {
            let engine = scope.spawn(|| {
                let mut arrival = receive(&tickets);
                let (is_early, first) = (arrival.is_to_prove(), arrival.first.take());
                let (_, request): (RequestHead, Request<'_>) =
                    azekura_proto::frame::decode_borrowed(first.as_ref().unwrap()).unwrap();
                assert_eq!(request, Request::Ping);
                arrival.connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
                arrival.connection.flush(&[]).unwrap();
                arrival.take_proof(&secret).unwrap();
                is_early
            });
            let words = next.connect_first(&mut slots[1], true, Duration::ZERO).unwrap().unwrap();
            let answer = ask(&mut slots[1], &words);
            assert_eq!(words.said.welcome.get(), Some(&welcome));
            (engine.join().unwrap(), answer)
        })
    }

    #[test]
    fn the_first_request_goes_out_with_the_hello_where_an_engine_has_given_a_ticket() {
        for is_good in [true, false] {
            let (is_early, answer) = ask_with_ticket(is_good);
            assert!(matches!(answer, Ok(Ok(Reply::Done))), "{answer:?}");
            assert_eq!(is_early, is_good);
        }
    }

    #[test]
    fn who_asks_before_being_let_in_hears_why_it_is_not() {
        for (engine, refuses) in [(0, true), (3, false)] {
            let (link, answer) = ask_early(engine, refuses);
            assert!(matches!(answer, Err(Failure::Broken(_))), "{answer:?}");
            assert_eq!(link.incarnation(), None);
        }
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let (address, secret) = (listener.address().unwrap(), Secret::generate().unwrap());
        // What does not know the secret is asked nothing at all.
        let link = link_to(address, &Secret::generate().unwrap());
        let mut slots = free_slots(&link, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| serve_early(&listener, &secret, 0, false));
            assert!(link.connect_first(&mut slots[0], true, Duration::ZERO).is_err());
            slots.clear();
        });
    }

    #[test]
    fn what_is_held_from_before_is_claimed_before_anything_is_asked() {
        let secret = Secret::generate().unwrap();
        let link = link_to(Address::Tcp("127.0.0.1:1".to_owned()), &secret);
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
        link.open_references.open(oid, &*system());
        let mut slots = free_slots(&link, 1);
        assert!(link.connect_first(&mut slots[0], true, Duration::ZERO).unwrap().is_none());
    }

    #[test]
    fn one_that_meets_another_engine_leaves_the_others_good() {
        let (link, slots, is_good) = connect_to_engines(&[0, 7, 0], 3);
        assert!(!is_good);
        assert_eq!(slots.iter().filter(|slot| slot.is_connected()).count(), 2);
        assert_eq!(link.slots.conversations().open_count(), 2);
    }

    #[test]
    fn where_nobody_listens_no_slot_is_connected() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &Secret::generate().unwrap());
        drop(listener);
        let mut slots = free_slots(&link, 2);
        let done = link.connect_several(&mut slots.iter_mut().collect::<Vec<_>>(), SECOND);
        assert!(matches!(done, Err(Failure::Broken(_))));
        assert!(slots.iter().all(|slot| !slot.is_connected()) && !link.is_connected());
    }
}
