//! The connections of a pipeline and what is under way on each. Owns which request goes over which
//! connection, and when; requests that no connection may carry yet wait here. Everything happens
//! under the pipeline's lock, and nothing of it waits.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use azekura_policy::{LinkEstimator, SentRequest};
use azekura_proto::EngineId;
use azekura_proto::frame;
use azekura_proto::message::RequestHead;
use azekura_wire::Socket;

use super::fetch::Fetch;
use super::reader::{Come, Got, Reader};

/// Connections to one engine at most.
const LANES_MAX: usize = 8;
/// Round trip per connection, in microseconds. What a young connection carries doubles each round
/// trip: on a long way several reach the rate of the link far sooner than one.
const ROUND_TRIP_PER_LANE_US: u64 = 12_000;
/// What one connection surely carries per round trip, and the most that is believed of one.
const LANE_WINDOW_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 20;
/// Bytes that a connection may be asked for before it has shown that it can carry more.
const FIRST_BYTES: u64 = 256 << 10;
/// Bytes that a connection may be asked for per byte that it has brought: it doubles what it carries
/// each round trip, and must not run dry.
const TRUST: u64 = 4;

/// A connection may be asked for so much however little the link carries, in bytes.
const MOST_BYTES_MIN: u64 = 1 << 20;

/// A request that was sent.
pub(super) struct Pending {
    pub(super) fetch: Arc<Fetch>,
    pub(super) sent: SentRequest,
}

/// A connection with requests under way. Requests are written under the board's lock, so that their
/// order is known; replies are read by one thread at a time, without it.
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) engine: EngineId,
    pub(super) lane_slot: u16,
    pub(super) sender: Arc<Socket>,
    /// Away while a thread waits for what comes here, or reads it. Two that waited would wake each other,
    /// and the one whose reply was read by the other would sleep on.
    pub(super) reader: Option<Reader>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) pending_bytes: u64,
    /// What it has brought so far: a young connection is slow, whatever the link.
    pub(super) brought_bytes: u64,
    /// How long it has been waited on since anything came.
    pub(super) silent: Duration,
}

impl Flight {
    /// A connection without anything under way; it gets its number when the board takes it over.
    pub(super) fn new(
        engine: EngineId,
        lane_slot: u16,
        sender: Arc<Socket>,
        reader: Reader,
    ) -> Self {
        Self {
            number: 0,
            engine,
            lane_slot,
            sender,
            reader: Some(reader),
            pending: VecDeque::new(),
            pending_bytes: 0,
            brought_bytes: 0,
            silent: Duration::ZERO,
        }
    }

    /// Whether it has as much to carry as may be trusted to it.
    fn is_laden(&self, first_bytes: u64, most_bytes: u64) -> bool {
        let shown_bytes = self.brought_bytes.saturating_mul(TRUST).max(first_bytes);
        self.pending_bytes >= shown_bytes.min(most_bytes)
    }

    /// Whether replies are to come, and nobody reads them.
    fn is_unread(&self) -> bool {
        self.reader.is_some() && !self.pending.is_empty()
    }

    fn send(&self, fetch: &Fetch, map_version: u32) -> Option<()> {
        let head = RequestHead {
            target: fetch.target,
            map_version,
            slot: self.lane_slot,
            sequence: 0,
            resent: false,
        };
        let mut frame = Vec::with_capacity(128);
        frame::encode_into(&mut frame, &(head, &fetch.request()), 0).ok()?;
        self.sender.send_all(&frame).ok()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.as_mut().filter(|_| !self.pending.is_empty()) {
            reader.hang_up();
        }
    }
}

/// The reading side of a connection that a thread waits on.
pub(super) struct Taken {
    pub(super) number: u64,
    pub(super) socket: Arc<Socket>,
    pub(super) reader: Reader,
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
pub(super) struct Board {
    pub(super) flights: Vec<Flight>,
    next_number: u64,
    pub(super) ways: HashMap<EngineId, Way>,
    /// What one connection carries per round trip, in bytes.
    lane_window_bytes: u64,
    /// The version of the pool's map that requests are sent by.
    pub(super) map_version: u32,
}

impl Board {
    pub(super) fn new() -> Self {
        Self { lane_window_bytes: lane_window_bytes(), ..Self::default() }
    }

    pub(super) fn way(&mut self, engine: EngineId) -> &mut Way {
        self.ways.entry(engine).or_default()
    }

    pub(super) fn flights_of(&self, engine: EngineId) -> usize {
        self.flights.iter().filter(|flight| flight.engine == engine).count()
    }

    /// Takes over a new connection.
    pub(super) fn add(&mut self, mut flight: Flight) {
        self.next_number += 1;
        flight.number = self.next_number;
        self.flights.push(flight);
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
            let free = |flight: &&mut Flight| {
                flight.engine == engine && (is_light || !flight.is_laden(first_bytes, most_bytes))
            };
            let Some(flight) =
                self.flights.iter_mut().filter(free).min_by_key(|flight| flight.pending_bytes)
            else {
                way.queue.push_front(fetch);
                return;
            };
            if flight.send(&fetch, self.map_version).is_none() {
                way.queue.push_front(fetch);
                let number = flight.number;
                self.end(number);
                continue;
            }
            fetch.note_sent(flight.number);
            if flight.pending.is_empty() {
                flight.silent = Duration::ZERO;
            }
            flight.pending_bytes += fetch.weight_bytes();
            let sent = way.link.sent(now_us, fetch.asked_bytes().into());
            flight.pending.push_back(Pending { fetch, sent });
        }
    }

    /// Most that one connection to an engine is asked for, in bytes: its share of what keeps the link
    /// busy through a pause. More would only wait at the engine, where it cannot be called off.
    fn most_bytes(&self, engine: EngineId) -> u64 {
        let estimate = self.ways.get(&engine).map(|way| way.link.estimate()).unwrap_or_default();
        let lanes = self.flights_of(engine).max(1) as u64;
        (estimate.hoped_product_bytes().saturating_mul(TRUST) / lanes).max(MOST_BYTES_MIN)
    }

    /// What waits for an engine to which there is no way fails.
    pub(super) fn fail_stranded(&mut self, engine: EngineId) {
        if self.flights_of(engine) == 0
            && let Some(way) = self.ways.get_mut(&engine)
            && way.opening == 0
        {
            way.queue.drain(..).for_each(|fetch| fetch.fail());
        }
    }

    /// Takes the reading sides of all connections on which something is under way and nobody waits.
    pub(super) fn take_unread(&mut self) -> Vec<Taken> {
        let unread = self.flights.iter_mut().filter(|flight| flight.is_unread());
        unread
            .filter_map(|flight| {
                let socket = Arc::clone(&flight.sender);
                Some(Taken { number: flight.number, socket, reader: flight.reader.take()? })
            })
            .collect()
    }

    /// The request that is answered next on a connection.
    pub(super) fn oldest(&self, number: u64) -> Option<Arc<Fetch>> {
        let flight = self.flights.iter().find(|flight| flight.number == number)?;
        Some(Arc::clone(&flight.pending.front()?.fetch))
    }

    /// Gives a reading side back; hangs up where the connection has been ended meanwhile.
    pub(super) fn give_back(&mut self, mut taken: Taken) {
        match self.flights.iter_mut().find(|flight| flight.number == taken.number) {
            Some(flight) => flight.reader = Some(taken.reader),
            None => taken.reader.hang_up(),
        }
    }

    /// Notes what was read on a connection, whose reading side is still away. Tells whether it is good
    /// for more.
    pub(super) fn note(&mut self, number: u64, got: Got, now_us: u64) -> bool {
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) else {
            return false;
        };
        let reply = match got.come {
            Come::Part => None,
            Come::Reply(state) => Some(state),
            Come::Broken => {
                self.end(number);
                return false;
            }
        };
        flight.silent = Duration::ZERO;
        let engine = flight.engine;
        let link = &mut self.ways.entry(engine).or_default().link;
        let Some(pending) = flight.pending.front_mut() else { return true };
        if let Some(head_us) = got.head_us {
            link.received(&mut pending.sent, head_us, 0, got.waited);
        }
        if got.bytes > 0 {
            link.received(&mut pending.sent, now_us, got.bytes, got.waited);
        }
        if let Some(state) = reply
            && let Some(Pending { fetch, sent }) = flight.pending.pop_front()
        {
            flight.pending_bytes = flight.pending_bytes.saturating_sub(fetch.weight_bytes());
            flight.brought_bytes += u64::from(fetch.asked_bytes());
            link.finished(sent, now_us);
            fetch.complete(state);
            self.dispatch(engine, now_us);
        }
        true
    }

    /// Nothing has come on a connection for so long. After `patience` in all it is ended.
    pub(super) fn note_silence(&mut self, number: u64, waited: Duration, patience: Duration) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.silent += waited;
            if flight.silent >= patience {
                self.end(number);
            }
        }
    }

    /// Ends a flight: what was under way on it will not come.
    pub(super) fn end(&mut self, number: u64) {
        let Some(at) = self.flights.iter().position(|flight| flight.number == number) else {
            return;
        };
        let mut flight = self.flights.swap_remove(at);
        if let Some(reader) = &mut flight.reader {
            reader.hang_up();
        }
        let way = self.way(flight.engine);
        for pending in flight.pending.drain(..) {
            way.link.failed(pending.sent);
            pending.fetch.fail();
        }
        let engine = flight.engine;
        self.fail_stranded(engine);
    }

    /// Ends everything: in a forked child the connections are the parent's.
    pub(super) fn end_all(&mut self) {
        let engines: Vec<EngineId> = self.ways.keys().copied().collect();
        for way in self.ways.values_mut() {
            way.opening = 0;
        }
        for number in self.flights.iter().map(|flight| flight.number).collect::<Vec<_>>() {
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
        let by_window = link.hoped_product_bytes().saturating_mul(3) / (self.lane_window_bytes * 2);
        let by_delay = link.round_trip_us / ROUND_TRIP_PER_LANE_US;
        let wanted = (by_window.max(by_delay) as usize + 1).min(LANES_MAX);
        wanted.saturating_sub(self.flights_of(engine) + way.opening)
    }
}

/// What one connection carries per round trip, as the system's bounds for the buffers of a socket have
/// it. The other side's are not known; hosts of one site tend to be set alike.
pub(crate) fn lane_window_bytes() -> u64 {
    let bound = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let bounds = ["tcp_rmem", "tcp_wmem"].map(bound);
    let smaller = bounds.into_iter().flatten().min().unwrap_or(0);
    // About half of a buffer is taken by what the system notes about the data.
    (smaller / 2).clamp(*LANE_WINDOW_BYTES.start(), *LANE_WINDOW_BYTES.end())
}
