//! The engines of a simulated pool and everything between them and their clients: virtual time, what
//! gets lost, who ends when. Owns the rule by which one thread plays all parts: a request is a call, and
//! whoever waits lets happen what falls due meanwhile. No engine is entered by a client's request while
//! it is in the middle of another one; what other engines ask it may come then.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_proto::frame;
use azekura_proto::message::{Answer, Request, RequestHead, Welcome};
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::{EngineId, Oid, PoolId, PoolMap, SessionId};
use azekura_store::{Environment, SimulatedDisk};
use parking_lot::Mutex;

use super::clock::Clock;
use super::engine::{Guest, Run};
use super::faults::{Faults, KnownDefect};
use super::history::History;
use super::peers::PeerCalls;
use super::platform::{RunPlatform, World};
use crate::Random;

/// Time between two passes of an engine's background work.
const PASS: Duration = Duration::from_millis(50);
/// An engine that ended starts again after this long, at most.
const AWAY_MS_MAX: u64 = 1500;
/// A request that comes late comes after this long, at most.
const LATE_MS_MAX: u64 = 3000;
/// The way from one place to another takes this long, at most.
const DELAY_US_MAX: u64 = 500;

/// Something that happens by itself.
enum Event {
    Pass(EngineId),
    Start(EngineId),
    /// A request comes once more, over a connection that the client has given up. It ends with the run.
    Late {
        engine: EngineId,
        guest: u64,
        frame: Vec<u8>,
        bulk: Vec<u8>,
    },
}

/// Unwinds from within an engine that has ended, up to where it was entered.
struct Ended(EngineId);

/// One engine.
struct Seat {
    /// Everything that it keeps from one run to the next.
    disk: SimulatedDisk,
    /// `None` while it is down.
    run: Option<Arc<Run>>,
    /// The number of the last run.
    number: u64,
    /// Whether that run has ended.
    has_ended: bool,
    /// How often it is being called just now.
    entered: u32,
    /// Connections of clients, by number, and those that their client has given up, each with a request
    /// that is still on its way.
    guests: BTreeMap<u64, Guest>,
}

/// A pool whose engines are called and not spoken to.
pub(crate) struct Pool {
    map: PoolMap,
    faults: Mutex<Faults>,
    clock: Mutex<Clock<Event>>,
    random: Mutex<Random>,
    engines: Vec<Mutex<Seat>>,
    /// What each session has open.
    open: Mutex<BTreeMap<SessionId, BTreeSet<Oid>>>,
    /// The number of the last connection.
    connections: AtomicU64,
    history: Mutex<History>,
    this: Weak<Self>,
}

/// A connection of a client to an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connection {
    engine: EngineId,
    number: u64,
}

/// An engine that is not there yet.
fn seat(pool: Weak<Pool>, engine: EngineId, seed: u64) -> Mutex<Seat> {
    let platform = Arc::new(RunPlatform::new(pool, engine, 0));
    Mutex::new(Seat {
        disk: SimulatedDisk::new(platform, seed ^ u64::from(engine.0)),
        run: None,
        number: 0,
        has_ended: true,
        entered: 0,
        guests: BTreeMap::new(),
    })
}

impl World for Pool {
    fn elapsed(&self) -> Duration {
        self.clock.lock().elapsed()
    }

    fn sleep_in(&self, engine: EngineId, run: u64, time: Duration) {
        self.sleep(time);
        self.unwind_if_ended(engine, run);
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        let mut random = self.random.lock();
        buffer.fill_with(|| random.next_u64() as u8);
    }
}

impl Pool {
    /// Formats a pool and starts its engines.
    pub(crate) fn start(engines: u16, targets_each: u16, seed: u64) -> Arc<Self> {
        let entries = vec![EngineEntry { addresses: Vec::new() }; usize::from(engines)];
        let counts = vec![targets_each; usize::from(engines)];
        let map = PoolMap::deal(PoolId([5; 16]), "simulated".to_owned(), entries, &counts);
        let pool = Arc::new_cyclic(|this| Self {
            map,
            faults: Mutex::new(Faults::NONE),
            clock: Mutex::new(Clock::new()),
            random: Mutex::new(Random::new(seed)),
            engines: (0..engines).map(|index| seat(this.clone(), EngineId(index), seed)).collect(),
            open: Mutex::default(),
            connections: AtomicU64::new(0),
            history: Mutex::new(History::default()),
            this: this.clone(),
        });
        for engine in pool.ids() {
            let disk = pool.seat(engine).lock().disk.clone();
            Run::format(pool.environment(engine, 0, &disk), &pool.map, engine);
            disk.make_dir(Path::new("/")).unwrap();
            pool.start_engine(engine);
            pool.plan(PASS, Event::Pass(engine));
        }
        pool
    }

    fn ids(&self) -> impl Iterator<Item = EngineId> + use<> {
        (0..self.engines.len()).map(|index| EngineId(index as u16))
    }

    fn environment(&self, engine: EngineId, run: u64, disk: &SimulatedDisk) -> Environment {
        let platform = RunPlatform::new(self.this.clone(), engine, run);
        Environment::simulated(Arc::new(platform), disk)
    }

    fn seat(&self, engine: EngineId) -> &Mutex<Seat> {
        &self.engines[usize::from(engine.0)]
    }

    pub(crate) fn map(&self) -> &PoolMap {
        &self.map
    }

    /// From now on these go wrong.
    pub(crate) fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// Whether a defect that is known is to show.
    pub(crate) fn shows(&self, defect: KnownDefect) -> bool {
        self.faults.lock().known_defect == Some(defect)
    }

    /// Adds a line to the history.
    pub(crate) fn note(&self, line: String) {
        let elapsed = self.elapsed();
        self.history.lock().note(elapsed, line);
    }

    pub(crate) fn history(&self) -> History {
        self.history.lock().clone()
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.lock().below(bound)
    }

    /// Whether a fault strikes that does so once in `occasions`.
    pub(super) fn strikes(&self, occasions: impl Fn(&Faults) -> u64) -> bool {
        let occasions = occasions(&self.faults.lock());
        occasions > 0 && self.below(occasions) == 0
    }

    pub(super) fn strikes_known(&self, defect: KnownDefect) -> bool {
        self.shows(defect) && self.below(2) == 0
    }

    // -- time

    fn plan(&self, delay: Duration, event: Event) {
        self.clock.lock().plan(delay, event);
    }

    /// Lets time pass, and happen what falls due.
    pub(crate) fn sleep(&self, time: Duration) {
        let until = self.elapsed() + time;
        loop {
            // Not in the condition of the loop: the clock is not to be locked while things happen.
            let Some(event) = self.clock.lock().next(until) else { return };
            self.happen(event);
        }
    }

    /// Leaves an engine that has ended, up to where it was entered.
    pub(super) fn unwind_if_ended(&self, engine: EngineId, run: u64) {
        if !self.is_running(engine, run) {
            resume_unwind(Box::new(Ended(engine)));
        }
    }

    pub(super) fn travel(&self) {
        self.sleep(Duration::from_micros(1 + self.below(DELAY_US_MAX)));
    }

    fn happen(&self, event: Event) {
        let engine = match &event {
            Event::Pass(engine) | Event::Start(engine) | Event::Late { engine, .. } => *engine,
        };
        if self.seat(engine).lock().entered > 0 {
            // It is in the middle of something, which only goes on when this returns.
            return self.plan(Duration::from_millis(2), event);
        }
        match event {
            Event::Pass(engine) => {
                self.enter(engine, Run::background_pass);
                self.plan(PASS, Event::Pass(engine));
            }
            Event::Start(engine) => self.start_engine(engine),
            Event::Late { engine, guest, frame, bulk } => {
                let guest = self.seat(engine).lock().guests.remove(&guest);
                let Some(guest) = guest else { return };
                let (head, request): (RequestHead, Request<'_>) =
                    frame::decode_borrowed(&frame).unwrap();
                let answer = self.enter(engine, |_| guest.call(&head, &request, &bulk));
                let answer = answer.map(|(answer, _)| answer.map(drop));
                self.note(format!("late: {} {head:?} -> {answer:?}", request.name()));
            }
        }
    }

    // -- engines

    fn start_engine(&self, engine: EngineId) {
        let (number, disk) = {
            let mut seat = self.seat(engine).lock();
            assert!(seat.has_ended && seat.entered == 0, "one run at a time");
            seat.number += 1;
            seat.has_ended = false;
            // Nobody else comes in before it is open.
            seat.entered = 1;
            (seat.number, seat.disk.clone())
        };
        let peers = Box::new(PeerCalls::new(self.this.clone(), engine, number));
        let run = Run::open(self.environment(engine, number, &disk), peers);
        let mut seat = self.seat(engine).lock();
        seat.run = Some(Arc::new(run));
        seat.entered = 0;
        drop(seat);
        self.note(format!("engine {} starts", engine.0));
        if !self.shows(KnownDefect::UnlinkBeforeClaim) {
            self.claim_all(engine);
        }
    }

    /// What a session has open from now on.
    pub(crate) fn set_open(&self, session: SessionId, oids: BTreeSet<Oid>) {
        self.open.lock().insert(session, oids);
    }

    /// Every session notices that an engine has started again, before anything else is asked there.
    fn claim_all(&self, engine: EngineId) {
        let open = self.open.lock().clone();
        for (session, oids) in open {
            let holds: Vec<Oid> = self.oids_at(engine, &oids);
            let Some(first) = holds.first() else { continue };
            let Some((connection, _)) = self.connect(engine, session) else { return };
            let (target, map_version) = (first.home(), self.map.version);
            let head = RequestHead { target, map_version, slot: 0, sequence: 0, resent: false };
            let request = Request::Claim { open: holds, locks: Vec::new() };
            // What was being released just now may be gone, and is not missed.
            self.serve(connection, head, &request, &[]);
            self.disconnect(connection);
        }
    }

    /// The objects whose home is at an engine.
    pub(crate) fn oids_at(&self, engine: EngineId, oids: &BTreeSet<Oid>) -> Vec<Oid> {
        let is_there = |oid: &&Oid| self.map.engine_of(oid.home()) == Some(engine);
        oids.iter().filter(is_there).copied().collect()
    }

    /// The engine ends as by `SIGKILL`, and is started again after a while.
    pub(super) fn kill(&self, engine: EngineId) {
        let mut seat = self.seat(engine).lock();
        seat.guests.clear();
        let Some(run) = seat.run.take() else { return };
        seat.has_ended = true;
        seat.disk.kill();
        drop(seat);
        drop(run);
        self.note(format!("engine {} is killed", engine.0));
        self.plan(Duration::from_millis(self.below(AWAY_MS_MAX)), Event::Start(engine));
    }

    /// The engine ends in good order.
    fn stop(&self, engine: EngineId) {
        self.enter(engine, Run::finish);
        self.note(format!("engine {} is stopped", engine.0));
        self.kill(engine);
    }

    /// Brings every engine up and lets the pool rest, with nothing going wrong.
    pub(crate) fn settle(&self) {
        self.set_faults(Faults::NONE);
        self.note("nothing goes wrong any more".to_owned());
        self.sleep(Duration::from_millis(AWAY_MS_MAX.max(LATE_MS_MAX) + 1000));
    }

    /// Lets time pass until no engine is down or in the middle of a transaction.
    ///
    /// # Errors
    ///
    /// There is no end to it.
    pub(crate) fn rest(&self) -> Result<(), String> {
        for _ in 0..200 {
            let is_up = self.ids().all(|engine| self.seat(engine).lock().run.is_some());
            if is_up && self.unfinished() == 0 {
                return Ok(());
            }
            self.sleep(Duration::from_millis(100));
        }
        Err(format!("{} transactions have no end", self.unfinished()))
    }

    /// Transactions that no engine has brought to an end.
    pub(crate) fn unfinished(&self) -> u64 {
        self.ids().filter_map(|engine| self.enter(engine, Run::unfinished)).sum()
    }

    /// Calls an engine. `None`: it is down, or ended in the middle of the call.
    pub(super) fn enter<T>(&self, engine: EngineId, call: impl FnOnce(&Run) -> T) -> Option<T> {
        let (run, number) = {
            let mut seat = self.seat(engine).lock();
            let run = Arc::clone(seat.run.as_ref()?);
            seat.entered += 1;
            (run, seat.number)
        };
        let result = catch_unwind(AssertUnwindSafe(|| call(&run)));
        // Before anybody starts the engine again: it lets go of its directory.
        drop(run);
        self.seat(engine).lock().entered -= 1;
        match result {
            Ok(result) => self.is_running(engine, number).then_some(result),
            Err(cause) if cause.downcast_ref::<Ended>().is_some_and(|ended| ended.0 == engine) => {
                None
            }
            Err(cause) => resume_unwind(cause),
        }
    }

    fn is_running(&self, engine: EngineId, run: u64) -> bool {
        let seat = self.seat(engine).lock();
        !seat.has_ended && seat.number == run
    }

    fn is_entered(&self, engine: EngineId) -> bool {
        self.seat(engine).lock().entered > 0
    }

    // -- clients

    /// Opens a connection of a session to an engine. `None`: the engine is down.
    pub(crate) fn connect(
        &self,
        engine: EngineId,
        session: SessionId,
    ) -> Option<(Connection, Welcome)> {
        let mut seat = self.seat(engine).lock();
        let (guest, welcome) = seat.run.as_ref()?.let_in(session);
        let number = self.number_connection();
        seat.guests.insert(number, guest);
        Some((Connection { engine, number }, welcome))
    }

    fn number_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a connection is still there.
    pub(crate) fn is_connected(&self, connection: Connection) -> bool {
        self.seat(connection.engine).lock().guests.contains_key(&connection.number)
    }

    /// Ends a connection without a word.
    pub(crate) fn disconnect(&self, connection: Connection) {
        let guest = self.seat(connection.engine).lock().guests.remove(&connection.number);
        drop(guest);
    }

    fn serve(
        &self,
        connection: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)> {
        let guest = self.seat(connection.engine).lock().guests.get(&connection.number)?.clone();
        self.enter(connection.engine, |_| guest.call(&head, request, bulk))
    }

    /// Sends a request of a connected client and brings the answer back. `None`: the connection broke.
    pub(crate) fn exchange(
        &self,
        connection: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)> {
        let engine = connection.engine;
        assert!(!self.is_entered(engine), "clients call between operations of engines");
        let broken = |what: &str| {
            self.note(format!("{what}: {} {head:?}", request.name()));
            self.disconnect(connection);
            None
        };
        self.travel();
        if self.strikes(|faults| faults.stopped) {
            self.stop(engine);
        }
        if self.strikes(|faults| faults.killed) {
            self.kill(engine);
            return broken("killed before");
        }
        if self.comes_again_whatever(head, request) {
            self.repeat_later(connection, head, request, bulk);
        }
        if self.strikes(|faults| faults.request_lost) {
            return broken("request lost");
        }
        let Some(answer) = self.serve(connection, head, request, bulk) else {
            return broken("ended inside");
        };
        let is_on_record = answer.0.is_ok() && has_record(request);
        if is_on_record && self.strikes(|faults| faults.late_repeat) {
            self.repeat_later(connection, head, request, bulk);
        }
        if self.strikes(|faults| faults.killed) {
            self.kill(engine);
            return broken("killed after");
        }
        if self.strikes(|faults| faults.answer_lost) {
            return broken("answer lost");
        }
        self.travel();
        Some(answer)
    }

    /// Whether a request comes once more where that is known to go wrong.
    fn comes_again_whatever(&self, head: RequestHead, request: &Request<'_>) -> bool {
        if matches!(request, Request::Write { .. }) {
            return self.strikes_known(KnownDefect::LateWrite);
        }
        head.sequence > 0 && self.strikes_known(KnownDefect::LateRequest)
    }

    fn repeat_later(
        &self,
        Connection { engine, number }: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) {
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &(head, request), bulk.len() as u32).unwrap();
        frame.drain(..frame::HEAD_BYTES);
        let mut seat = self.seat(engine).lock();
        let Some(given_up) = seat.guests.get(&number).cloned() else { return };
        let guest = self.number_connection();
        seat.guests.insert(guest, given_up);
        drop(seat);
        let delay = Duration::from_millis(self.below(LATE_MS_MAX));
        self.plan(delay, Event::Late { engine, guest, frame, bulk: bulk.to_vec() });
    }
}

/// Whether the engine has on record that it has carried such a request out.
fn has_record(request: &Request<'_>) -> bool {
    let makes_inode = matches!(request, Request::Create { .. } | Request::CreateUnlinked { .. });
    request.needs_exact_retry() && !makes_inode
}
