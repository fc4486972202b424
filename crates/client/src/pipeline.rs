//! Reads kept in flight. Owns connections of its own to each engine, over which requests are sent
//! without waiting, and what is known of the links. Replies are taken off a connection by whichever
//! thread waits for one of them: there is no thread in the background, and what nobody waits for stays
//! in the socket. A request that fails here is not tried again; the caller asks anew in the ordinary way.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use azekura_policy::{LinkEstimate, LinkEstimator, SentRequest};
use azekura_proto::message::{Reply, Request, RequestHead, ShardRef};
use azekura_proto::{EngineId, TargetId, frame};
use azekura_wire::Socket;
use parking_lot::{Condvar, Mutex};

use crate::Pool;
use crate::lane::LaneError;
use crate::link::Borrowed;
use crate::session::this_process;

/// Connections to one engine at most.
const LANES_MAX: usize = 8;
/// What one connection surely carries per round trip, and the most that is believed of one.
const LANE_WINDOW_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 20;
/// Bytes that a connection may be asked for before it has shown that it can carry more.
const FIRST_BYTES: u64 = 512 << 10;
/// Bytes that a reply without data counts for.
const SMALL_BYTES: u32 = 64;

/// What a request in flight asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Bytes of a shard.
    Data {
        /// Offset in the shard's file, in bytes.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// A read lease of the shard.
    Lease,
}

/// What came of a request.
#[derive(Debug)]
enum State {
    /// Not sent yet, or no reply yet.
    Waiting,
    /// The bytes of a shard: fewer than asked for where its file ends.
    Data(Vec<u8>),
    /// A lease, how long it holds in milliseconds, and its version.
    Lease(u32, u64),
    Failed,
}

/// A request in flight.
#[derive(Debug)]
pub struct Fetch {
    target: TargetId,
    data: ShardRef,
    wanted: Wanted,
    sent: Instant,
    /// The connection that it went over.
    flight: AtomicU64,
    state: Mutex<State>,
}

impl Fetch {
    /// A request to the target that has the shard.
    pub fn new(target: TargetId, data: ShardRef, wanted: Wanted) -> Arc<Self> {
        let state = Mutex::new(State::Waiting);
        let flight = AtomicU64::new(0);
        Arc::new(Self { target, data, wanted, sent: Instant::now(), flight, state })
    }

    /// When it was made; not later than it was sent.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        !matches!(*self.state.lock(), State::Waiting)
    }

    /// Whether it came to nothing.
    pub fn has_failed(&self) -> bool {
        matches!(*self.state.lock(), State::Failed)
    }

    /// Copies bytes of the reply from `from` on. False if they are not there.
    pub fn copy(&self, from: usize, to: &mut [u8]) -> bool {
        match &*self.state.lock() {
            State::Data(data) => match data.get(from..from + to.len()) {
                Some(part) => {
                    to.copy_from_slice(part);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    /// The lease: how long it holds in milliseconds, and its version.
    pub fn lease(&self) -> Option<(u32, u64)> {
        match *self.state.lock() {
            State::Lease(lease_ms, version) => Some((lease_ms, version)),
            _ => None,
        }
    }

    /// The bytes are not wanted any more: those that have come are freed, others are when they come.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Data(_)) {
            *state = State::Failed;
        }
    }

    fn asked_bytes(&self) -> u32 {
        match self.wanted {
            Wanted::Data { bytes, .. } => bytes,
            Wanted::Lease => 0,
        }
    }

    fn fail(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::Failed;
        }
    }
}

struct Pending {
    fetch: Arc<Fetch>,
    sent: SentRequest,
}

/// A connection with requests under way. Requests are written under the board's lock, so that their
/// order is known; replies are read by one thread at a time, without it.
struct Flight {
    number: u64,
    engine: EngineId,
    map_version: u32,
    lane_slot: u16,
    sender: Arc<Socket>,
    /// Away while a thread reads.
    reader: Option<Borrowed>,
    pending: VecDeque<Pending>,
    pending_bytes: u64,
    /// What it has brought so far: a young connection is slow, whatever the link.
    brought_bytes: u64,
}

impl Flight {
    /// Whether it has as much to carry as may be trusted to it.
    fn is_laden(&self) -> bool {
        self.pending_bytes >= self.brought_bytes.max(FIRST_BYTES)
    }

    /// Replies that nobody waits for must never meet another user of the lane.
    fn hang_up(reader: &mut Borrowed) {
        let (link, lane) = reader.parts();
        link.disconnect(lane);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.as_mut().filter(|_| !self.pending.is_empty()) {
            Self::hang_up(reader);
        }
    }
}

#[derive(Default)]
struct Board {
    flights: Vec<Flight>,
    next_number: u64,
    links: HashMap<EngineId, LinkEstimator>,
    /// Engines to which a further connection is being made.
    opening: Vec<EngineId>,
    /// What one connection carries per round trip, in bytes.
    lane_window_bytes: u64,
}

/// Reads kept in flight for all files of a pool.
pub struct Pipeline {
    pool: Arc<Pool>,
    started: Instant,
    process: AtomicU32,
    board: Mutex<Board>,
    changed: Condvar,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

impl Board {
    fn flights_of(&self, engine: EngineId) -> impl Iterator<Item = &Flight> {
        self.flights.iter().filter(move |flight| flight.engine == engine)
    }

    /// The flight to an engine that has least to carry. The young ones are spared, so that nobody
    /// waits for what an older one would have brought long since.
    fn lightest(&mut self, engine: EngineId) -> Option<&mut Flight> {
        self.flights
            .iter_mut()
            .filter(|flight| flight.engine == engine)
            .min_by_key(|flight| (flight.is_laden(), flight.pending_bytes))
    }

    /// A flight that can be read from: `own` if it is the only one with something under way, else one
    /// with a reply at hand.
    fn take_readable(&mut self, own: u64) -> Option<(Borrowed, u64, Arc<Fetch>)> {
        let is_idle = |flight: &Flight| flight.reader.is_some() && !flight.pending.is_empty();
        let is_alone = self.flights.iter().filter(|flight| is_idle(flight)).count() == 1;
        let has_input = |flight: &Flight| flight.reader.as_ref().is_some_and(Borrowed::has_input);
        let flight = self.flights.iter_mut().find(|flight| {
            is_idle(flight) && if is_alone { flight.number == own } else { has_input(flight) }
        })?;
        let oldest = Arc::clone(&flight.pending.front()?.fetch);
        Some((flight.reader.take()?, flight.number, oldest))
    }

    /// The sockets on which something is under way and nobody reads.
    fn idle_sockets(&self) -> Vec<Arc<Socket>> {
        self.flights
            .iter()
            .filter(|flight| flight.reader.is_some() && !flight.pending.is_empty())
            .map(|flight| Arc::clone(&flight.sender))
            .collect()
    }

    /// Ends a flight: what was under way on it will not come.
    fn end(&mut self, number: u64) {
        let Some(at) = self.flights.iter().position(|flight| flight.number == number) else {
            return;
        };
        let mut flight = self.flights.swap_remove(at);
        if let Some(reader) = &mut flight.reader {
            Flight::hang_up(reader);
        }
        let estimator = self.links.entry(flight.engine).or_default();
        for pending in flight.pending.drain(..) {
            estimator.failed(pending.sent);
            pending.fetch.fail();
        }
    }

    /// How many connections to an engine its link is worth.
    fn wanted(&self, engine: EngineId) -> usize {
        // Connections made late are slow when the others are fast: they are made at the start.
        let product =
            self.links.get(&engine).map_or(0, |link| link.estimate().hoped_product_bytes());
        let lanes = product.saturating_mul(3) / (self.lane_window_bytes * 2) + 1;
        (lanes as usize).min(LANES_MAX)
    }
}

impl Pipeline {
    /// A pipeline without connections.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self {
            pool,
            started: Instant::now(),
            process: AtomicU32::new(this_process()),
            board: Mutex::new(Board { lane_window_bytes: lane_window_bytes(), ..Board::default() }),
            changed: Condvar::new(),
        })
    }

    /// Microseconds on the clock of the estimates.
    pub fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// The links to the engines of these targets, as one. An engine that nothing is known of makes
    /// the whole unknown.
    pub fn estimate(&self, targets: impl Iterator<Item = TargetId>) -> LinkEstimate {
        let map = self.pool.map();
        let mut engines: Vec<EngineId> =
            targets.filter_map(|target| map.engine_of(target)).collect();
        engines.sort_unstable();
        engines.dedup();
        let board = self.board();
        let of = |engine| board.links.get(engine).map(LinkEstimator::estimate).unwrap_or_default();
        let Some((first, rest)) = engines.split_first() else { return LinkEstimate::default() };
        rest.iter().fold(of(first), |sum, engine| sum.with(of(engine)))
    }

    /// The board. A forked child has none of its parent's connections.
    fn board(&self) -> parking_lot::MutexGuard<'_, Board> {
        let process = this_process();
        let mut board = self.board.lock();
        if self.process.swap(process, Ordering::Relaxed) != process {
            for number in board.flights.iter().map(|flight| flight.number).collect::<Vec<_>>() {
                board.end(number);
            }
            board.opening.clear();
        }
        board
    }

    /// Sends requests, without waiting for what comes of them. One that cannot be sent has failed.
    pub fn send(self: &Arc<Self>, fetches: &[Arc<Fetch>]) {
        for fetch in fetches {
            if self.send_one(fetch).is_none() {
                fetch.fail();
            }
        }
    }

    fn send_one(self: &Arc<Self>, fetch: &Arc<Fetch>) -> Option<()> {
        let engine = self.pool.map().engine_of(fetch.target)?;
        let (have, wanted) = {
            let board = self.board();
            (board.flights_of(engine).count(), board.wanted(engine))
        };
        if have == 0 {
            self.open(fetch.target, engine)?;
        } else if have < wanted {
            self.open_further(fetch.target, engine);
        }
        let mut board = self.board();
        let request = match fetch.wanted {
            Wanted::Data { offset, bytes } => Request::Read { data: fetch.data, offset, bytes },
            Wanted::Lease => Request::LeaseRead { data: fetch.data },
        };
        let now_us = self.now_us();
        let flight = board.lightest(engine)?;
        let number = flight.number;
        let head = RequestHead {
            target: fetch.target,
            map_version: flight.map_version,
            slot: flight.lane_slot,
            sequence: 0,
            resent: false,
        };
        let mut frame = Vec::with_capacity(128);
        frame::encode_into(&mut frame, &(head, &request), 0).ok()?;
        if flight.sender.send_all(&frame).is_err() {
            board.end(number);
            return None;
        }
        fetch.flight.store(number, Ordering::Relaxed);
        let bytes = fetch.asked_bytes();
        flight.pending_bytes += u64::from(bytes.max(SMALL_BYTES));
        let sent = board.links.entry(engine).or_default().sent(now_us, bytes.into());
        let flight = board.flights.iter_mut().find(|flight| flight.number == number)?;
        flight.pending.push_back(Pending { fetch: Arc::clone(fetch), sent });
        Some(())
    }

    /// Makes a connection for the pipeline alone.
    fn open(&self, target: TargetId, engine: EngineId) -> Option<()> {
        let session = self.pool.session();
        let (link, map_version) = session.link(target).ok()?;
        let mut borrowed = session.borrow(link).ok()?;
        let (link, lane) = borrowed.parts();
        if let Err(LaneError::Final(error)) = link.connect(lane, link.patience()) {
            tracing::debug!("no connection to read ahead over: {error}");
        }
        let (sender, lane_slot) = (lane.shared_socket()?, lane.slot());
        let mut board = self.board();
        board.next_number += 1;
        let number = board.next_number;
        board.flights.push(Flight {
            number,
            engine,
            map_version,
            lane_slot,
            sender,
            reader: Some(borrowed),
            pending: VecDeque::new(),
            pending_bytes: 0,
            brought_bytes: 0,
        });
        Some(())
    }

    /// One more connection to an engine whose link one cannot fill. Where the process is our own it
    /// is made beside what goes on.
    fn open_further(self: &Arc<Self>, target: TargetId, engine: EngineId) {
        let mut board = self.board();
        if board.opening.contains(&engine) {
            return;
        }
        board.opening.push(engine);
        drop(board);
        let pipeline = Arc::clone(self);
        let work = move || {
            pipeline.open(target, engine);
            pipeline.board().opening.retain(|other| *other != engine);
        };
        if self.pool.is_guest() {
            return work();
        }
        let started = std::thread::Builder::new().name("azekura-connect".to_owned()).spawn(work);
        if started.is_err() {
            self.board().opening.retain(|other| *other != engine);
        }
    }

    /// Waits until nothing more will come of a request. Meanwhile takes in whatever comes on any
    /// connection: one that nobody reads fills up, and its sender slows down.
    pub fn wait(&self, fetch: &Fetch) {
        let patience = self.pool.session().identity().request_timeout;
        while !fetch.is_over() {
            let mut board = self.board();
            let own = fetch.flight.load(Ordering::Relaxed);
            let flight = board.flights.iter().find(|flight| flight.number == own);
            let Some(flight) = flight.filter(|flight| !flight.pending.is_empty()) else {
                fetch.fail();
                return;
            };
            if flight.reader.is_none() {
                // Another thread reads; it says when something has come.
                self.changed.wait(&mut board);
                continue;
            }
            if let Some((reader, number, oldest)) = board.take_readable(own) {
                drop(board);
                self.receive(reader, number, &oldest);
                continue;
            }
            let sockets = board.idle_sockets();
            drop(board);
            if !azekura_wire::wait_for_any(&sockets, patience) {
                self.board().end(own);
            }
        }
    }

    /// Takes the next reply off a connection.
    fn receive(&self, mut reader: Borrowed, number: u64, oldest: &Fetch) {
        let (link, lane) = reader.parts();
        let waited = !lane.has_input();
        let mut data = vec![0; oldest.asked_bytes() as usize];
        let got = lane.receive(&link.holds, link.engine, &mut data, 1);
        let come = match got {
            Ok(Ok(Reply::Data { bytes, .. })) => {
                data.truncate(bytes as usize);
                Some(State::Data(data))
            }
            Ok(Ok(Reply::Leased { lease_ms, version })) => Some(State::Lease(lease_ms, version)),
            // The connection is whole, and what was asked for cannot be had.
            Ok(_) => Some(State::Failed),
            Err(_) => {
                link.disconnect(lane);
                None
            }
        };
        let now_us = self.now_us();
        let mut board = self.board();
        let Some(come) = come else {
            board.end(number);
            drop(board);
            self.changed.notify_all();
            return;
        };
        let Some(flight) = board.flights.iter_mut().find(|flight| flight.number == number) else {
            drop(board);
            Flight::hang_up(&mut reader);
            return;
        };
        flight.reader = Some(reader);
        if let Some(Pending { fetch, mut sent }) = flight.pending.pop_front() {
            let bytes = fetch.asked_bytes();
            flight.pending_bytes =
                flight.pending_bytes.saturating_sub(u64::from(bytes.max(SMALL_BYTES)));
            flight.brought_bytes += u64::from(bytes);
            let engine = flight.engine;
            *fetch.state.lock() = come;
            let estimator = board.links.entry(engine).or_default();
            estimator.received(&mut sent, now_us, bytes.into(), waited);
            estimator.finished(sent, now_us);
        }
        drop(board);
        self.changed.notify_all();
    }
}

/// What one connection carries per round trip, as the system's bounds for the buffers of a socket have
/// it. The other side's are not known; hosts of one site tend to be set alike.
fn lane_window_bytes() -> u64 {
    let bound = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let bounds = ["tcp_rmem", "tcp_wmem"].map(bound);
    let smaller = bounds.into_iter().flatten().min().unwrap_or(0);
    // About half of a buffer is taken by what the system notes about the data.
    (smaller / 2).clamp(*LANE_WINDOW_BYTES.start(), *LANE_WINDOW_BYTES.end())
}
