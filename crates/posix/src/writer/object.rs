//! One file with writes in flight. Owns their order, the leases under which they travel, and what is
//! done when a connection or a lease is lost: the same bytes are written again, in the ordinary way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{Call, ClientError, Outcome, Posted, this_process};
use azekura_proto::message::{Reply, Request, ShardRef};
use azekura_proto::{Oid, TargetId};
use parking_lot::{Mutex, MutexGuard};

use super::Writing;
use crate::errno::of_client;
use crate::{Errno, OpenFile, Result};

/// For this long after others have come none is asked for.
const REFUSAL: Duration = Duration::from_secs(5);
/// What has not arrived for so long is sent again only if nobody else has been there since.
const GIVE_UP: Duration = Duration::from_secs(20);

/// A write lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    target: TargetId,
    epoch: u64,
    /// Until then a write may be answered early: half of the lease is left for it to arrive.
    may_answer_until: Instant,
}

/// A file with writes in flight.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) oid: Oid,
    /// Open files that are attached to it; changed under the lock of the table.
    pub(super) users: AtomicUsize,
    state: Mutex<State>,
}

/// What is known of it. Whoever sends has the lock, so that the queue is in the order of sending.
#[derive(Debug)]
pub(super) struct State {
    process: u32,
    leases: HashMap<u16, Lease>,
    /// What was answered to the program, oldest first.
    queue: VecDeque<Arc<Posted>>,
    /// Connections to each engine that they go over; grows when nothing is in flight.
    pub(super) lanes: u64,
    refused_until: Option<Instant>,
    /// Somebody waits for the end of a lease.
    is_waited_for: bool,
    /// Something has been in flight since the readers were told.
    is_dirty: bool,
    last_write: Instant,
    /// The last error and its number.
    error: Option<(u64, Errno)>,
}

impl State {
    fn new() -> Self {
        Self {
            process: this_process(),
            leases: HashMap::new(),
            queue: VecDeque::new(),
            lanes: 1,
            refused_until: None,
            is_waited_for: false,
            is_dirty: false,
            last_write: Instant::now(),
            error: None,
        }
    }

    pub(super) fn epoch(&self, shard: u16) -> Option<u64> {
        self.leases.get(&shard).map(|lease| lease.epoch)
    }

    pub(super) fn may_answer_until(&self, shard: u16) -> Option<Instant> {
        self.leases.get(&shard).map(|lease| lease.may_answer_until)
    }

    /// Asks for no lease for a while.
    pub(super) fn refuse(&mut self) {
        self.refused_until = Some(Instant::now() + REFUSAL);
    }

    /// Puts a write back that has to be sent again.
    fn keep(&mut self, posted: &Arc<Posted>) {
        posted.lose();
        self.queue.push_back(Arc::clone(posted));
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused_until.is_some_and(|until| until > Instant::now())
    }

    /// When the oldest write in flight was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.queue.front().map(|posted| posted.sent())
    }

    pub(super) fn push(&mut self, posted: Arc<Posted>) {
        self.is_dirty = true;
        self.last_write = Instant::now();
        self.queue.push_back(posted);
    }

    /// Whether leases are kept that nobody has used for so long.
    pub(super) fn is_idle(&self, time: Duration) -> bool {
        self.queue.is_empty() && !self.leases.is_empty() && self.last_write.elapsed() > time
    }

    /// The error that this open file has not been told yet.
    pub(super) fn tell_error(&self, file: &OpenFile) -> Result<()> {
        match self.error {
            Some((number, errno)) if file.is_news(number) => Err(errno),
            _ => Ok(()),
        }
    }
}

impl Object {
    pub(super) fn new(oid: Oid) -> Self {
        Self { oid, users: AtomicUsize::new(0), state: Mutex::new(State::new()) }
    }

    pub(super) fn lock(&self, writing: &Writing) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        Self::check_process(writing, &mut state);
        state
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock()
    }

    /// What a forked child finds is its parent's business.
    fn check_process(writing: &Writing, state: &mut State) {
        if state.process != this_process() {
            for posted in std::mem::take(&mut state.queue) {
                writing.budget.give_back(posted.bytes().len() as u64);
            }
            *state = State::new();
        }
    }

    fn data(&self, shard: u16) -> ShardRef {
        ShardRef { oid: self.oid, shard, is_file: true }
    }
}

impl Writing {
    /// The write is no longer in flight.
    fn land(&self, posted: &Posted, answered: Option<Instant>) {
        let bytes = posted.bytes().len() as u64;
        self.budget.give_back(bytes);
        self.window(posted.target(), |window| match answered {
            Some(at) => window.answered(self.us(at), self.us(posted.sent()), bytes),
            None => window.failed(bytes),
        });
    }

    /// Notes what has come of a write. False if it has to be sent again, or nothing has come.
    fn note(&self, state: &mut State, posted: &Posted) -> bool {
        match posted.outcome() {
            Outcome::Waiting | Outcome::Lost => false,
            Outcome::Written { lease_ms, at } => {
                self.land(posted, Some(at));
                state.is_waited_for |= lease_ms == 0;
                if let Some(lease) = state.leases.get_mut(&posted.data().shard)
                    && lease.epoch == posted.epoch()
                {
                    let until = posted.sent() + Duration::from_millis(u64::from(lease_ms) / 2);
                    lease.may_answer_until = lease.may_answer_until.max(until);
                }
                true
            }
            Outcome::Failed(error) => {
                self.land(posted, None);
                self.note_error(state, of_client(&error));
                true
            }
        }
    }

    fn note_error(&self, state: &mut State, errno: Errno) {
        state.error = Some((self.errors.fetch_add(1, Ordering::Relaxed) + 1, errno));
    }

    /// Takes in what has come, without waiting. False if something has to be sent again.
    pub(super) fn take_in(&self, state: &mut State) -> bool {
        if let Some(oldest) = state.queue.front() {
            self.outbox.collect(oldest);
        }
        while let Some(oldest) = state.queue.front().cloned() {
            match oldest.outcome() {
                Outcome::Waiting => return true,
                Outcome::Lost => return false,
                Outcome::Written { .. } | Outcome::Failed(_) => self.note(state, &oldest),
            };
            state.queue.pop_front();
        }
        true
    }

    /// Waits for the oldest write; false if none is in flight.
    pub(super) fn await_oldest(&self, state: &State) -> bool {
        match state.queue.front() {
            Some(oldest) => {
                self.outbox.wait(oldest);
                true
            }
            None => false,
        }
    }

    /// Waits until everything has arrived, sending again what was lost.
    ///
    /// # Errors
    /// If the engine cannot be reached. What it has not got is kept.
    pub(super) fn finish(&self, object: &Object, state: &mut State) -> Result<()> {
        let mut finished = Ok(());
        loop {
            if !self.take_in(state) {
                finished = self.send_again(object, state);
            }
            if finished.is_err() || !self.await_oldest(state) {
                break;
            }
        }
        if state.is_dirty {
            // What was read meanwhile may be from before; and what is left changes it once more.
            state.is_dirty = !state.queue.is_empty();
            self.reading.note_change(object.oid);
        }
        finished
    }

    /// Gives up what cannot be sent, and the leases: what may still be on its way under them must not
    /// land on later writes, which go under new ones.
    pub(super) fn forget(&self, state: &mut State, errno: Errno) {
        for posted in std::mem::take(&mut state.queue) {
            self.land(&posted, None);
        }
        state.leases.clear();
        self.note_error(state, errno);
    }

    /// If somebody waits for the end of a lease, they need wait no longer.
    pub(super) fn make_way(&self, object: &Object, state: &mut State) {
        if state.is_waited_for {
            self.finish_or_forget(object, state);
            state.is_waited_for = false;
            self.release(object, state, false);
            state.refuse();
        }
    }

    /// Gives all leases back. Nothing may be in flight.
    pub(super) fn release(&self, object: &Object, state: &mut State, wait: bool) {
        let posted: Vec<_> = state
            .leases
            .drain()
            .map(|(shard, lease)| {
                self.outbox.release(lease.target, object.data(shard), lease.epoch)
            })
            .collect();
        if wait {
            for posted in posted {
                self.outbox.wait(&posted);
            }
        }
    }

    /// Asks for leases. False if there is not one for each shard.
    pub(super) fn ask_leases(
        &self,
        object: &Object,
        state: &mut State,
        shards: &[(u16, TargetId)],
    ) -> bool {
        let wanted: Vec<_> = shards.iter().map(|(shard, target)| (*shard, *target, None)).collect();
        // An engine that cannot be reached is met by the write itself.
        self.ask(object, state, &wanted).unwrap_or(false)
    }

    /// Asks for leases, in place of others where epochs are given.
    fn ask(
        &self,
        object: &Object,
        state: &mut State,
        wanted: &[(u16, TargetId, Option<u64>)],
    ) -> std::result::Result<bool, ClientError> {
        let asked = Instant::now();
        let mut calls: Vec<Call<'_>> = wanted
            .iter()
            .map(|(shard, target, instead_of)| {
                let data = object.data(*shard);
                Call::new(*target, Request::LeaseWrite { data, instead_of: *instead_of })
            })
            .collect();
        self.pool().fan_out(&mut calls);
        let mut all = true;
        let mut unreached = None;
        for (call, (shard, target, _)) in calls.iter_mut().zip(wanted) {
            match call.take_result() {
                Ok(Reply::Leased { lease_ms, version }) if lease_ms > 0 => {
                    let half = Duration::from_millis(u64::from(lease_ms) / 2);
                    let lease =
                        Lease { target: *target, epoch: version, may_answer_until: asked + half };
                    state.leases.insert(*shard, lease);
                }
                Err(error) if error.is_unreached() => unreached = Some(error),
                _ => {
                    all = false;
                    state.leases.remove(shard);
                    state.refused_until = Some(asked + REFUSAL);
                }
            }
        }
        match unreached {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }

    /// Something of the queue is lost: writes it again, in order and by ordinary requests.
    ///
    /// # Errors
    /// If the engine cannot be reached. What it has not got stays in the queue.
    fn send_again(&self, object: &Object, state: &mut State) -> Result<()> {
        for posted in &state.queue {
            self.outbox.wait(posted);
        }
        // All from the first lost one on: what came after it may have been overwritten by it since.
        for posted in std::mem::take(&mut state.queue) {
            let comes_after =
                !state.queue.is_empty() && matches!(posted.outcome(), Outcome::Written { .. });
            if comes_after || !self.note(state, &posted) {
                state.queue.push_back(posted);
            }
        }
        // What may still be on its way under the old epochs must not arrive after this.
        let old: Vec<_> = state
            .leases
            .iter()
            .map(|(shard, lease)| (*shard, lease.target, Some(lease.epoch)))
            .collect();
        self.ask(object, state, &old).map_err(|error| of_client(&error))?;
        tracing::debug!("{} writes to {} are sent again", state.queue.len(), object.oid);
        let again = self.still_in_time(state);
        let mut calls: Vec<Call<'_>> = again
            .iter()
            .map(|posted| {
                let request = Request::Write { data: posted.data(), offset: posted.offset() };
                Call::sending(posted.target(), request, posted.bytes()).in_order()
            })
            .collect();
        self.pool().fan_out(&mut calls);
        let mut sent = Ok(());
        for (call, posted) in calls.iter_mut().zip(&again) {
            match call.take_result() {
                Err(error) if sent.is_ok() && error.is_unreached() => {
                    sent = Err(of_client(&error));
                    state.keep(posted);
                }
                // Whatever has come of it: what is written before it is not there yet.
                _ if sent.is_err() => state.keep(posted),
                Ok(_) => self.land(posted, None),
                Err(error) => {
                    self.land(posted, None);
                    self.note_error(state, of_client(&error));
                }
            }
        }
        sent
    }

    /// The queue, without what has waited too long to be written over what others may have written.
    fn still_in_time(&self, state: &mut State) -> Vec<Arc<Posted>> {
        let mut again = Vec::with_capacity(state.queue.len());
        for posted in std::mem::take(&mut state.queue) {
            let is_alone = state.leases.contains_key(&posted.data().shard);
            if is_alone || posted.sent().elapsed() < GIVE_UP {
                again.push(posted);
            } else {
                self.land(&posted, None);
                self.note_error(state, Errno::IO);
            }
        }
        again
    }
}
