//! Writes kept in flight under a write lease. Owns connections of its own to each engine, over which
//! writes are sent without waiting. There is no thread in the background: an answer is taken off a
//! connection by whoever waits for it, or by the next one who sends. What fails here is not sent again;
//! the caller, who has the bytes, does that in the ordinary way.
//!
//! Writes that overlap go over one connection, which an engine serves in order.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use azekura_proto::message::{Answer, Reply, Request, RequestHead, ShardRef};
use azekura_proto::status::StatusClass;
use azekura_proto::{EngineId, Status, TargetId, frame};
use azekura_wire::Socket;
use parking_lot::{Mutex, MutexGuard};

use crate::Pool;
use crate::error::ClientError;
use crate::link::Borrowed;
use crate::pipeline::lane_window_bytes;
use crate::session::this_process;

/// Connections to one engine at most.
const LANES_MAX: u64 = 4;
/// Bytes of a shard that go over one connection before the next one's turn. No write crosses from one
/// such stretch to the next.
const STRETCH_BYTES: u64 = azekura_proto::limits::LEASED_WRITE_BYTES_MAX as u64;

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
    flight: OnceLock<Weak<Flight>>,
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
    pub fn is_over(&self) -> bool {
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
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            data,
            kind,
            offset,
            epoch,
            bytes,
            sent: Instant::now(),
            outcome: Mutex::new(Outcome::Waiting),
            flight: OnceLock::new(),
        })
    }

    /// To be called once.
    fn send_over(self: &Arc<Self>, flight: Option<Arc<Flight>>) {
        let Some(flight) = flight else { return self.settle(Outcome::Lost) };
        self.flight.get_or_init(|| Arc::downgrade(&flight));
        flight.send(self);
        flight.collect();
    }

    fn settle(&self, outcome: Outcome) {
        let mut now = self.outcome.lock();
        if matches!(*now, Outcome::Waiting) {
            *now = outcome;
        }
    }

    /// Which of so many connections it goes over.
    fn lane(&self, lanes: u64) -> u64 {
        let stretch = self.offset / STRETCH_BYTES;
        (self.data.oid.inode_number() ^ u64::from(self.data.shard)).wrapping_add(stretch) % lanes
    }
}

/// A connection with writes under way.
struct Flight {
    map_version: u32,
    slot: u16,
    socket: Arc<Socket>,
    /// Whoever sends has this, so that answers come in the order of `pending`.
    sending: Mutex<()>,
    reader: Mutex<Borrowed>,
    pending: Mutex<VecDeque<Arc<Posted>>>,
    broken: AtomicBool,
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flight").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Flight {
    fn is_whole(&self) -> bool {
        !self.broken.load(Ordering::Acquire)
    }

    fn send(&self, posted: &Arc<Posted>) {
        let _turn = self.sending.lock();
        if !self.is_whole() {
            return posted.settle(Outcome::Lost);
        }
        let head = RequestHead {
            target: posted.target,
            map_version: self.map_version,
            slot: self.slot,
            sequence: 0,
            resent: false,
        };
        let (data, offset, epoch) = (posted.data, posted.offset, posted.epoch);
        let request = match posted.kind {
            Kind::Write => Request::WriteLeased { data, offset, epoch },
            Kind::Release => Request::ReleaseWrite { data, epoch },
        };
        let mut frame = Vec::with_capacity(128);
        let bulk_bytes = posted.bytes.len() as u32;
        if frame::encode_into(&mut frame, &(head, &request), bulk_bytes).is_err() {
            return posted.settle(Outcome::Failed(ClientError::TooLarge));
        }
        self.pending.lock().push_back(Arc::clone(posted));
        if self.socket.send_with_bulk(&frame, &posted.bytes).is_err() {
            self.give_up();
        }
    }

    /// Takes in the answers that are there, if nobody else does.
    fn collect(&self) {
        let Some(mut reader) = self.reader.try_lock() else { return };
        while !self.pending.lock().is_empty() {
            let (link, lane) = reader.parts();
            match lane.try_receive(&link.holds, link.engine, 0) {
                Ok(Some((answer, _))) => self.take_in(&answer),
                Ok(None) => return,
                Err(_) => return self.end(&mut reader),
            }
        }
    }

    /// Waits for the next answer and takes it in.
    fn take_one(&self, reader: &mut Borrowed) {
        let (link, lane) = reader.parts();
        match lane.receive(&link.holds, link.engine, &mut [], 1) {
            Ok(answer) => self.take_in(&answer),
            Err(_) => self.end(reader),
        }
    }

    fn take_in(&self, answer: &Answer) {
        let oldest = self.pending.lock().pop_front();
        if let Some(posted) = oldest {
            posted.settle(outcome_of(answer));
        }
    }

    fn end(&self, reader: &mut Borrowed) {
        let (link, lane) = reader.parts();
        link.disconnect(lane);
        self.give_up();
    }

    /// Nothing more will come.
    fn give_up(&self) {
        self.broken.store(true, Ordering::Release);
        self.socket.shut_down();
        for posted in self.pending.lock().drain(..) {
            posted.settle(Outcome::Lost);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let pending = std::mem::take(self.pending.get_mut());
        if !pending.is_empty() || !self.is_whole() {
            // What comes late must never meet another user of the lane.
            let (link, lane) = self.reader.get_mut().parts();
            link.disconnect(lane);
        }
        for posted in pending {
            posted.settle(Outcome::Lost);
        }
    }
}

fn outcome_of(answer: &Answer) -> Outcome {
    match answer {
        Ok(Reply::Leased { lease_ms, .. }) => {
            Outcome::Written { lease_ms: *lease_ms, at: Instant::now() }
        }
        Ok(Reply::Done) => Outcome::Written { lease_ms: 0, at: Instant::now() },
        Ok(_) | Err(Status::ConditionFailed) => Outcome::Lost,
        Err(status) => match status.class() {
            StatusClass::Retry | StatusClass::RefreshMap => Outcome::Lost,
            StatusClass::Caller | StatusClass::Fatal => Outcome::Failed((*status).into()),
        },
    }
}

type Slot = Arc<Mutex<Option<Arc<Flight>>>>;

/// Writes kept in flight for all files of a pool.
pub struct Outbox {
    /// Before the pool: its connections are borrowed from there, and go back first.
    lanes: Mutex<HashMap<(EngineId, u64), Slot>>,
    pool: Arc<Pool>,
    process: AtomicU32,
    /// What one connection carries per round trip, in bytes.
    lane_window_bytes: u64,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Outbox {
    /// Without connections.
    pub fn new(pool: Arc<Pool>) -> Self {
        let process = AtomicU32::new(this_process());
        let lane_window_bytes = lane_window_bytes();
        Self { lanes: Mutex::default(), pool, process, lane_window_bytes }
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
    pub fn lanes_for(&self, window_bytes: u64) -> u64 {
        window_bytes.div_ceil(self.lane_window_bytes).clamp(1, LANES_MAX)
    }

    /// Sends bytes, no more than [`Outbox::room`] says, to a shard under the lease of this epoch,
    /// behind all that was sent to the same place before over as many `lanes`.
    pub fn post(
        &self,
        target: TargetId,
        data: ShardRef,
        offset: u64,
        epoch: u64,
        lanes: u64,
        bytes: Vec<u8>,
    ) -> Arc<Posted> {
        let posted = Posted::new(target, data, Kind::Write, (offset, epoch), bytes);
        posted.send_over(self.flight(target, posted.lane(lanes.max(1))));
        posted
    }

    /// A write that is not sent because one before it was lost: both are to be sent again.
    pub fn post_lost(
        target: TargetId,
        data: ShardRef,
        offset: u64,
        epoch: u64,
        bytes: Vec<u8>,
    ) -> Arc<Posted> {
        let posted = Posted::new(target, data, Kind::Write, (offset, epoch), bytes);
        posted.settle(Outcome::Lost);
        posted
    }

    /// Gives a lease back, over any connection: nothing may be under way under it. If this comes to
    /// nothing the lease runs out.
    pub fn release(&self, target: TargetId, data: ShardRef, epoch: u64) -> Arc<Posted> {
        let posted = Posted::new(target, data, Kind::Release, (0, epoch), Vec::new());
        let engine = self.pool.map().engine_of(target);
        let slots: Vec<Slot> = {
            let lanes = self.lanes();
            let own = lanes.iter().filter(|((of, _), _)| Some(*of) == engine);
            own.map(|(_, slot)| Arc::clone(slot)).collect()
        };
        let open = slots.iter().find_map(|slot| slot.lock().clone().filter(|one| one.is_whole()));
        posted.send_over(open.or_else(|| self.flight(target, posted.lane(1))));
        posted
    }

    /// Takes in what has come over the connection of a write.
    pub fn collect(&self, posted: &Posted) {
        if let Some(flight) = posted.flight.get().and_then(Weak::upgrade) {
            flight.collect();
        }
    }

    /// Waits until something has come of a write.
    pub fn wait(&self, posted: &Posted) {
        let Some(flight) = posted.flight.get().and_then(Weak::upgrade) else {
            return posted.settle(Outcome::Lost);
        };
        while !posted.is_over() {
            let mut reader = flight.reader.lock();
            if !posted.is_over() {
                flight.take_one(&mut reader);
            }
        }
    }

    /// Gives the connections away, to be used by others. Nothing should be in flight.
    pub fn close(&self) {
        self.lanes().clear();
    }

    /// The lanes. A forked child has none of its parent's connections.
    fn lanes(&self) -> MutexGuard<'_, HashMap<(EngineId, u64), Slot>> {
        let mut lanes = self.lanes.lock();
        let process = this_process();
        if self.process.swap(process, Ordering::Relaxed) != process {
            lanes.clear();
        }
        lanes
    }

    /// The connection for a lane; made if there is none.
    fn flight(&self, target: TargetId, lane: u64) -> Option<Arc<Flight>> {
        let engine = self.pool.map().engine_of(target)?;
        let slot = Arc::clone(self.lanes().entry((engine, lane)).or_default());
        let mut slot = slot.lock();
        let map_version = self.pool.map().version;
        let is_good =
            |flight: &&Arc<Flight>| flight.is_whole() && flight.map_version == map_version;
        if let Some(flight) = slot.as_ref().filter(is_good) {
            return Some(Arc::clone(flight));
        }
        *slot = None;
        let flight = Arc::new(self.open(target)?);
        *slot = Some(Arc::clone(&flight));
        Some(flight)
    }

    fn open(&self, target: TargetId) -> Option<Flight> {
        let session = self.pool.session();
        let (link, map_version) = session.link(target).ok()?;
        let mut borrowed = session.borrow(link).ok()?;
        let (link, lane) = borrowed.parts();
        if let Err(error) = link.connect(lane, link.patience()) {
            tracing::debug!("no connection to keep writes in flight over: {error:?}");
            return None;
        }
        let (socket, slot) = (lane.shared_socket()?, lane.slot());
        Some(Flight {
            map_version,
            slot,
            socket,
            sending: Mutex::new(()),
            reader: Mutex::new(borrowed),
            pending: Mutex::default(),
            broken: AtomicBool::new(false),
        })
    }
}
