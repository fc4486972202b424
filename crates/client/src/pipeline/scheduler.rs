//! The connections of a pipeline and what is in flight on each. Owns which request goes over which
//! connection, and when; requests that no connection may carry yet wait here. Everything happens
//! under the pipeline's lock, and nothing of it waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_policy::{LinkEstimator, SentRequest};
use azekura_proto::limits::EARLY_PROOF_MS;
use azekura_proto::{EngineId, TargetId};
use azekura_rpc::{Arrival, Channel, Destination, Failure, Outgoing};

use super::fetch::Fetch;
use super::pace::Pace;
use super::straggler::{InLap, Lap};
use crate::link::Borrowed;
use crate::window::connection_window_bytes;

/// Round trip per connection, in microseconds. What a young connection carries doubles each round
/// trip: on a long way several reach the rate of the link far sooner than one.
const ROUND_TRIP_PER_CONNECTION_US: u64 = 12_000;
/// Bytes that a connection may be asked for before it has shown that it can carry more.
const FIRST_BYTES: u64 = 256 << 10;
/// Bytes that a connection may be asked for per byte that it has brought: it doubles what it carries
/// each round trip, and must not run dry.
const TRUST: u64 = 4;

/// Whoever asks before it is let in shows who it is when it looks at the answer: an engine waits for that for
/// [`EARLY_PROOF_MS`].
const UNHEARD_US: u64 = EARLY_PROOF_MS * 1000 / 2;

/// A connection may be asked for so much however little the link carries, in bytes.
const MOST_BYTES_MIN: u64 = 1 << 20;
/// What all connections to an engine may be asked for together, as a share of the bandwidth-delay product, in eighths. The
/// link is kept full by less; what is beyond that stands in a queue of the way, and where that overflows every
/// connection loses much of what it had shown it can carry.
const TOGETHER_EIGHTHS: u64 = 13;

/// What is kept of a request in flight.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) fetch: Arc<Fetch>,
    pub(super) sent: SentRequest,
}

/// A connection's channel, with what is known of how much it carries.
#[derive(Debug)]
pub(super) struct ReadChannel {
    number: u64,
    engine: EngineId,
    pub(super) channel: Arc<Channel<Borrowed, Pending>>,
    /// It is for whoever asks for something else than data, and goes there as soon as the engine has answered.
    is_kept: bool,
    /// When it was made.
    made_us: u64,
    /// The engine has answered over it, or has let it in before.
    is_let_in: bool,
    /// A thread waits for what comes here, or reads it. Two that waited would wake each other, and the
    /// one whose reply was read by the other would sleep on.
    pub(super) is_read: bool,
    /// What it has brought so far: a young connection is slow, whatever the link.
    brought_bytes: u64,
    pace: Pace,
    in_lap: InLap,
    /// How long it has been waited on since anything came.
    silent: Duration,
}

impl ReadChannel {
    fn pending_bytes(&self) -> u64 {
        self.channel.in_flight().reply_bytes()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.channel.in_flight().is_empty()
    }

    /// Sends a request over it; if that fails, it is to be ended.
    fn post(
        &mut self,
        link: &mut LinkEstimator,
        fetch: &Arc<Fetch>,
        map_version: u32,
        now_us: u64,
    ) -> Result<(), Failure> {
        if self.is_idle() {
            self.silent = Duration::ZERO;
        }
        fetch.note_sent(self.number);
        let sent = link.sent(now_us, fetch.asked_bytes().into());
        let pending = Pending { fetch: Arc::clone(fetch), sent };
        let outgoing = Outgoing {
            to: Destination { target: fetch.target, map_version },
            request: &fetch.request,
            bulk: &[],
            reply_bytes_max: fetch.asked_bytes() as usize,
        };
        self.channel.post(outgoing, pending).map_err(|(failure, unsent)| {
            if let Some(Pending { sent, .. }) = unsent {
                link.failed(sent);
            }
            fetch.note_sent(0);
            failure
        })
    }
}

/// The reading side of a connection that a thread waits on.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) number: u64,
    pub(super) engine: EngineId,
    pub(super) channel: Arc<Channel<Borrowed, Pending>>,
}

/// The time that estimates count in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) started: Instant,
}

impl Clock {
    pub(super) fn us_at(self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_micros() as u64
    }
}

/// What is known of one engine, and what waits to be sent to it.
#[derive(Default)]
pub(super) struct Way {
    pub(super) link: LinkEstimator,
    /// How often the engine had moved away when the link was last looked at.
    pub(super) moves: u32,
    /// It was looked up what an earlier process knew of the link.
    pub(super) is_looked_up: bool,
    /// Requests that no connection may carry yet, in order.
    queue: VecDeque<Arc<Fetch>>,
    /// Connections that are being made.
    pub(super) opening: usize,
    lap: Lap,
}

/// All connections and engines.
pub(super) struct Scheduler {
    pub(super) channels: Vec<ReadChannel>,
    next_number: u64,
    pub(super) ways: HashMap<EngineId, Way>,
    clock: Clock,
    /// Most connections to an engine.
    connections_max: usize,
    /// What one connection carries per round trip, in bytes.
    connection_window_bytes: u64,
    /// The version of the pool's map that requests are sent by.
    pub(super) map_version: u32,
}

impl Scheduler {
    pub(super) fn new(clock: Clock, connections_max: usize) -> Self {
        Self {
            channels: Vec::new(),
            next_number: 0,
            ways: HashMap::new(),
            clock,
            connections_max,
            connection_window_bytes: connection_window_bytes(),
            map_version: 0,
        }
    }

    pub(super) fn way(&mut self, engine: EngineId) -> &mut Way {
        self.ways.entry(engine).or_default()
    }

    pub(super) fn channels_of(&self, engine: EngineId) -> usize {
        self.channels.iter().filter(|open| open.engine == engine).count()
    }

    /// Whether one of the connections to an engine is kept for others.
    pub(super) fn keeps_one(&self, engine: EngineId) -> bool {
        self.channels.iter().any(|open| open.engine == engine && open.is_kept)
    }

    /// Keeps the youngest connection to an engine for others, if there are several.
    pub(super) fn keep_one(&mut self, engine: EngineId) {
        if self.channels_of(engine) > 1
            && let Some(youngest) = self.channels.iter_mut().rfind(|open| open.engine == engine)
        {
            youngest.is_kept = true;
            self.give_away_kept(engine);
        }
    }

    /// Gives the connection to an engine that is kept for others to these, if the engine has let it in.
    fn give_away_kept(&mut self, engine: EngineId) {
        self.channels.retain(|open| {
            open.engine != engine || !open.is_kept || !open.is_let_in || !open.is_idle()
        });
    }

    /// Says something over connections of which an engine has not heard yet: it does not wait for that for long. Gives
    /// what somebody is to wait for, since only then the engine hears who it is.
    pub(super) fn greet(
        &mut self,
        (engine, target): (EngineId, TargetId),
        now_us: u64,
    ) -> Vec<Arc<Fetch>> {
        let map_version = self.map_version;
        let link = &mut self.ways.entry(engine).or_default().link;
        let (mut greetings, mut broken) = (Vec::new(), Vec::new());
        let silent = |open: &&mut ReadChannel| open.engine == engine && open.channel.is_silent();
        for open in self.channels.iter_mut().filter(silent) {
            let fetch = Fetch::greeting(target);
            match open.post(link, &fetch, map_version, now_us) {
                Ok(()) => greetings.push(fetch),
                Err(_) => broken.push(open.number),
            }
        }
        for number in broken {
            self.end(number);
        }
        greetings
    }

    /// Ends connections over which an engine was asked something, without its answer being looked at until it has lost
    /// patience.
    pub(super) fn end_unheard(&mut self, engine: EngineId, now_us: u64) {
        let is_unheard = |open: &&ReadChannel| {
            let age_us = now_us.saturating_sub(open.made_us);
            open.engine == engine && !open.is_let_in && age_us >= UNHEARD_US
        };
        let unheard: Vec<u64> =
            self.channels.iter().filter(is_unheard).map(|open| open.number).collect();
        for number in unheard {
            self.requeue(number);
        }
    }

    /// The connection of a number, while it is good.
    pub(super) fn channel(&mut self, number: u64) -> Option<&mut ReadChannel> {
        self.channels.iter_mut().find(|open| open.number == number)
    }

    /// Takes over a new connection.
    pub(super) fn add(
        &mut self,
        engine: EngineId,
        channel: Channel<Borrowed, Pending>,
        made_us: u64,
    ) {
        self.next_number += 1;
        self.channels.push(ReadChannel {
            number: self.next_number,
            engine,
            is_let_in: !channel.is_silent(),
            channel: Arc::new(channel),
            is_kept: false,
            made_us,
            is_read: false,
            brought_bytes: 0,
            pace: Pace::default(),
            in_lap: InLap::default(),
            silent: Duration::ZERO,
        });
    }

    /// Puts a request behind those that wait; one without data goes first, since it is no burden.
    pub(super) fn queue(&mut self, engine: EngineId, fetch: Arc<Fetch>) {
        let queue = &mut self.way(engine).queue;
        match fetch.asked_bytes() {
            0 => queue.push_front(fetch),
            _ => queue.push_back(fetch),
        }
    }

    /// Sends of what waits as much as the connections may carry. Tells whether something still waits.
    pub(super) fn dispatch(&mut self, engine: EngineId, now_us: u64) -> bool {
        // A connection's share of what keeps the link busy through a pause. More would only wait at the
        // engine, where it cannot be called off.
        let product_bytes = self.way(engine).link.estimate().hoped_product_bytes();
        let for_data = |open: &&ReadChannel| open.engine == engine && !open.is_kept;
        let connections = self.channels.iter().filter(for_data).count() as u64;
        // The one that is kept for others is all that is left.
        let takes_kept = connections == 0;
        let connections = connections.max(1);
        let most_bytes = (product_bytes.saturating_mul(TRUST) / connections).max(MOST_BYTES_MIN);
        let together_bytes = (product_bytes.saturating_mul(TOGETHER_EIGHTHS) / 8)
            .max(MOST_BYTES_MIN.saturating_mul(connections));
        let mean_pace = self.mean_pace(engine);
        loop {
            let way = self.ways.entry(engine).or_default();
            let Some(fetch) = way.queue.pop_front() else { return false };
            if fetch.is_over() {
                continue;
            }
            // Where there is no other connection to deal it to, waiting would only cost time.
            let is_light = fetch.asked_bytes() == 0 || self.connections_max == 1;
            // Connections that come in a moment get their share.
            let first_bytes = if way.opening > 0 { FIRST_BYTES / 2 } else { FIRST_BYTES };
            let carries = |open: &ReadChannel| {
                open.brought_bytes.saturating_mul(TRUST).max(first_bytes).min(most_bytes)
            };
            let connected = self.channels.iter().filter(|open| open.engine == engine);
            let pending_bytes: u64 = connected.map(ReadChannel::pending_bytes).sum();
            let is_full = pending_bytes >= together_bytes;
            let free = self.channels.iter_mut().filter(|open| {
                let has_room = || !is_full && open.pending_bytes() < carries(open);
                let is_for_data = open.engine == engine && (takes_kept || !open.is_kept);
                is_for_data && (is_light || has_room())
            });
            // Whoever reads waits for the first of what is asked for: it goes where least time is taken by
            // what lies before it, and by itself where it is known how long that takes.
            let load_with_it = |open: &ReadChannel| {
                let is_known = open.pace.bytes_per_second().is_some();
                let added_bytes = if is_known { fetch.asked_bytes().into() } else { 0 };
                let capacity = carries(open) * open.pace.share(mean_pace);
                load(open.pending_bytes() + added_bytes, capacity)
            };
            let Some(open) = free.min_by_key(|open| load_with_it(open)) else {
                way.queue.push_front(fetch);
                return true;
            };
            if open.post(&mut way.link, &fetch, self.map_version, now_us).is_err() {
                way.queue.push_front(fetch);
                let number = open.number;
                self.end(number);
            }
        }
    }

    /// What its connections bring on the average, in bytes per second, as far as that is known.
    fn mean_pace(&self, engine: EngineId) -> Option<u64> {
        let connected = self.channels.iter().filter(|open| open.engine == engine);
        let (mut sum, mut count) = (0u64, 0);
        for rate in connected.filter_map(|open| open.pace.bytes_per_second()) {
            sum = sum.saturating_add(rate);
            count += 1;
        }
        sum.checked_div(count)
    }

    /// What waits for an engine to which there is no way fails.
    pub(super) fn fail_stranded(&mut self, engine: EngineId) {
        if self.channels_of(engine) == 0
            && let Some(way) = self.ways.get_mut(&engine)
            && way.opening == 0
        {
            way.queue.drain(..).for_each(|fetch| fetch.fail());
        }
    }

    /// Takes the reading sides of all connections on which something is under way and nobody waits.
    pub(super) fn take_unread(&mut self) -> Vec<Taken> {
        let unread = self.channels.iter_mut().filter(|open| !open.is_read && !open.is_idle());
        unread
            .map(|open| {
                open.is_read = true;
                let channel = Arc::clone(&open.channel);
                Taken { number: open.number, engine: open.engine, channel }
            })
            .collect()
    }

    /// Gives a reading side back, on which nothing has come for so long as it was waited on now. Tells whether that is
    /// `patience` in all: such a connection is to be ended.
    pub(super) fn give_back(&mut self, number: u64, silent: Duration, patience: Duration) -> bool {
        self.channel(number).is_some_and(|open| {
            open.is_read = false;
            open.silent += silent;
            open.silent >= patience
        })
    }

    /// Notes what was read on a connection, whose reading side is still away. `waited` tells whether
    /// somebody waited for it. Tells whether the connection is good for more.
    pub(super) fn note(
        &mut self,
        taken: &Taken,
        arrival: Arrival<Pending>,
        waited: bool,
        now_us: u64,
    ) -> bool {
        let Arrival { head_at, bytes, reply } = arrival;
        let head_us = head_at.map(|at| self.clock.us_at(at));
        let received = |link: &mut LinkEstimator, sent: &mut SentRequest| {
            if let Some(head_us) = head_us {
                link.received(sent, head_us, 0, waited);
            }
            if bytes > 0 {
                link.received(sent, now_us, bytes, waited);
            }
        };
        let link = &mut self.ways.entry(taken.engine).or_default().link;
        let open = self.channels.iter_mut().find(|open| open.number == taken.number);
        let is_whole = open.is_some();
        let is_kept = open.as_ref().is_some_and(|open| open.is_kept);
        if let Some(open) = open {
            open.silent = Duration::ZERO;
            open.brought_bytes += bytes;
            open.in_lap.bytes += bytes;
            open.is_let_in |= reply.is_some();
            let is_idle = open.is_idle();
            open.pace.note(now_us, bytes, waited, !is_idle);
            if is_idle {
                open.in_lap.note_idle();
            }
            match &reply {
                // What is a hole costs a connection nothing.
                Some((done, _, data)) => {
                    let asked_bytes = u64::from(done.fetch.asked_bytes());
                    open.brought_bytes += asked_bytes.saturating_sub(data.len() as u64);
                }
                None => {
                    if let Some(pending) = open.channel.in_flight().oldest() {
                        received(link, &mut pending.sent);
                    }
                }
            }
        }
        if let Some((mut done, answer, data)) = reply {
            received(link, &mut done.sent);
            link.finished(done.sent, now_us);
            done.fetch.complete(answer, data);
            if is_kept {
                self.give_away_kept(taken.engine);
            }
            self.dispatch(taken.engine, now_us);
        }
        is_whole
    }

    /// Takes away a connection to an engine on which nothing is under way, and nobody waits: the one that
    /// has shown least.
    pub(super) fn take_idle(
        &mut self,
        engine: EngineId,
    ) -> Option<Arc<Channel<Borrowed, Pending>>> {
        let is_free = |open: &ReadChannel| {
            open.engine == engine
                && !open.is_read
                && open.is_idle()
                && open.channel.is_whole()
                && Arc::strong_count(&open.channel) == 1
        };
        let free = self.channels.iter().enumerate().filter(|(_, open)| is_free(open));
        let (at, _) = free.min_by_key(|(_, open)| open.brought_bytes)?;
        Some(self.channels.swap_remove(at).channel)
    }

    /// Ends a connection, and sends over others what waited for its answers: where nothing else is under way, nobody else would.
    pub(super) fn end_and_dispatch(&mut self, taken: &Taken, now_us: u64) {
        self.end(taken.number);
        self.dispatch(taken.engine, now_us);
    }

    /// Ends a connection: what was under way on it will not come.
    pub(super) fn end(&mut self, number: u64) {
        let Some(at) = self.channels.iter().position(|open| open.number == number) else {
            return;
        };
        let ReadChannel { engine, channel, .. } = self.channels.swap_remove(at);
        let way = self.way(engine);
        for pending in channel.end() {
            way.link.failed(pending.sent);
            pending.fetch.fail();
        }
        self.fail_stranded(engine);
    }

    /// Ends the connections to an engine that have fallen far behind, and lets what was under way on them wait for
    /// others. Gives a target of the engine if there were any. To be asked whenever something was waited for.
    pub(super) fn end_stragglers(&mut self, engine: EngineId, now_us: u64) -> Option<TargetId> {
        let way = self.ways.entry(engine).or_default();
        let round_trip_us = way.link.estimate().round_trip_us;
        let connected = self.channels.iter().filter(|open| open.engine == engine);
        let seen = connected.map(|open| (open.number, open.in_lap));
        let stragglers = way.lap.look(now_us, round_trip_us, seen)?;
        for open in self.channels.iter_mut().filter(|open| open.engine == engine) {
            open.in_lap = InLap::begin(open.is_idle(), open.brought_bytes);
        }
        let mut target = None;
        for number in stragglers {
            tracing::debug!("a connection to engine {} has fallen behind the others", engine.0);
            target = self.requeue(number).or(target);
        }
        target
    }

    /// Ends a connection, and lets what was under way on it wait for others. Gives a target that something of that is
    /// for.
    fn requeue(&mut self, number: u64) -> Option<TargetId> {
        let at = self.channels.iter().position(|open| open.number == number)?;
        let ReadChannel { engine, channel, .. } = self.channels.swap_remove(at);
        let way = self.way(engine);
        let mut target = None;
        // What was asked for first comes first again.
        for Pending { fetch, sent } in channel.end().into_iter().rev() {
            way.link.failed(sent);
            fetch.note_sent(0);
            target = Some(fetch.target);
            way.queue.push_front(fetch);
        }
        target
    }

    /// Ends everything: in a forked child the connections are the parent's.
    pub(super) fn end_all(&mut self) {
        let engines: Vec<EngineId> = self.ways.keys().copied().collect();
        for way in self.ways.values_mut() {
            way.opening = 0;
        }
        for number in self.channels.iter().map(|open| open.number).collect::<Vec<_>>() {
            self.end(number);
        }
        for engine in engines {
            self.fail_stranded(engine);
        }
    }

    /// How many connections an engine's link is worth beside those that there are.
    pub(super) fn missing(&self, engine: EngineId) -> usize {
        let Some(way) = self.ways.get(&engine) else { return 0 };
        let link = way.link.estimate();
        let by_window =
            link.hoped_product_bytes().saturating_mul(3) / (self.connection_window_bytes * 2);
        let by_delay = link.round_trip_us / ROUND_TRIP_PER_CONNECTION_US;
        let wanted = (by_window.max(by_delay) as usize + 1).min(self.connections_max);
        let kept = usize::from(self.keeps_one(engine));
        wanted.saturating_sub(self.channels_of(engine) - kept + way.opening)
    }
}

/// What is pending on a connection as a share of its capacity, in parts of 1,048,576.
fn load(pending_bytes: u64, capacity: u64) -> u64 {
    pending_bytes.saturating_mul(1 << 20) / capacity.max(1)
}
