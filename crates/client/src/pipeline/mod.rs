//! Reads kept in flight. Owns connections of its own to each engine, over which requests are sent
//! without waiting, and what is known of the links. Replies are taken off a connection by whichever
//! thread waits for one of them: there is no thread in the background, and what nobody waits for stays
//! in the socket. A request that fails here is not tried again; the caller asks anew in the ordinary way.

mod fetch;
mod opening;
mod pace;
mod scheduler;
mod straggler;

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
use crate::link::{Borrowed, connect_for_looks};
use crate::remembered_links::FAR_US;
pub use fetch::Fetch;
use opening::Opening;
use scheduler::{Clock, Scheduler, Taken};

/// A request that waits to be sent looks about after this long.
const UNSENT: Duration = Duration::from_millis(200);
/// Connections that are being made to an engine.
struct Making {
    opening: Opening,
    borrowed: Vec<Borrowed>,
}

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
            self.look_up(&mut scheduler, (engine, target), now_us);
            scheduler.way(engine).link.estimate()
        });
        estimates.reduce(LinkEstimate::with).unwrap_or_default()
    }

    /// Notes what the session knows of the link to an engine, and what an earlier process knew.
    fn look_up(
        &self,
        scheduler: &mut Scheduler,
        (engine, target): (EngineId, TargetId),
        now_us: u64,
    ) {
        let way = scheduler.way(engine);
        let Ok((met, _)) = self.pool.session().link(target) else { return };
        let Some(round_trip_us) = met.round_trip_us() else { return };
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
        let now_us = self.clock.us_at(now);
        let mut engines: Vec<(EngineId, TargetId)> = Vec::new();
        let mut scheduler = self.scheduler();
        scheduler.map_version = map.version;
        for fetch in fetches {
            fetch.note_asked(now);
            let Some(engine) = map.engine_of(fetch.target) else {
                fetch.fail();
                continue;
            };
            if engines.iter().all(|(other, _)| *other != engine) {
                scheduler.end_unheard(engine, now_us);
                engines.push((engine, fetch.target));
            }
            scheduler.queue(engine, Arc::clone(fetch));
        }
        let first = engines.iter().filter_map(|engine| Opening::first(&mut scheduler, *engine));
        let first: Vec<Opening> = first.collect();
        drop(scheduler);
        // What a connection is there for goes out before any is made.
        let mut making = self.begin(&first);
        let met: Vec<_> =
            making.iter().map(|Making { opening, .. }| (opening.engine, opening.target)).collect();
        making.append(&mut self.open_beside(self.dispatch(&engines)));
        self.finish(making);
        // How far those are that were met by that may not have been known.
        self.finish(self.open_beside(self.dispatch(&met)));
        // A connection may have failed, with what others wait for.
        self.changed.notify_all();
    }

    /// Sends what may be sent to these engines. Gives the connections that are missing: those that are there have as
    /// much to carry as they may.
    fn dispatch(&self, engines: &[(EngineId, TargetId)]) -> Vec<Opening> {
        let mut further = Vec::new();
        if engines.is_empty() {
            return further;
        }
        let now_us = self.now_us();
        let mut scheduler = self.scheduler();
        for &(engine, target) in engines {
            if scheduler.dispatch(engine, now_us) {
                self.look_up(&mut scheduler, (engine, target), now_us);
                further.extend(Opening::further(&mut scheduler, (engine, target)));
            }
        }
        further
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
            let engine = map.engine_of(target);
            if let Some(engine) = engine.filter(|_| link.round_trip_us >= CONNECT_EARLY_FROM_US) {
                let further = Opening::further(&mut self.scheduler(), (engine, target));
                self.finish(self.open_beside(further.into_iter().collect()));
            }
        }
    }

    /// Further connections to engines whose links those that are there cannot fill.
    /// Where the process is our own they are made beside what goes on, to one engine whatever becomes of another; in
    /// somebody else's nobody but its own threads may be at work. Gives those that are left to be made.
    fn open_beside(self: &Arc<Self>, openings: Vec<Opening>) -> Vec<Making> {
        if self.pool.is_guest() {
            return self.begin(&openings);
        }
        let mut left = Vec::new();
        for opening in openings {
            let pipeline = Arc::clone(self);
            let work = move || {
                for greeting in pipeline.finish(pipeline.begin(&[opening])) {
                    pipeline.wait(&greeting);
                }
            };
            if self.pool.platform().spawn("azekura-connect", Box::new(work)).is_err() {
                left.append(&mut self.begin(&[opening]));
            }
        }
        left
    }

    /// Begins to make connections. Of those that are there already one carries at once what is asked for meanwhile: to
    /// make the others takes some round trips.
    fn begin(&self, openings: &[Opening]) -> Vec<Making> {
        let mut making = Vec::with_capacity(openings.len());
        for &(mut opening) in openings {
            let mut borrowed = self.borrow(opening.target, opening.count);
            if let Some(ready) = borrowed.iter().position(|borrowed| borrowed.is_connected()) {
                let ready = borrowed.remove(ready);
                self.take_over(Opening { count: 1, keeps_one: false, ..opening }, vec![ready]);
                opening.count -= 1;
            }
            if opening.count > 0 {
                making.push(Making { opening, borrowed });
            }
        }
        making
    }

    /// Makes connections, to all of the engines at once. Gives what is under way on them that nobody waits for.
    fn finish(&self, mut making: Vec<Making>) -> Vec<Arc<Fetch>> {
        connect_for_looks(making.iter_mut().flat_map(|making| &mut making.borrowed));
        let take_over = |Making { opening, borrowed }: Making| self.take_over(opening, borrowed);
        making.into_iter().flat_map(take_over).collect()
    }

    /// Takes over connections, as many as were made of those that were announced; see [`Scheduler::greet`].
    fn take_over(&self, opening: Opening, borrowed: Vec<Borrowed>) -> Vec<Arc<Fetch>> {
        let Opening { engine, target, count, keeps_one } = opening;
        let channels = borrowed.into_iter().filter_map(|borrowed| Channel::open(borrowed).ok());
        let channels: Vec<_> = channels.collect();
        let mut scheduler = self.scheduler();
        let way = scheduler.way(engine);
        way.opening = way.opening.saturating_sub(count);
        let now_us = self.now_us();
        for channel in channels {
            scheduler.add(engine, channel, now_us);
        }
        if keeps_one {
            scheduler.keep_one(engine);
        }
        scheduler.dispatch(engine, now_us);
        let greetings = scheduler.greet((engine, target), now_us);
        scheduler.fail_stranded(engine);
        drop(scheduler);
        self.changed.notify_all();
        greetings
    }

    fn borrow(&self, target: TargetId, count: usize) -> Vec<Borrowed> {
        let session = self.pool.session();
        let Ok((link, _)) = session.link(target) else { return Vec::new() };
        let borrow = |_| session.borrow(Arc::clone(&link)).ok();
        (0..count).map_while(borrow).collect()
    }

    /// Waits until nothing more will come of a request. Meanwhile takes in whatever comes on any
    /// connection on which nobody else waits: one that is not read fills up, and its sender slows down.
    pub fn wait(self: &Arc<Self>, fetch: &Fetch) {
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
    fn receive(self: &Arc<Self>, taken: &[Taken], limit: Duration, patience: Duration) {
        let lines: Vec<Arc<dyn Line>> =
            taken.iter().map(|taken| Arc::clone(taken.channel.line())).collect();
        let begun = self.pool.platform().now();
        let network = &self.pool.session().identity().network;
        // What lies there already may have done so for long, and tells nothing of the link.
        let mut ready = network.wait_for_any(&lines, Duration::ZERO);
        let waited = !ready.contains(&true);
        if waited {
            ready = network.wait_for_any(&lines, limit);
        }
        let took = self.pool.platform().elapsed(begun);
        for (taken, is_ready) in taken.iter().zip(&ready) {
            if *is_ready {
                self.read(taken, waited);
            }
        }
        let mut scheduler = self.scheduler();
        let now_us = self.now_us();
        for (taken, is_ready) in taken.iter().zip(ready) {
            let silent = if is_ready { Duration::ZERO } else { took };
            if scheduler.give_back(taken.number, silent, patience) {
                scheduler.end_and_dispatch(taken, now_us);
            }
        }
        let mut engines: Vec<EngineId> = taken.iter().map(|taken| taken.engine).collect();
        engines.sort_unstable();
        engines.dedup();
        let lost = engines
            .into_iter()
            .filter_map(|engine| Some((engine, scheduler.end_stragglers(engine, now_us)?)));
        let lost: Vec<(EngineId, TargetId)> = lost.collect();
        drop(scheduler);
        if !lost.is_empty() {
            self.finish(self.open_beside(self.dispatch(&lost)));
        }
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
