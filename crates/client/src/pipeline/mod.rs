//! Reads kept in flight. Owns connections of its own to each engine, over which requests are sent
//! without waiting, and what is known of the links. Replies are taken off a connection by whichever
//! thread waits for one of them: there is no thread in the background, and what nobody waits for stays
//! in the socket. A request that fails here is not tried again; the caller asks anew in the ordinary way.

mod fetch;
mod pace;
mod scheduler;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azekura_platform::{Signal, this_process};
use azekura_policy::LinkEstimate;
use azekura_proto::limits::{CONNECT_EARLY_FROM_US, READ_CONNECTIONS_MAX};
use azekura_proto::{EngineId, TargetId};
use azekura_rpc::Channel;
use azekura_rpc::transport::Line;
use parking_lot::{Mutex, MutexGuard};

use crate::Pool;
use crate::lending::Lender;
use crate::link::Borrowed;
use crate::remembered_links::FAR_US;
pub use fetch::Fetch;
use scheduler::{Clock, Scheduler, Taken};

/// A wait for bytes that is shorter than this found them lying there.
const WAITED: Duration = Duration::from_micros(30);
/// A request that waits to be sent looks about after this long.
const UNSENT: Duration = Duration::from_millis(200);
/// Connections that are made for others, whenever some are made beside what goes on: the pipeline has taken the
/// session's first one, and while all are busy with data whoever asks for something else would have to make one.
const SPARE: usize = 1;

/// Reads kept in flight for all files of a pool.
pub struct Pipeline {
    pool: Arc<Pool>,
    process: AtomicU32,
    clock: Clock,
    scheduler: Mutex<Scheduler>,
    changed: Signal,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.remember_links();
    }
}

impl Lender for Pipeline {
    fn lend(&self, engine: EngineId) {
        if self.process.load(Ordering::Relaxed) != this_process() {
            // They are the parent's.
            return;
        }
        // Its slot goes back without the lock. Whoever has that is about to use a connection.
        let idle = self.scheduler.try_lock().and_then(|mut scheduler| scheduler.take_idle(engine));
        drop(idle);
    }
}

impl Pipeline {
    /// A pipeline without connections.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        Self::over(pool, READ_CONNECTIONS_MAX)
    }

    /// A pipeline that never has more than one connection to an engine, over which every request is
    /// sent as soon as it is given.
    pub fn single(pool: Arc<Pool>) -> Arc<Self> {
        Self::over(pool, 1)
    }

    fn over(pool: Arc<Pool>, connections_max: usize) -> Arc<Self> {
        let clock = Clock { started: pool.platform().now() };
        let pipeline = Arc::new(Self {
            pool,
            process: AtomicU32::new(this_process()),
            clock,
            scheduler: Mutex::new(Scheduler::new(clock, connections_max)),
            changed: Signal::new(),
        });
        let weak = Arc::downgrade(&pipeline);
        pipeline.pool.lenders().add(weak);
        pipeline
    }

    /// Microseconds on the clock of the estimates.
    pub fn now_us(&self) -> u64 {
        self.clock.us_at(self.pool.platform().now())
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
        let mut scheduler = self.scheduler();
        let estimates = of_engines.into_iter().map(|(engine, target)| {
            let way = scheduler.way(engine);
            if let Ok((met, _)) = self.pool.session().link(target)
                && let Some(round_trip_us) = met.round_trip_us()
            {
                let moves = met.moves();
                if std::mem::replace(&mut way.moves, moves) != moves {
                    way.link.has_moved_away(now_us, round_trip_us);
                }
                way.link.suppose_round_trip(now_us, round_trip_us);
                if round_trip_us >= FAR_US && !std::mem::replace(&mut way.is_looked_up, true) {
                    let links = self.pool.session().identity().memory.links();
                    let rate = links.rate(&met.shown_addresses(), round_trip_us);
                    if let Some(rate) = rate {
                        way.link.suppose_rate(rate);
                    }
                }
            }
            way.link.estimate()
        });
        estimates.reduce(LinkEstimate::with).unwrap_or_default()
    }

    /// What the link to a target's engine has turned out to carry when it was kept full, in bytes per second.
    pub fn proven_rate(&self, target: TargetId) -> Option<u64> {
        let engine = self.pool.map().engine_of(target)?;
        self.scheduler().ways.get(&engine)?.link.proven_rate()
    }

    /// Puts on record for later processes what the links to far engines have turned out to carry.
    pub fn remember_links(&self) {
        for link in self.pool.session().links() {
            let known = self
                .scheduler()
                .ways
                .get(&link.engine)
                .map(|way| (way.link.proven_rate(), way.link.estimate().round_trip_us));
            if let Some((Some(rate), round_trip_us @ FAR_US..)) = known {
                let mut links = self.pool.session().identity().memory.links();
                links.note(&link.shown_addresses(), rate, round_trip_us);
            }
        }
    }

    /// The scheduler. A forked child has none of its parent's connections.
    fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        let process = this_process();
        let mut scheduler = self.scheduler.lock();
        if self.process.swap(process, Ordering::Relaxed) != process {
            scheduler.end_all();
        }
        scheduler
    }

    /// Sends requests, without waiting for what comes of them. Those that no connection may carry
    /// yet are sent when others have been answered; one that cannot be sent has failed.
    pub fn send(self: &Arc<Self>, fetches: &[Arc<Fetch>]) {
        if fetches.is_empty() {
            return;
        }
        let map = self.pool.map();
        let now = self.pool.platform().now();
        let mut engines: Vec<(EngineId, TargetId)> = Vec::new();
        let mut scheduler = self.scheduler();
        scheduler.map_version = map.version;
        for fetch in fetches {
            fetch.note_asked(now);
            let Some(engine) = map.engine_of(fetch.target) else {
                fetch.fail();
                continue;
            };
            scheduler.queue(engine, Arc::clone(fetch));
            if engines.iter().all(|(other, _)| *other != engine) {
                engines.push((engine, fetch.target));
            }
        }
        for (engine, target) in engines {
            if scheduler.channels_of(engine) == 0 && scheduler.way(engine).opening == 0 {
                scheduler.way(engine).opening = 1;
                drop(scheduler);
                self.open(target, engine, 1, 0);
                scheduler = self.scheduler();
            }
            if scheduler.dispatch(engine, self.now_us()) {
                // Those that are there have as much to carry as they may.
                let missing = scheduler.missing(engine);
                scheduler.way(engine).opening += missing;
                drop(scheduler);
                self.open_further(target, engine, missing);
                scheduler = self.scheduler();
            }
        }
        drop(scheduler);
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
            let Some(engine) =
                map.engine_of(target).filter(|_| link.round_trip_us >= CONNECT_EARLY_FROM_US)
            else {
                continue;
            };
            let mut scheduler = self.scheduler();
            let missing = scheduler.missing(engine);
            scheduler.way(engine).opening += missing;
            drop(scheduler);
            self.open_further(target, engine, missing);
        }
    }

    /// Makes connections that were announced as being opened, for the pipeline alone, and so many for others. Of those
    /// that are there already one carries at once what is asked for meanwhile: to make the others takes some round trips.
    fn open(&self, target: TargetId, engine: EngineId, count: usize, spare: usize) {
        let mut borrowed = self.borrow(target, count + spare);
        let ready = borrowed.iter().position(|borrowed| borrowed.is_connected());
        let ready = ready.filter(|_| borrowed.len() > 1).map(|place| borrowed.remove(place));
        let mut left = count;
        if let Some(ready) = ready {
            left -= 1;
            self.take_over(engine, 1, vec![ready]);
        }
        self.connect(target, &mut borrowed);
        // The others go back, connected.
        borrowed.truncate(left);
        self.take_over(engine, left, borrowed);
    }

    /// Takes over connections, as many as were made of so many that were announced.
    fn take_over(&self, engine: EngineId, announced: usize, borrowed: Vec<Borrowed>) {
        let channels = borrowed.into_iter().filter_map(|borrowed| Channel::open(borrowed).ok());
        let channels: Vec<_> = channels.collect();
        let mut scheduler = self.scheduler();
        let way = scheduler.way(engine);
        way.opening = way.opening.saturating_sub(announced);
        for channel in channels {
            scheduler.add(engine, channel);
        }
        scheduler.dispatch(engine, self.now_us());
        scheduler.fail_stranded(engine);
        drop(scheduler);
        self.changed.notify_all();
    }

    fn borrow(&self, target: TargetId, count: usize) -> Vec<Borrowed> {
        let session = self.pool.session();
        let Ok((link, _)) = session.link(target) else { return Vec::new() };
        let borrow = |_| session.borrow(Arc::clone(&link)).ok();
        (0..count).map_while(borrow).collect()
    }

    fn connect(&self, target: TargetId, borrowed: &mut [Borrowed]) {
        let Ok((link, _)) = self.pool.session().link(target) else { return };
        let mut slots: Vec<_> = borrowed.iter_mut().map(|borrowed| &mut **borrowed).collect();
        if let Err(failure) = link.connect_several(&mut slots, link.patience()) {
            tracing::debug!("fewer connections to read ahead over: {failure}");
        }
    }

    /// Further connections to an engine whose link those that are there cannot fill, all at once.
    /// Where the process is our own they are made beside what goes on; in somebody else's nobody but
    /// its own threads may be at work.
    fn open_further(self: &Arc<Self>, target: TargetId, engine: EngineId, count: usize) {
        if count == 0 {
            return;
        }
        let pipeline = Arc::clone(self);
        let work = move || pipeline.open(target, engine, count, SPARE);
        if self.pool.is_guest() {
            return work();
        }
        if self.pool.platform().spawn("azekura-connect", Box::new(work)).is_err() {
            self.open(target, engine, count, SPARE);
        }
    }

    /// Waits until nothing more will come of a request. Meanwhile takes in whatever comes on any
    /// connection on which nobody else waits: one that is not read fills up, and its sender slows down.
    pub fn wait(&self, fetch: &Fetch) {
        let patience = self.pool.session().identity().caller.timeout;
        let platform = &**self.pool.platform();
        loop {
            let mut scheduler = self.scheduler();
            if fetch.is_over() {
                return;
            }
            let own = fetch.channel();
            let open = scheduler.channel(own);
            // A reply that another thread has just read is noted before the reading side comes back.
            if open.as_ref().is_some_and(|open| open.is_read) {
                // Another thread waits for it, and says when something has come.
                self.changed.wait_for(platform, &mut scheduler, patience);
                continue;
            }
            if own != 0 && open.is_none_or(|open| open.is_idle()) {
                fetch.fail();
                return;
            }
            let taken = scheduler.take_unread();
            if taken.is_empty() {
                // It waits for a connection, or for others that wait on all there are.
                self.changed.wait_for(platform, &mut scheduler, patience);
                continue;
            }
            drop(scheduler);
            // A request that waits to be sent may go over a connection that is not among these.
            let limit = if own == 0 { patience.min(UNSENT) } else { patience };
            self.receive(&taken, limit, patience);
        }
    }

    /// Waits until something comes on one of the connections, `limit` at most, and takes it. One that
    /// has been silent for as long as `patience` is ended.
    fn receive(&self, taken: &[Taken], limit: Duration, patience: Duration) {
        let lines: Vec<Arc<dyn Line>> =
            taken.iter().map(|taken| Arc::clone(taken.channel.line())).collect();
        let begun = self.pool.platform().now();
        let ready = self.pool.session().identity().network.wait_for_any(&lines, limit);
        let took = self.pool.platform().elapsed(begun);
        for (taken, is_ready) in taken.iter().zip(&ready) {
            if *is_ready {
                self.read(taken, took >= WAITED);
            }
        }
        let mut scheduler = self.scheduler();
        for (taken, is_ready) in taken.iter().zip(ready) {
            let silent = if is_ready { Duration::ZERO } else { took };
            if scheduler.give_back(taken.number, silent, patience) {
                scheduler.end_and_dispatch(taken, self.now_us());
            }
        }
        drop(scheduler);
        self.changed.notify_all();
    }

    /// Takes what has come on a connection. What of a further reply is in the connection's own buffer
    /// would wake nobody, and so is taken too. `waited`: it did not lie in a buffer before.
    fn read(&self, taken: &Taken, mut waited: bool) {
        let mut reader = taken.channel.reader();
        loop {
            let Ok(arrival) = reader.poll(&**self.pool.platform()) else {
                self.scheduler().end_and_dispatch(taken, self.now_us());
                return;
            };
            let is_over = arrival.reply.is_some();
            let is_good = self.scheduler().note(taken, arrival, waited, self.now_us());
            if is_over {
                self.changed.notify_all();
            }
            if !is_good || !is_over || !reader.has_buffered_input() {
                return;
            }
            waited = false;
        }
    }
}
