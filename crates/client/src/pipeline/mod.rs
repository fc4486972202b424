//! Reads kept in flight. Owns connections of its own to each engine, over which requests are sent
//! without waiting, and what is known of the links. Replies are taken off a connection by whichever
//! thread waits for one of them: there is no thread in the background, and what nobody waits for stays
//! in the socket. A request that fails here is not tried again; the caller asks anew in the ordinary way.

mod board;
mod fetch;
mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use azekura_policy::LinkEstimate;
use azekura_proto::{EngineId, TargetId};
use azekura_wire::Socket;
use parking_lot::{Condvar, Mutex};

use crate::Pool;
use crate::link::Borrowed;
use crate::session::this_process;
pub(crate) use board::lane_window_bytes;
use board::{Board, Flight, Taken};
pub use fetch::{Fetch, Wanted};
use reader::{Come, Reader};

/// A wait for bytes that is shorter than this found them lying there.
const WAITED: Duration = Duration::from_micros(30);
/// A request that waits to be sent looks about after this long.
const UNSENT: Duration = Duration::from_millis(200);
/// Round trip, in microseconds, from which on connections are made before they are needed.
const EXPECT_US: u64 = 5_000;

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

impl Pipeline {
    /// A pipeline without connections.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self {
            pool,
            started: Instant::now(),
            process: AtomicU32::new(this_process()),
            board: Mutex::new(Board::new()),
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
        let mut of_engines: Vec<(EngineId, TargetId)> =
            targets.filter_map(|target| Some((map.engine_of(target)?, target))).collect();
        of_engines.sort_unstable();
        of_engines.dedup_by_key(|(engine, _)| *engine);
        let now_us = self.now_us();
        let mut board = self.board();
        let estimates = of_engines.into_iter().map(|(engine, target)| {
            let link = &mut board.way(engine).link;
            if link.estimate().round_trip_us == 0
                && let Some(dialled_us) = self.dialled_us(target)
            {
                link.suppose_round_trip(now_us, dialled_us);
            }
            link.estimate()
        });
        estimates.reduce(LinkEstimate::with).unwrap_or_default()
    }

    /// How long the quickest dialling of a target's engine has taken.
    fn dialled_us(&self, target: TargetId) -> Option<u64> {
        self.pool.session().link(target).ok()?.0.dialled_us()
    }

    /// The board. A forked child has none of its parent's connections.
    fn board(&self) -> parking_lot::MutexGuard<'_, Board> {
        let process = this_process();
        let mut board = self.board.lock();
        if self.process.swap(process, Ordering::Relaxed) != process {
            board.end_all();
        }
        board
    }

    /// Sends requests, without waiting for what comes of them. Those that no connection may carry
    /// yet are sent when others have been answered; one that cannot be sent has failed.
    pub fn send(self: &Arc<Self>, fetches: &[Arc<Fetch>]) {
        let map = self.pool.map();
        let mut engines: Vec<(EngineId, TargetId)> = Vec::new();
        let mut board = self.board();
        board.map_version = map.version;
        for fetch in fetches {
            let Some(engine) = map.engine_of(fetch.target) else {
                fetch.fail();
                continue;
            };
            board.queue(engine, Arc::clone(fetch));
            if engines.iter().all(|(other, _)| *other != engine) {
                engines.push((engine, fetch.target));
            }
        }
        for (engine, target) in engines {
            let is_first = board.flights_of(engine) == 0 && board.way(engine).opening == 0;
            if is_first {
                board.way(engine).opening = 1;
                drop(board);
                self.open(target, engine, 1);
                board = self.board();
            }
            board.dispatch(engine, self.now_us());
            let lacking = board.lacking(engine);
            board.way(engine).opening += lacking;
            drop(board);
            self.open_further(target, engine, lacking);
            board = self.board();
        }
        drop(board);
        // A connection may have failed, with what others wait for.
        self.changed.notify_all();
    }

    /// Much may soon be read of these targets: where they are far away, connections are made for it
    /// beside what goes on, since that takes some round trips.
    pub fn expect(self: &Arc<Self>, targets: &[TargetId]) {
        if self.pool.is_guest() {
            return;
        }
        let map = self.pool.map();
        for &target in targets {
            let link = self.estimate(std::iter::once(target));
            let Some(engine) = map.engine_of(target).filter(|_| link.round_trip_us >= EXPECT_US)
            else {
                continue;
            };
            let mut board = self.board();
            let missing = board.missing(engine);
            board.way(engine).opening += missing;
            drop(board);
            self.open_further(target, engine, missing);
        }
    }

    /// Makes connections that were announced as being opened, for the pipeline alone.
    fn open(&self, target: TargetId, engine: EngineId, count: usize) {
        let flights = self.connect(target, engine, count).unwrap_or_default();
        let mut board = self.board();
        let way = board.way(engine);
        way.opening = way.opening.saturating_sub(count);
        for flight in flights {
            board.add(flight);
        }
        board.dispatch(engine, self.now_us());
        board.fail_stranded(engine);
        drop(board);
        self.changed.notify_all();
    }

    fn connect(&self, target: TargetId, engine: EngineId, count: usize) -> Option<Vec<Flight>> {
        let session = self.pool.session();
        let (link, _) = session.link(target).ok()?;
        let borrow = |_| session.borrow(Arc::clone(&link)).ok();
        let mut borrowed: Vec<_> = (0..count).map_while(borrow).collect();
        let mut lanes: Vec<_> = borrowed.iter_mut().map(Borrowed::lane).collect();
        if let Err(error) = link.connect_several(&mut lanes, link.patience()) {
            tracing::debug!("fewer connections to read ahead over: {error:?}");
        }
        let flight = |mut borrowed: Borrowed| {
            let lane = borrowed.lane();
            let (sender, lane_slot) = (lane.shared_socket()?, lane.slot());
            Some(Flight::new(engine, lane_slot, sender, Reader::new(borrowed)))
        };
        Some(borrowed.into_iter().filter_map(flight).collect())
    }

    /// Further connections to an engine whose link those that are there cannot fill, all at once.
    /// Where the process is our own they are made beside what goes on; in somebody else's nobody but
    /// its own threads may be at work.
    fn open_further(self: &Arc<Self>, target: TargetId, engine: EngineId, count: usize) {
        if count == 0 {
            return;
        }
        let pipeline = Arc::clone(self);
        let work = move || pipeline.open(target, engine, count);
        if self.pool.is_guest() {
            return work();
        }
        let started = std::thread::Builder::new().name("azekura-connect".to_owned()).spawn(work);
        if started.is_err() {
            self.open(target, engine, count);
        }
    }

    /// Waits until nothing more will come of a request. Meanwhile takes in whatever comes on any
    /// connection on which nobody else waits: one that is not read fills up, and its sender slows down.
    pub fn wait(&self, fetch: &Fetch) {
        let patience = self.pool.session().identity().request_timeout;
        loop {
            let mut board = self.board();
            if fetch.is_over() {
                return;
            }
            let own = fetch.flight();
            let flight = board.flights.iter().find(|flight| flight.number == own);
            if own != 0 && flight.is_none_or(|flight| flight.pending.is_empty()) {
                fetch.fail();
                return;
            }
            if flight.is_some_and(|flight| flight.reader.is_none()) {
                // Another thread waits for it, and says when something has come.
                self.changed.wait(&mut board);
                continue;
            }
            let taken = board.take_unread();
            if taken.is_empty() {
                // It waits for a connection, or for others that wait on all there are.
                self.changed.wait_for(&mut board, patience);
                continue;
            }
            drop(board);
            // A request that waits to be sent may go over a connection that is not among these.
            let limit = if own == 0 { patience.min(UNSENT) } else { patience };
            self.receive(taken, limit, patience);
        }
    }

    /// Waits until something comes on one of the connections, `limit` at most, and takes it. One that
    /// has been silent for as long as `patience` is ended.
    fn receive(&self, mut taken: Vec<Taken>, limit: Duration, patience: Duration) {
        let sockets: Vec<Arc<Socket>> =
            taken.iter().map(|taken| Arc::clone(&taken.socket)).collect();
        let begun = Instant::now();
        let ready = azekura_wire::wait_for_any(&sockets, limit);
        let took = begun.elapsed();
        let mut silent = Vec::new();
        for (taken, is_ready) in taken.iter_mut().zip(ready) {
            if is_ready {
                self.read(taken, took >= WAITED);
            } else {
                silent.push(taken.number);
            }
        }
        let mut board = self.board();
        for number in silent {
            board.note_silence(number, took, patience);
        }
        for taken in taken {
            board.give_back(taken);
        }
        drop(board);
        self.changed.notify_all();
    }

    /// Takes what has come on a connection. What of a further reply is in the connection's own buffer
    /// would wake nobody, and so is taken too.
    fn read(&self, taken: &mut Taken, mut waited: bool) {
        let mut oldest = self.board().oldest(taken.number);
        while let Some(fetch) = oldest {
            let got = taken.reader.read(&fetch, waited, || self.now_us());
            let is_over = matches!(got.come, Come::Reply(_));
            let mut board = self.board();
            let is_good = board.note(taken.number, got, self.now_us());
            if is_over {
                self.changed.notify_all();
            }
            let goes_on = is_good && is_over && taken.reader.has_buffered_input();
            oldest = if goes_on { board.oldest(taken.number) } else { None };
            waited = false;
        }
    }
}
