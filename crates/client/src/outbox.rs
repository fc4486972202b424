//! Writes kept in flight under a write lease. Owns connections of its own to each engine, over which
//! writes are sent without waiting. There is no thread in the background: an answer is taken off a
//! connection by whoever waits for it, or by the next one who sends. What fails here is not sent again;
//! the caller, who has the bytes, does that in the ordinary way.
//!
//! Writes that overlap go over one connection, which an engine serves in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, this_process};
use azekura_proto::limits::{LEASED_WRITE_BYTES_MAX, WRITE_CONNECTIONS_MAX};
use azekura_proto::message::typed::{ReleaseWrite, WriteLeased};
use azekura_proto::message::{Answer, Request, ShardRef, TypedRequest as _};
use azekura_proto::status::StatusClass;
use azekura_proto::{EngineId, Status, TargetId};
use azekura_rpc::{Channel, Destination, Failure, Outgoing, Reader};
use parking_lot::{Mutex, MutexGuard};

use crate::Pool;
use crate::error::ClientError;
use crate::lending::Lender;
use crate::link::Borrowed;
use crate::window::connection_window_bytes;

/// Bytes of a shard that go over one connection before the next one's turn. No write crosses from one
/// such stretch to the next.
const STRETCH_BYTES: u64 = LEASED_WRITE_BYTES_MAX as u64;

/// What came of a write.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It is not known yet.
    Waiting,
    /// It is done.
    Written {
        /// How long the lease holds from when this was sent, in milliseconds; 0 if somebody waits
        /// for its end.
        lease_ms: u32,
        /// When the answer was taken in.
        at: Instant,
    },
    /// It may be done or not, and has to be sent again: the connection failed or the lease is over.
    Lost,
    /// It cannot be done.
    Failed(ClientError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write,
    Release,
}

/// A write in flight, with its bytes, or the giving back of a lease.
#[derive(Debug)]
pub struct Posted {
    target: TargetId,
    data: ShardRef,
    kind: Kind,
    offset: u64,
    epoch: u64,
    bytes: Vec<u8>,
    sent: Instant,
    outcome: Mutex<Outcome>,
    /// Where it was sent; gone with the connection.
    channel: OnceLock<Weak<WriteChannel>>,
}

impl Posted {
    /// The target that has the shard.
    pub fn target(&self) -> TargetId {
        self.target
    }

    /// The shard.
    pub fn data(&self) -> ShardRef {
        self.data
    }

    /// Offset in the shard's file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The epoch of the lease.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What is written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When it was sent; not later than that.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// What has come of it so far.
    pub fn outcome(&self) -> Outcome {
        self.outcome.lock().clone()
    }

    /// Whether something has come of it.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(*self.outcome.lock(), Outcome::Waiting)
    }

    /// Whatever has come of it, it has to be sent again: something from before it is written
    /// after it.
    pub fn lose(&self) {
        *self.outcome.lock() = Outcome::Lost;
    }

    fn new(
        target: TargetId,
        data: ShardRef,
        kind: Kind,
        (offset, epoch): (u64, u64),
        bytes: Vec<u8>,
        sent: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            data,
            kind,
            offset,
            epoch,
            bytes,
            sent,
            outcome: Mutex::new(Outcome::Waiting),
            channel: OnceLock::new(),
        })
    }

    /// To be called once.
    fn send_over(self: &Arc<Self>, channel: Option<Arc<WriteChannel>>) {
        let Some(channel) = channel else { return self.settle(Outcome::Lost) };
        self.channel.get_or_init(|| Arc::downgrade(&channel));
        channel.send(self);
        channel.collect();
    }

    fn settle(&self, outcome: Outcome) {
        let mut now = self.outcome.lock();
        if matches!(*now, Outcome::Waiting) {
            *now = outcome;
        }
    }

    /// Which of so many connections it goes over.
    fn channel_of(&self, channels: u64) -> u64 {
        let stretch = self.offset / STRETCH_BYTES;
        (self.data.oid.inode_number() ^ u64::from(self.data.shard)).wrapping_add(stretch) % channels
    }
}

/// A channel with writes under way.
#[derive(Debug)]
struct WriteChannel {
    map_version: u32,
    platform: SharedPlatform,
    channel: Channel<Borrowed, Arc<Posted>>,
}

impl WriteChannel {
    fn send(&self, posted: &Arc<Posted>) {
        let (data, offset, epoch) = (posted.data, posted.offset, posted.epoch);
        let request = match posted.kind {
            Kind::Write => Request::WriteLeased { data, offset, epoch },
            Kind::Release => Request::ReleaseWrite { data, epoch },
        };
        let to = Destination { target: posted.target, map_version: self.map_version };
        let outgoing = Outgoing { to, request: &request, bulk: &posted.bytes, reply_bytes_max: 0 };
        match self.channel.post(outgoing, Arc::clone(posted)) {
            Ok(()) => {}
            Err((Failure::TooLarge, _)) => posted.settle(Outcome::Failed(ClientError::TooLarge)),
            Err(_) => {
                posted.settle(Outcome::Lost);
                self.give_up();
            }
        }
    }

    /// Takes in the answers that are there, if nobody else does.
    fn collect(&self) {
        let Some(mut reader) = self.channel.try_reader() else { return };
        loop {
            match reader.poll(&*self.platform).map(|arrival| arrival.reply) {
                Ok(Some((posted, answer, _))) => self.take_in(&posted, answer),
                Ok(None) => return,
                Err(_) => return self.give_up(),
            }
        }
    }

    /// Waits for the next answer and takes it in.
    fn take_one(&self, reader: &mut Reader<'_, Borrowed, Arc<Posted>>) {
        match reader.wait() {
            Ok((posted, answer)) => self.take_in(&posted, answer),
            Err(_) => self.give_up(),
        }
    }

    fn take_in(&self, posted: &Posted, answer: Answer) {
        posted.settle(outcome_of(posted.kind, answer, self.platform.now()));
    }

    fn is_idle(&self) -> bool {
        self.channel.in_flight().is_empty()
    }

    /// Whether nothing is under way but what gives leases back: that is answered within a round trip.
    fn only_gives_back(&self) -> bool {
        self.channel.in_flight().all(|posted| posted.kind == Kind::Release)
    }

    /// Takes answers in until something has come about, be it by another thread.
    fn wait_until(&self, is_over: impl Fn() -> bool) {
        while !is_over() {
            let mut reader = self.channel.reader();
            if !is_over() {
                self.take_one(&mut reader);
            }
        }
    }

    /// Nothing more will come.
    fn give_up(&self) {
        for posted in self.channel.hang_up() {
            posted.settle(Outcome::Lost);
        }
    }
}

impl Drop for WriteChannel {
    fn drop(&mut self) {
        for posted in self.channel.abandon() {
            posted.settle(Outcome::Lost);
        }
    }
}

fn outcome_of(kind: Kind, answer: Answer, at: Instant) -> Outcome {
    let lease_ms = answer.map(|reply| match kind {
        Kind::Write => WriteLeased::read(reply).map(|lease| lease.lease_ms),
        Kind::Release => ReleaseWrite::read(reply).map(|()| 0),
    });
    match lease_ms {
        Ok(Some(lease_ms)) => Outcome::Written { lease_ms, at },
        Ok(None) | Err(Status::ConditionFailed) => Outcome::Lost,
        Err(status) => match status.class() {
            StatusClass::Retry | StatusClass::RefreshMap => Outcome::Lost,
            StatusClass::Caller | StatusClass::Fatal => Outcome::Failed(status.into()),
        },
    }
}

/// The place of one of an engine's channels.
type Place = Arc<Mutex<Option<Arc<WriteChannel>>>>;

/// Takes a channel that nobody else uses out of its place, if it can be spared.
fn take_spare(
    place: &Place,
    can_be_spared: impl Fn(&WriteChannel) -> bool,
) -> Option<Arc<WriteChannel>> {
    // Whoever has it is about to send over it.
    let mut place = place.try_lock()?;
    place.as_ref()?.collect();
    // With the place locked nobody else gets hold of it.
    place.take_if(|open| Arc::strong_count(open) == 1 && can_be_spared(open))
}

/// Writes kept in flight for all files of a pool.
pub struct Outbox {
    /// Before the pool: its connections are borrowed from there, and go back first.
    channels: Mutex<HashMap<(EngineId, u64), Place>>,
    pool: Arc<Pool>,
    process: AtomicU32,
    /// What one connection carries per round trip, in bytes.
    connection_window_bytes: u64,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Lender for Outbox {
    fn lend(&self, engine: EngineId) {
        let places = self.places(|of| of == engine);
        let take = |can_be_spared: fn(&WriteChannel) -> bool| {
            places.iter().find_map(|place| take_spare(place, can_be_spared))
        };
        let spare = take(WriteChannel::is_idle).or_else(|| take(WriteChannel::only_gives_back));
        // Its place is free again already, so that nobody who writes waits for this.
        if let Some(open) = spare {
            open.wait_until(|| open.is_idle());
        }
    }
}

impl Outbox {
    /// Without connections; lends those that it makes while nothing is written over them.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        let process = AtomicU32::new(this_process());
        let connection_window_bytes = connection_window_bytes();
        let outbox =
            Arc::new(Self { channels: Mutex::default(), pool, process, connection_window_bytes });
        let weak: Weak<Self> = Arc::downgrade(&outbox);
        outbox.pool.lenders().add(weak);
        outbox
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// How many of so many bytes for this place of a shard one write may have.
    pub fn room(offset: u64, bytes: u64) -> u64 {
        bytes.min(STRETCH_BYTES - offset % STRETCH_BYTES)
    }

    /// How many connections to an engine a window of so many bytes is worth. One fills a link better
    /// than several do, if the system lets it carry that much.
    pub fn connections_for(&self, window_bytes: u64) -> u64 {
        window_bytes.div_ceil(self.connection_window_bytes).clamp(1, WRITE_CONNECTIONS_MAX)
    }

    /// Sends bytes, no more than [`Outbox::room`] says, to a shard under the lease of this epoch,
    /// behind all that was sent to the same place before over as many `connections`.
    pub fn post(
        &self,
        target: TargetId,
        data: ShardRef,
        offset: u64,
        epoch: u64,
        connections: u64,
        bytes: Vec<u8>,
    ) -> Arc<Posted> {
        let now = self.pool.platform().now();
        let posted = Posted::new(target, data, Kind::Write, (offset, epoch), bytes, now);
        posted.send_over(self.channel(target, posted.channel_of(connections.max(1))));
        posted
    }

    /// A write that is not sent because one before it was lost: both are to be sent again.
    pub fn post_lost(
        &self,
        target: TargetId,
        data: ShardRef,
        offset: u64,
        epoch: u64,
        bytes: Vec<u8>,
    ) -> Arc<Posted> {
        let now = self.pool.platform().now();
        let posted = Posted::new(target, data, Kind::Write, (offset, epoch), bytes, now);
        posted.settle(Outcome::Lost);
        posted
    }

    /// Gives a lease back, over any connection: nothing may be under way under it. If this comes to
    /// nothing the lease runs out.
    pub fn release(&self, target: TargetId, data: ShardRef, epoch: u64) -> Arc<Posted> {
        let now = self.pool.platform().now();
        let posted = Posted::new(target, data, Kind::Release, (0, epoch), Vec::new(), now);
        let engine = self.pool.map().engine_of(target);
        let places: Vec<Place> = {
            let channels = self.channels();
            let own = channels.iter().filter(|((of, _), _)| Some(*of) == engine);
            own.map(|(_, place)| Arc::clone(place)).collect()
        };
        let is_whole = |open: &Arc<WriteChannel>| open.channel.is_whole();
        let open = places.iter().find_map(|place| place.lock().clone().filter(is_whole));
        posted.send_over(open.or_else(|| self.channel(target, posted.channel_of(1))));
        posted
    }

    /// Takes in what has come over the connection of a write.
    pub fn collect(&self, posted: &Posted) {
        if let Some(channel) = posted.channel.get().and_then(Weak::upgrade) {
            channel.collect();
        }
    }

    /// Waits until something has come of a write.
    pub fn wait(&self, posted: &Posted) {
        let Some(channel) = posted.channel.get().and_then(Weak::upgrade) else {
            return posted.settle(Outcome::Lost);
        };
        channel.wait_until(|| posted.is_over());
    }

    /// Gives the connections away, to be used by others. Nothing should be in flight.
    pub fn close(&self) {
        self.channels().clear();
    }

    /// Gives those connections away on which nothing is in flight: what is asked next need not make one
    /// of its own, which takes several round trips.
    pub fn lend_idle(&self) {
        for place in self.places(|_| true) {
            drop(take_spare(&place, WriteChannel::is_idle));
        }
    }

    /// The places of this process's channels to some engines; none while somebody adds one.
    fn places(&self, is_wanted: impl Fn(EngineId) -> bool) -> Vec<Place> {
        if self.process.load(Ordering::Relaxed) != this_process() {
            // They are the parent's.
            return Vec::new();
        }
        let Some(channels) = self.channels.try_lock() else { return Vec::new() };
        let wanted = channels.iter().filter(|((engine, _), _)| is_wanted(*engine));
        wanted.map(|(_, place)| Arc::clone(place)).collect()
    }

    /// The channels. A forked child has none of its parent's connections.
    fn channels(&self) -> MutexGuard<'_, HashMap<(EngineId, u64), Place>> {
        let mut channels = self.channels.lock();
        let process = this_process();
        if self.process.swap(process, Ordering::Relaxed) != process {
            channels.clear();
        }
        channels
    }

    /// The channel of a number to a target's engine; made if there is none.
    fn channel(&self, target: TargetId, number: u64) -> Option<Arc<WriteChannel>> {
        let engine = self.pool.map().engine_of(target)?;
        let place = Arc::clone(self.channels().entry((engine, number)).or_default());
        let mut place = place.lock();
        let map_version = self.pool.map().version;
        let is_good =
            |open: &&Arc<WriteChannel>| open.channel.is_whole() && open.map_version == map_version;
        if let Some(open) = place.as_ref().filter(is_good) {
            return Some(Arc::clone(open));
        }
        *place = None;
        let open = Arc::new(self.open(target)?);
        *place = Some(Arc::clone(&open));
        Some(open)
    }

    fn open(&self, target: TargetId) -> Option<WriteChannel> {
        let session = self.pool.session();
        let (link, map_version) = session.link(target).ok()?;
        let mut borrowed = session.borrow(link).ok()?;
        let (link, slot) = borrowed.parts();
        if let Err(failure) = link.reach(slot, map_version, true, Duration::ZERO) {
            tracing::debug!("no connection to keep writes in flight over: {failure}");
            return None;
        }
        let platform = Arc::clone(self.pool.platform());
        let channel = Channel::open(borrowed).ok()?;
        Some(WriteChannel { map_version, platform, channel })
    }
}
