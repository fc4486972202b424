//! The engines of a simulated pool: virtual time, what falls due in it, who ends when and starts again. Owns the rule by which one thread plays all parts: a request is a call, and
//! whoever waits lets happen what falls due meanwhile. No engine is entered by a client's request while
//! it is in the middle of another one; what other engines ask it may come then.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_platform::SharedPlatform;
use azekura_proto::frame;
use azekura_proto::message::{Request, RequestHead};
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::{EngineId, PoolId, PoolMap, SessionId};
use azekura_store::{Environment, SimulatedDisk};
use parking_lot::Mutex;

use super::clock::Clock;
use super::engine::{Guest, Run};
use super::faults::{Faults, KnownDefect};
use super::history::History;
use super::peers::PeerCalls;
use super::platform::{Place, World, WorldPlatform};
use crate::Random;

/// Time between two passes of an engine's background work.
const PASS: Duration = Duration::from_millis(50);
/// Time between two looks of clients' threads after what is in flight.
const UPKEEP: Duration = Duration::from_millis(120);
/// An engine that ended starts again after this long, at most.
const AWAY_MS_MAX: u64 = 1500;
/// A request that comes late comes after this long, at most.
pub(super) const LATE_MS_MAX: u64 = 3000;
/// The power goes after so many changes of a disk, at most.
const CHANGES_MAX: u64 = 12;
/// The way from one place to another takes this long, at most.
const DELAY_US_MAX: u64 = 500;

/// Something that happens by itself.
pub(super) enum Event {
    Pass(EngineId),
    Start(EngineId),
    /// The threads of clients look after what is in flight.
    LookAfter,
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
pub(super) struct Seat {
    /// Everything that it keeps from one run to the next.
    disk: SimulatedDisk,
    /// `None` while it is down.
    pub(super) run: Option<Arc<Run>>,
    /// The run of the disk that belongs to it: after a loss of power it has another one.
    disk_run: u64,
    /// The number of the last run.
    number: u64,
    /// Whether that run has ended.
    has_ended: bool,
    /// How often it is being called just now.
    entered: u32,
    /// Connections of clients, by number, and those that their client has given up, each with a request
    /// that is still on its way.
    pub(super) guests: BTreeMap<u64, Guest>,
}

/// A pool whose engines are called and not spoken to.
pub(crate) struct Pool {
    map: PoolMap,
    faults: Mutex<Faults>,
    clock: Mutex<Clock<Event>>,
    random: Mutex<Random>,
    engines: Vec<Mutex<Seat>>,
    /// Losses of power.
    power_cuts: AtomicU64,
    /// The number of the last connection.
    pub(super) connections: AtomicU64,
    history: Mutex<History>,
    /// What the threads of clients do from time to time, by the client.
    upkeep: Mutex<BTreeMap<usize, Upkeep>>,
    /// The client that is doing something just now.
    acting: AtomicUsize,
    is_upkeep_under_way: AtomicBool,
    this: Weak<Self>,
}

/// Looks after what a client has in flight.
pub(crate) type Upkeep = Arc<dyn Fn() + Send + Sync>;

/// A connection of a client to an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connection {
    pub(super) engine: EngineId,
    pub(super) session: SessionId,
    pub(super) number: u64,
}

/// An engine that is not there yet.
fn seat(pool: Weak<Pool>, engine: EngineId, seed: u64) -> Mutex<Seat> {
    let platform = Arc::new(WorldPlatform::new(pool, Place::Engine(engine, 0)));
    Mutex::new(Seat {
        disk: SimulatedDisk::new(platform, seed ^ u64::from(engine.0)),
        run: None,
        disk_run: 0,
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

    fn sleep_in(&self, place: Place, time: Duration) {
        self.sleep(time);
        if let Place::Engine(engine, run) = place {
            self.unwind_if_ended(engine, run);
        }
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
            power_cuts: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            history: Mutex::new(History::default()),
            upkeep: Mutex::default(),
            acting: AtomicUsize::new(0),
            is_upkeep_under_way: AtomicBool::new(false),
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
        let place = Place::Engine(engine, run);
        Environment::simulated(Arc::new(WorldPlatform::new(self.this.clone(), place)), disk)
    }

    /// What a client takes from the machine.
    pub(crate) fn client_platform(&self) -> SharedPlatform {
        Arc::new(WorldPlatform::new(self.this.clone(), Place::Client))
    }

    pub(super) fn seat(&self, engine: EngineId) -> &Mutex<Seat> {
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

    pub(super) fn below(&self, bound: u64) -> u64 {
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

    pub(super) fn plan(&self, delay: Duration, event: Event) {
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

    /// From now on a client has a thread that looks after what it has in flight.
    pub(crate) fn look_after(&self, client: usize, upkeep: Upkeep) {
        let is_first = {
            let mut all = self.upkeep.lock();
            let is_first = all.is_empty();
            all.insert(client, upkeep);
            is_first
        };
        if is_first {
            self.plan(UPKEEP, Event::LookAfter);
        }
    }

    /// A client does something: its own thread, which is this one, cannot look after anything meanwhile.
    pub(crate) fn act_as(&self, client: usize) {
        self.acting.store(client, Ordering::Relaxed);
    }

    /// Whether clients have threads, whose requests may come to an engine while it waits in the middle of another one.
    pub(super) fn has_threads(&self) -> bool {
        !self.upkeep.lock().is_empty()
    }

    /// What the threads of all clients do but for that of the one that is doing something.
    fn look_after_others(&self) {
        // One of them may wait for another engine, or for this one.
        if self.is_upkeep_under_way.swap(true, Ordering::Relaxed) {
            return;
        }
        let acting = self.acting.load(Ordering::Relaxed);
        let all = self.upkeep.lock().clone();
        let done = catch_unwind(AssertUnwindSafe(|| {
            all.iter().filter(|(client, _)| **client != acting).for_each(|(_, upkeep)| upkeep());
        }));
        self.is_upkeep_under_way.store(false, Ordering::Relaxed);
        if let Err(cause) = done {
            resume_unwind(cause);
        }
    }

    fn happen(&self, event: Event) {
        let engine = match &event {
            Event::LookAfter => None,
            Event::Pass(engine) | Event::Start(engine) | Event::Late { engine, .. } => {
                Some(*engine)
            }
        };
        if engine.is_some_and(|engine| self.is_entered(engine)) {
            // It is in the middle of something, which only goes on when this returns.
            return self.plan(Duration::from_millis(2), event);
        }
        match event {
            Event::Pass(engine) => {
                self.enter(engine, Run::background_pass);
                if self.enter(engine, Run::is_rolled_back) == Some(true) {
                    self.note(format!("engine {} takes its last commits back", engine.0));
                    self.kill(engine);
                }
                self.plan(PASS, Event::Pass(engine));
            }
            Event::Start(engine) => self.start_engine(engine),
            Event::LookAfter => {
                self.plan(UPKEEP, Event::LookAfter);
                self.look_after_others();
            }
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
            seat.disk_run = seat.disk.runs();
            seat.has_ended = false;
            // Nobody else comes in before it is open.
            seat.entered = 1;
            (seat.number, seat.disk.clone())
        };
        let peers = Box::new(PeerCalls::new(self.this.clone(), engine, number));
        let opened = Run::open(self.environment(engine, number, &disk), peers);
        let mut seat = self.seat(engine).lock();
        seat.entered = 0;
        match opened {
            Ok(run) => seat.run = Some(Arc::new(run)),
            Err(error) => {
                let has_power = seat.disk.runs() == seat.disk_run;
                assert!(!has_power, "engine {} does not start: {error}", engine.0);
            }
        }
        drop(seat);
        if self.end_without_power(engine) {
            return;
        }
        self.note(format!("engine {} starts", engine.0));
    }

    /// The engine ends as by `SIGKILL`, and is started again after a while.
    pub(super) fn kill(&self, engine: EngineId) {
        let mut seat = self.seat(engine).lock();
        seat.guests.clear();
        if std::mem::replace(&mut seat.has_ended, true) {
            return;
        }
        let run = seat.run.take();
        seat.disk.kill();
        drop(seat);
        drop(run);
        self.note(format!("engine {} is killed", engine.0));
        self.plan(Duration::from_millis(self.below(AWAY_MS_MAX)), Event::Start(engine));
    }

    /// The power of the engine's machine goes in the midst of one of the next changes of its disk.
    pub(super) fn cut_power_soon(&self, engine: EngineId) {
        let changes = self.below(CHANGES_MAX);
        self.note(format!("the power of engine {} goes after {changes} changes", engine.0));
        self.seat(engine).lock().disk.cut_power_after(changes);
    }

    /// How often the power has gone.
    pub(crate) fn power_cuts(&self) -> u64 {
        self.power_cuts.load(Ordering::Relaxed)
    }

    /// Ends an engine whose power has gone meanwhile; false if it has not.
    fn end_without_power(&self, engine: EngineId) -> bool {
        let has_gone = {
            let seat = self.seat(engine).lock();
            !seat.has_ended && seat.disk.runs() != seat.disk_run
        };
        if has_gone {
            self.note(format!("the power of engine {} has gone", engine.0));
            self.power_cuts.fetch_add(1, Ordering::Relaxed);
            self.kill(engine);
        }
        has_gone
    }

    /// The engine ends in good order.
    pub(super) fn stop(&self, engine: EngineId) {
        self.enter(engine, Run::finish);
        self.note(format!("engine {} is stopped", engine.0));
        self.kill(engine);
    }

    /// Brings every engine up and lets the pool rest, with nothing going wrong.
    pub(crate) fn settle(&self) {
        self.set_faults(Faults::NONE);
        for seat in &self.engines {
            seat.lock().disk.cut_power_after(u64::MAX);
        }
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
        self.end_without_power(engine);
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
        !seat.has_ended && seat.number == run && seat.disk.runs() == seat.disk_run
    }

    pub(super) fn is_entered(&self, engine: EngineId) -> bool {
        self.seat(engine).lock().entered > 0
    }
}
