//! The connections of a pipeline and what is in flight on each. Owns which request goes over which
//! connection, and when; requests that no connection may carry yet wait here. Everything happens
//! under the pipeline's lock, and nothing of it waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use azekura_policy::{LinkEstimator, SentRequest};
use azekura_proto::EngineId;
use azekura_proto::limits::READ_CONNECTIONS_MAX;
use azekura_rpc::{Channel, Destination, Outgoing};

use super::fetch::{Fetch, State};
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

/// A connection may be asked for so much however little the link carries, in bytes.
const MOST_BYTES_MIN: u64 = 1 << 20;

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
    /// A thread waits for what comes here, or reads it. Two that waited would wake each other, and the
    /// one whose reply was read by the other would sleep on.
    pub(super) is_read: bool,
    /// What it has brought so far: a young connection is slow, whatever the link.
    brought_bytes: u64,
    /// How long it has been waited on since anything came.
    silent: Duration,
}

impl ReadChannel {
    /// Whether it has as much to carry as may be trusted to it.
    fn is_laden(&self, first_bytes: u64, most_bytes: u64) -> bool {
        let shown_bytes = self.brought_bytes.saturating_mul(TRUST).max(first_bytes);
        self.pending_bytes() >= shown_bytes.min(most_bytes)
    }

    fn pending_bytes(&self) -> u64 {
        self.channel.in_flight().reply_bytes()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.channel.in_flight().is_empty()
    }
}

/// The reading side of a connection that a thread waits on.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) number: u64,
    pub(super) engine: EngineId,
    pub(super) channel: Arc<Channel<Borrowed, Pending>>,
}

/// What a look at a connection has brought, in microseconds of the pipeline's clock.
#[derive(Debug, Default)]
pub(super) struct Got {
    /// When the reply's head has come, if it was now.
    pub(super) head_us: Option<u64>,
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Whether somebody waited for it, so that it did not lie in a buffer before.
    pub(super) waited: bool,
    /// A reply that is complete.
    pub(super) reply: Option<(Pending, State)>,
    /// The connection is of no further use.
    pub(super) is_broken: bool,
}

impl Got {
    /// Notes at a request's estimate what of its reply has come.
    fn tell(&self, link: &mut LinkEstimator, sent: &mut SentRequest, now_us: u64) {
        if let Some(head_us) = self.head_us {
            link.received(sent, head_us, 0, self.waited);
        }
        if self.bytes > 0 {
            link.received(sent, now_us, self.bytes, self.waited);
        }
    }
}

/// What is known of one engine, and what waits to be sent to it.
#[derive(Default)]
pub(super) struct Way {
    pub(super) link: LinkEstimator,
    /// Requests that no connection may carry yet, in order.
    queue: VecDeque<Arc<Fetch>>,
    /// Connections that are being made.
    pub(super) opening: usize,
}

/// All connections and engines.
#[derive(Default)]
pub(super) struct Scheduler {
    pub(super) channels: Vec<ReadChannel>,
    next_number: u64,
    pub(super) ways: HashMap<EngineId, Way>,
    /// What one connection carries per round trip, in bytes.
    connection_window_bytes: u64,
    /// The version of the pool's map that requests are sent by.
    pub(super) map_version: u32,
}

impl Scheduler {
    pub(super) fn new() -> Self {
        Self { connection_window_bytes: connection_window_bytes(), ..Self::default() }
    }

    pub(super) fn way(&mut self, engine: EngineId) -> &mut Way {
        self.ways.entry(engine).or_default()
    }

    pub(super) fn channels_of(&self, engine: EngineId) -> usize {
        self.channels.iter().filter(|open| open.engine == engine).count()
    }

    /// The connection of a number, while it is good.
    pub(super) fn channel(&mut self, number: u64) -> Option<&mut ReadChannel> {
        self.channels.iter_mut().find(|open| open.number == number)
    }

    /// Takes over a new connection.
    pub(super) fn add(&mut self, engine: EngineId, channel: Channel<Borrowed, Pending>) {
        self.next_number += 1;
        self.channels.push(ReadChannel {
            number: self.next_number,
            engine,
            channel: Arc::new(channel),
            is_read: false,
            brought_bytes: 0,
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

    /// Sends of what waits as much as the connections may carry.
    pub(super) fn dispatch(&mut self, engine: EngineId, now_us: u64) {
        let most_bytes = self.most_bytes(engine);
        loop {
            let Some(way) = self.ways.get_mut(&engine) else { return };
            let Some(fetch) = way.queue.pop_front() else { return };
            if fetch.is_over() {
                continue;
            }
            let is_light = fetch.asked_bytes() == 0;
            // Connections that come in a moment get their share.
            let first_bytes = if way.opening > 0 { FIRST_BYTES / 2 } else { FIRST_BYTES };
            let free = |open: &&mut ReadChannel| {
                open.engine == engine && (is_light || !open.is_laden(first_bytes, most_bytes))
            };
            let free = self.channels.iter_mut().filter(free);
            let Some(open) = free.min_by_key(|open| open.pending_bytes()) else {
                way.queue.push_front(fetch);
                return;
            };
            if open.is_idle() {
                open.silent = Duration::ZERO;
            }
            fetch.note_sent(open.number);
            let sent = way.link.sent(now_us, fetch.asked_bytes().into());
            let pending = Pending { fetch: Arc::clone(&fetch), sent };
            let to = Destination { target: fetch.target, map_version: self.map_version };
            let outgoing = Outgoing {
                to,
                request: &fetch.request(),
                bulk: &[],
                reply_bytes_max: fetch.asked_bytes() as usize,
            };
            if let Err((_, unsent)) = open.channel.post(outgoing, pending) {
                if let Some(Pending { sent, .. }) = unsent {
                    way.link.failed(sent);
                }
                fetch.note_sent(0);
                way.queue.push_front(fetch);
                let number = open.number;
                self.end(number);
            }
        }
    }

    /// Most that one connection to an engine is asked for, in bytes: its share of what keeps the link
    /// busy through a pause. More would only wait at the engine, where it cannot be called off.
    fn most_bytes(&self, engine: EngineId) -> u64 {
        let estimate = self.ways.get(&engine).map(|way| way.link.estimate()).unwrap_or_default();
        let connections = self.channels_of(engine).max(1) as u64;
        (estimate.hoped_product_bytes().saturating_mul(TRUST) / connections).max(MOST_BYTES_MIN)
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

    /// Gives a reading side back.
    pub(super) fn give_back(&mut self, taken: &Taken) {
        if let Some(open) = self.channel(taken.number) {
            open.is_read = false;
        }
    }

    /// Notes what was read on a connection, whose reading side is still away. Tells whether it is good
    /// for more.
    pub(super) fn note(&mut self, taken: &Taken, got: Got, now_us: u64) -> bool {
        let link = &mut self.ways.entry(taken.engine).or_default().link;
        let open = self.channels.iter_mut().find(|open| open.number == taken.number);
        if got.is_broken {
            self.end(taken.number);
            return false;
        }
        let is_whole = open.is_some();
        let brought_bytes = got.reply.as_ref().map_or(0, |(done, _)| done.fetch.asked_bytes());
        if let Some(open) = open {
            open.silent = Duration::ZERO;
            open.brought_bytes += u64::from(brought_bytes);
            if got.reply.is_none()
                && let Some(pending) = open.channel.in_flight().oldest()
            {
                got.tell(link, &mut pending.sent, now_us);
            }
        }
        let mut got = got;
        if let Some((mut done, state)) = got.reply.take() {
            got.tell(link, &mut done.sent, now_us);
            link.finished(done.sent, now_us);
            done.fetch.complete(state);
            self.dispatch(taken.engine, now_us);
        }
        is_whole
    }

    /// Nothing has come on a connection for so long. After `patience` in all it is ended.
    pub(super) fn note_silence(&mut self, number: u64, waited: Duration, patience: Duration) {
        if let Some(open) = self.channel(number) {
            open.silent += waited;
            if open.silent >= patience {
                self.end(number);
            }
        }
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

    /// How many connections to an engine are to be made now: none before those that are there have
    /// as much to carry as they may.
    pub(super) fn lacking(&self, engine: EngineId) -> usize {
        let waits = self.ways.get(&engine).is_some_and(|way| !way.queue.is_empty());
        if waits { self.missing(engine) } else { 0 }
    }

    /// How many connections an engine's link is worth beside those that there are.
    pub(super) fn missing(&self, engine: EngineId) -> usize {
        let Some(way) = self.ways.get(&engine) else { return 0 };
        let link = way.link.estimate();
        let by_window =
            link.hoped_product_bytes().saturating_mul(3) / (self.connection_window_bytes * 2);
        let by_delay = link.round_trip_us / ROUND_TRIP_PER_CONNECTION_US;
        let wanted = (by_window.max(by_delay) as usize + 1).min(READ_CONNECTIONS_MAX);
        wanted.saturating_sub(self.channels_of(engine) + way.opening)
    }
}
