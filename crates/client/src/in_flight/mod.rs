//! Changes of names and of new objects that were answered to the program and are on their way to the engine.
//! Owns the one stream over which they are sent, in the order in which they were made; the leases of names
//! that keep everybody else from them until they are there; and the failures that nobody has been told yet.
//! The engine of the stream hands on what is for others (`stream`).
//! Whatever else the session asks comes after them: the pool waits for them first (`crate::changes`).
//!
//! There is no thread: answers are taken in by whoever sends next or waits. What was lost with a connection is
//! sent again, in order, from the first on that is lost.

mod change;
mod concern;
mod resend;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, this_process};
use azekura_proto::TargetId;
use azekura_proto::limits::{LEASE_REFUSAL_MS, WRITE_LEASE_MS};
use azekura_proto::message::typed::ReleaseWrite;
use azekura_proto::message::{Answer, Reply, Request, ShardRef, TypedRequest as _};
use azekura_proto::status::StatusClass;
use azekura_proto::{EngineId, Oid, Status};
use parking_lot::{Mutex, MutexGuard};

use crate::error::{ClientError, Result};
use crate::retry::Exchange;
use crate::session::Session;

pub use change::{Change, Leased};
pub(crate) use change::{Held, Posted};
pub(crate) use concern::Concern;
use concern::Concerned;
use stream::Stream;

/// For this long after others have come no lease is asked for.
const REFUSAL: Duration = Duration::from_millis(LEASE_REFUSAL_MS);
/// Nothing is answered early while a change is in flight that was sent longer ago than this.
const OLDEST: Duration = Duration::from_millis(WRITE_LEASE_MS / 4);

/// A lease of names.
#[derive(Clone, Copy, Debug)]
struct Lease {
    target: TargetId,
    epoch: u64,
    /// Until then a change may be answered early: half of the lease is left for it to arrive.
    may_answer_until: Instant,
}

/// Until when a change may be answered early under a lease that was asked for, or renewed, then.
fn half_of(asked: Instant, lease_ms: u32) -> Instant {
    asked + Duration::from_millis(u64::from(lease_ms) / 2)
}

/// The epoch of the lease under which a change is, if its engine can tell whether that holds. Else it is one of a
/// directory above at another engine: then nothing is answered early unless it holds by the clock of this
/// side, and what comes later than it should is told by what it finds.
fn epoch_for(session: &Session, leases: &BTreeMap<Leased, Lease>, posted: &Posted) -> Option<u64> {
    let lease = leases.get(&posted.root)?;
    let map = session.map();
    let is_there = map.engine_of(lease.target) == map.engine_of(posted.target);
    is_there.then_some(lease.epoch)
}

/// A change that the engine has refused.
#[derive(Clone, Debug)]
pub struct FailedChange {
    /// The object.
    pub oid: Oid,
    /// The directory in which it was to be made, if it was.
    pub dir: Option<Oid>,
    /// Why.
    pub error: ClientError,
}

#[derive(Debug)]
struct State {
    process: u32,
    /// Its requests in flight are the youngest of `posted`, all of them unless something is lost.
    stream: Option<Stream>,
    /// How many streams there have been, and changes of them.
    streams: u32,
    sequence: u64,
    /// Engines that may still have something under way of streams that were given up, each with a target of it.
    to_fence: BTreeMap<EngineId, TargetId>,
    /// Oldest first.
    posted: VecDeque<Posted>,
    /// What was held for changes that have been answered, to be dropped without the lock.
    done: Vec<Held>,
    leases: BTreeMap<Leased, Lease>,
    is_waited_for: bool,
    refused_until: Option<Instant>,
    failed: Vec<FailedChange>,
}

impl State {
    fn new() -> Self {
        Self {
            process: this_process(),
            stream: None,
            streams: 0,
            sequence: 0,
            to_fence: BTreeMap::new(),
            posted: VecDeque::new(),
            done: Vec::new(),
            leases: BTreeMap::new(),
            is_waited_for: false,
            refused_until: None,
            failed: Vec::new(),
        }
    }
}

/// The changes of a session that are in flight.
#[derive(Debug)]
pub(crate) struct ChangesInFlight {
    state: Mutex<State>,
    /// To be looked at without the lock, which whoever waits for changes has.
    outside: Outside,
}

/// What whoever asks for something else has to know.
#[derive(Debug, Default)]
struct Outside {
    /// How many changes are in flight.
    count: AtomicUsize,
    /// Grows when leases are lost or given back.
    generation: AtomicU64,
    /// How many failures nobody has been told.
    failed_count: AtomicUsize,
    concerned: Arc<Concerned>,
}

impl Default for ChangesInFlight {
    fn default() -> Self {
        Self { state: Mutex::new(State::new()), outside: Outside::default() }
    }
}

/// The state in the hands of one thread.
pub(crate) struct Locked<'p> {
    outside: &'p Outside,
    session: &'p Session,
    state: MutexGuard<'p, State>,
}

impl ChangesInFlight {
    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.outside.count.load(Ordering::SeqCst) == 0
    }

    /// Whether there are any of an object, or such that show in a directory.
    pub(crate) fn concern(&self, object: Oid) -> bool {
        !self.are_none() && self.outside.concerned.has(object)
    }

    /// A change of an object is about to be sent, which shows in these directories.
    pub(crate) fn begin(&self, object: Oid, dirs: [Oid; 2]) -> Concern {
        self.outside.concerned.begin(object, dirs)
    }

    /// Grows when leases are lost or given back.
    pub(crate) fn generation(&self) -> u64 {
        self.outside.generation.load(Ordering::SeqCst)
    }

    /// Whether there are failures that nobody has been told.
    pub(crate) fn have_failed(&self) -> bool {
        self.outside.failed_count.load(Ordering::SeqCst) > 0
    }

    /// Gives the connection of the stream away, if it is one to this engine, nothing is under way over it, and nobody
    /// has to do with it just now.
    pub(crate) fn lend(&self, engine: EngineId) {
        let Some(mut state) = self.state.try_lock() else { return };
        if state.process == this_process() && state.posted.is_empty() {
            // Its slot goes back without the lock.
            let stream = state.stream.take_if(|stream| stream.engine() == engine);
            drop(state);
            drop(stream);
        }
    }

    /// The changes of this session, for one thread.
    pub(crate) fn with<T>(&self, session: &Session, act: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        let mut locked = Locked { outside: &self.outside, session, state: self.state.lock() };
        if locked.state.process != this_process() {
            // What a forked child finds is its parent's business.
            let refused_until = locked.state.refused_until;
            *locked.state = State { refused_until, ..State::new() };
            locked.begin_generation();
        }
        let result = act(&mut locked);
        self.outside.count.store(locked.state.posted.len(), Ordering::SeqCst);
        self.outside.failed_count.store(locked.state.failed.len(), Ordering::SeqCst);
        let done = std::mem::take(&mut locked.state.done);
        drop(locked);
        // The release of one of them may ask the engine for something.
        drop(done);
        result
    }
}

impl Locked<'_> {
    /// Leases are lost or given back.
    fn begin_generation(&self) {
        self.outside.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes in what has come, and lets others at what they wait for.
    pub(crate) fn look_after(&mut self) -> Result<()> {
        self.take_in()?;
        let is_late = self.state.posted.front().is_some_and(|oldest| !self.is_young(oldest));
        if is_late {
            self.arrive()?;
        }
        self.make_way()
    }

    /// Asks for no lease of names for a while.
    pub(crate) fn refuse(&mut self) {
        self.state.refused_until = Some(self.now() + REFUSAL);
    }

    /// Takes up a lease that was asked for then, and given for so many milliseconds.
    pub(crate) fn hold(
        &mut self,
        leased: Leased,
        target: TargetId,
        epoch: u64,
        (asked, lease_ms): (Instant, u32),
    ) {
        let may_answer_until = half_of(asked, lease_ms);
        self.state.leases.insert(leased, Lease { target, epoch, may_answer_until });
    }

    /// Whether the engine of the stream is that of a target, and something is on its way there.
    pub(crate) fn is_under_way_to(&self, target: TargetId) -> bool {
        let stream = self.state.stream.as_ref().filter(|_| !self.state.posted.is_empty());
        stream.is_some_and(|stream| stream.is_to(self.session, target))
    }

    /// Closes the stream, unless something is in flight.
    pub(crate) fn close(&mut self) {
        if self.state.posted.is_empty() {
            self.state.stream = None;
        }
    }

    /// Failures that nobody has been told.
    pub(crate) fn failed(&mut self) -> &mut Vec<FailedChange> {
        &mut self.state.failed
    }

    fn platform(&self) -> &SharedPlatform {
        &self.session.identity().platform
    }

    fn now(&self) -> Instant {
        self.platform().now()
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.state.refused_until.is_some_and(|until| until > self.now())
    }

    /// Whether a change under this lease may be answered although it may not have arrived.
    pub(crate) fn may_answer(&self, root: Leased) -> bool {
        let now = self.now();
        self.state.posted.front().is_none_or(|oldest| self.is_young(oldest))
            && self.state.leases.get(&root).is_some_and(|lease| lease.may_answer_until > now)
    }

    /// Whether nobody needs to wait for a change yet.
    fn is_young(&self, posted: &Posted) -> bool {
        self.now().saturating_duration_since(posted.sent) < OLDEST
    }

    /// Sends a change. False, and it is not sent, if its lease has been lost or given back, or its engine is one that
    /// this session has not met.
    ///
    /// # Errors
    /// If the engine cannot be reached, or what has come of the change or of an earlier one of its object, if
    /// that is known already.
    pub(crate) fn post(&mut self, posted: Posted) -> Result<bool> {
        let (root, oid) = (posted.root, posted.change.oid());
        self.take_in()?;
        self.make_way()?;
        if !self.state.leases.contains_key(&root) {
            return Ok(false);
        }
        if self.state.stream.is_none() {
            self.open_stream(posted.target)?;
        }
        let bulk = posted.change.bytes();
        while self.state.stream.as_mut().is_some_and(|stream| !stream.has_room(bulk)) {
            self.take_one()?;
        }
        if !self.state.leases.contains_key(&root) {
            return Ok(false);
        }
        if !self.session.has_met(posted.target) {
            return Ok(false);
        }
        self.state.posted.push_back(posted);
        let arrived = if self.send(self.state.posted.len() - 1) {
            let mut arrived = Ok(());
            while arrived.is_ok() && !self.state.posted.is_empty() && !self.may_answer(root) {
                arrived = self.take_one();
            }
            arrived
        } else {
            self.send_again()
        };
        if arrived.is_err() {
            // Whoever made it is told so, and may make it once more.
            let is_last = self.state.posted.back().is_some_and(|last| last.change.oid() == oid);
            if is_last && let Some(Posted { reference, .. }) = self.state.posted.pop_back() {
                self.state.done.extend(reference);
            }
        }
        arrived?;
        match self.take_failed(oid) {
            Some(failed) => Err(failed.error),
            None => Ok(true),
        }
    }

    /// A failed change of this object, or the making of one in this directory, that nobody has been told of.
    pub(crate) fn take_failed(&mut self, oid: Oid) -> Option<FailedChange> {
        let is_of = |failed: &FailedChange| failed.oid == oid || failed.dir == Some(oid);
        let place = self.state.failed.iter().position(is_of)?;
        Some(self.state.failed.remove(place))
    }

    /// Opens a stream to a target's engine, if that can be reached.
    fn open_stream(&mut self, target: TargetId) -> Result<()> {
        self.fence()?;
        self.state.streams += 1;
        self.state.stream = Stream::open(self.session, target, self.state.streams);
        Ok(())
    }

    /// Whether a change of those that are on their way may be sent before an answer is taken in.
    fn has_room_for(&mut self, place: usize) -> bool {
        let State { stream, posted, .. } = &mut *self.state;
        match (stream, posted.get(place)) {
            (Some(stream), Some(posted)) => stream.has_room(posted.change.bytes()),
            _ => false,
        }
    }

    /// Sends a change of those that are on their way over the stream. False if that does not go.
    fn send(&mut self, place: usize) -> bool {
        let State { stream, posted, leases, sequence, .. } = &mut *self.state;
        let (Some(stream), Some(posted)) = (stream, posted.get(place)) else { return false };
        *sequence += 1;
        let Some(of) = stream.of_change(self.session, posted.target, *sequence) else {
            return false;
        };
        let request = posted.request(epoch_for(self.session, leases, posted));
        stream.send(of, posted.target, &request, posted.change.bytes()).is_ok()
    }

    /// Takes in the answers that are there.
    fn take_in(&mut self) -> Result<()> {
        while let Some(stream) = &self.state.stream {
            let polled = stream.reader().poll(&**self.platform());
            match polled.map(|arrival| arrival.reply) {
                Ok(Some(((), answer, _))) => {
                    if !self.note(answer) {
                        return self.send_again();
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => return self.send_again(),
            }
        }
        if self.state.posted.is_empty() { Ok(()) } else { self.send_again() }
    }

    /// Waits for the answer to the oldest change.
    fn take_one(&mut self) -> Result<()> {
        let answered = match &mut self.state.stream {
            Some(stream) => stream.wait(),
            None => return self.send_again(),
        };
        let is_noted = answered.is_ok_and(|answer| self.note(answer));
        if is_noted { Ok(()) } else { self.send_again() }
    }

    /// Asks for something behind the changes in flight, over their connection, which saves waiting for them
    /// first; the reply's data go into `bulk_in`. `None` if that does not go, or has come to nothing: then it is to be
    /// asked as ever.
    pub(crate) fn ask(
        &mut self,
        target: TargetId,
        request: &Request<'_>,
        bulk_in: &mut [u8],
    ) -> Option<Result<Reply>> {
        if !self.state.stream.as_mut()?.ask(target, request, bulk_in.len()) {
            return None;
        }
        while !self.state.posted.is_empty() {
            self.take_one().ok()?;
        }
        // Gone if anything had to be sent again.
        self.state.stream.as_mut()?.wait_for_asked(bulk_in).unwrap_or_else(|_| {
            self.state.stream = None;
            None
        })
    }

    pub(crate) fn arrive(&mut self) -> Result<()> {
        while !self.state.posted.is_empty() {
            self.take_one()?;
        }
        Ok(())
    }

    /// Notes what has come of the oldest change. False if it has to be sent again.
    fn note(&mut self, answer: Answer) -> bool {
        match answer {
            Ok(reply) => {
                let Some(posted) = self.state.posted.pop_front() else { return true };
                if let Reply::Leased { lease_ms, version } = reply {
                    self.renew(&posted, lease_ms, version);
                }
                self.state.done.extend(posted.reference);
                true
            }
            Err(Status::ConditionFailed) => false,
            Err(Status::PeerUnreachable) => {
                // Engines do not reach each other: what comes next is waited for, each at its own.
                self.state.is_waited_for = true;
                false
            }
            Err(status) => match status.class() {
                StatusClass::Retry | StatusClass::RefreshMap => false,
                StatusClass::Caller | StatusClass::Fatal => {
                    self.fail_oldest(status.into());
                    true
                }
            },
        }
    }

    fn renew(&mut self, posted: &Posted, lease_ms: u32, epoch: u64) {
        if let Some(lease) = self.state.leases.get_mut(&posted.root)
            && lease.epoch == epoch
        {
            let until = half_of(posted.sent, lease_ms);
            lease.may_answer_until = lease.may_answer_until.max(until);
            self.state.is_waited_for |= lease_ms == 0;
        }
    }

    fn fail_oldest(&mut self, error: ClientError) {
        let Some(posted) = self.state.posted.pop_front() else { return };
        self.state.done.extend(posted.reference);
        let (oid, dir) = (posted.change.oid(), posted.change.dir());
        // What is believed of names rests on something that has not happened.
        self.begin_generation();
        self.state.is_waited_for = true;
        // What was to be done with an object that could not be made has failed for that reason.
        if self.state.failed.iter().all(|failed| failed.oid != oid) {
            tracing::debug!("a change of {oid} that was answered has failed: {error}");
            self.state.failed.push(FailedChange { oid, dir, error });
            self.outside.failed_count.store(self.state.failed.len(), Ordering::SeqCst);
        }
    }

    /// If somebody waits for the end of a lease, they need wait no longer.
    fn make_way(&mut self) -> Result<()> {
        if self.state.is_waited_for {
            self.publish()?;
            self.refuse();
        }
        Ok(())
    }

    pub(crate) fn publish(&mut self) -> Result<()> {
        self.arrive()?;
        self.state.is_waited_for = false;
        if self.state.leases.is_empty() {
            return Ok(());
        }
        // They go back over its connection: to make another takes several round trips.
        self.close();
        self.begin_generation();
        let leases = std::mem::take(&mut self.state.leases);
        let requests: Vec<(TargetId, Request<'_>)> = leases
            .into_iter()
            .map(|((oid, shard), Lease { target, epoch, .. })| {
                let data = ShardRef { oid, shard, is_file: false };
                (target, ReleaseWrite { data, epoch }.into_request())
            })
            .collect();
        let mut exchanges: Vec<_> =
            requests.iter().map(|(target, request)| Exchange::new(*target, request)).collect();
        for released in self.session.fan_out(&mut exchanges) {
            if let Err(error) = released {
                tracing::debug!("a lease of names runs out by itself: {error}");
            }
        }
        Ok(())
    }
}
