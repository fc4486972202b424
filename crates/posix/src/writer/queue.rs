//! The writes in flight of one file. Owns their order, the leases under which they travel, and what is
//! done when a connection or a lease is lost: the same bytes are written again, in the ordinary way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use azekura_client::{Call, ClientError, Outbox, Outcome, Posted, this_process};
use azekura_proto::limits::{LEASE_REFUSAL_MS, WRITE_LEASE_MS};
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::{LeaseWrite, Leased, Write};
use azekura_proto::{Attr, Oid, TargetId};
use parking_lot::{Mutex, MutexGuard};

use super::links::Links;
use super::own::{Asked, Own};
use crate::changes::ChangeCounts;
use crate::errno::of_client;
use crate::layout::Piece;
use crate::{Errno, Result};

/// The shard that lies at a file's home.
const HOME_SHARD: u16 = 0;
/// For this long after others have come no lease is asked for.
const REFUSAL: Duration = Duration::from_millis(LEASE_REFUSAL_MS);
/// What has not arrived for so long is sent again only if nobody else has been there since.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Nothing is answered early while a write is in flight that was sent longer ago than this.
const OLDEST: Duration = Duration::from_millis(WRITE_LEASE_MS / 4);

/// A write lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    target: TargetId,
    epoch: u64,
    /// Until then a write may be answered early: half of the lease is left for it to arrive.
    may_answer_until: Instant,
}

impl Lease {
    /// Of a shard at that target, asked for then.
    fn new(target: TargetId, asked: Instant, leased: Leased) -> Self {
        let half = Duration::from_millis(u64::from(leased.lease_ms) / 2);
        Self { target, epoch: leased.version, may_answer_until: asked + half }
    }
}

/// The write lease of a file that was made to be written.
#[derive(Debug)]
pub(crate) struct LeaseOfNew {
    /// When the file was asked for.
    pub(crate) asked: Instant,
    /// Own changes by then.
    pub(crate) changes: ChangeCounts,
    pub(crate) leased: Leased,
}

/// A file with writes in flight.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) oid: Oid,
    /// Open files that are attached to it; changed under the lock of the table.
    pub(super) users: AtomicUsize,
    state: Mutex<State>,
}

/// What is known of it.
#[derive(Debug)]
struct State {
    process: u32,
    leases: HashMap<u16, Lease>,
    /// All that is in the file, where that is known.
    own: Option<Own>,
    /// What was answered to the program, oldest first.
    posted: VecDeque<Arc<Posted>>,
    /// Connections to each engine that they go over; grows when nothing is in flight.
    connections: u64,
    refused_until: Option<Instant>,
    /// Somebody waits for the end of a lease.
    is_waited_for: bool,
    /// Something has been in flight since the readers were told.
    is_dirty: bool,
    /// When something was written last, or leases were asked for to write.
    last_write: Option<Instant>,
    /// The last error and its number.
    error: Option<(u64, Errno)>,
}

impl State {
    fn new() -> Self {
        Self {
            process: this_process(),
            leases: HashMap::new(),
            own: None,
            posted: VecDeque::new(),
            connections: 1,
            refused_until: None,
            is_waited_for: false,
            is_dirty: false,
            last_write: None,
            error: None,
        }
    }
}

impl Queue {
    pub(super) fn new(oid: Oid) -> Self {
        Self { oid, users: AtomicUsize::new(0), state: Mutex::new(State::new()) }
    }

    /// Takes the queue: whoever sends has it, so that its order is that of sending.
    pub(super) fn lock<'q>(&'q self, links: &'q Links) -> LockedQueue<'q> {
        let mut state = self.state.lock();
        if state.process != this_process() {
            // What a forked child finds is its parent's business.
            for posted in std::mem::take(&mut state.posted) {
                links.budget.give_back(posted.bytes().len() as u64);
            }
            *state = State::new();
        }
        LockedQueue { links, queue: self, state }
    }

    /// The same, if nobody has it.
    pub(super) fn try_lock<'q>(&'q self, links: &'q Links) -> Option<LockedQueue<'q>> {
        Some(LockedQueue { links, queue: self, state: self.state.try_lock()? })
    }
}

/// A queue that the calling thread has to itself.
pub(super) struct LockedQueue<'q> {
    links: &'q Links,
    queue: &'q Queue,
    state: MutexGuard<'q, State>,
}

impl LockedQueue<'_> {
    fn data(&self, shard: u16) -> ShardRef {
        ShardRef { oid: self.queue.oid, shard, is_file: true }
    }

    /// Whether there is a lease of a shard.
    pub(super) fn has_lease(&self, shard: u16) -> bool {
        self.state.leases.contains_key(&shard)
    }

    /// Asks for no lease for a while.
    pub(super) fn refuse(&mut self) {
        self.state.refused_until = Some(self.links.now() + REFUSAL);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.state.refused_until.is_some_and(|until| until > self.links.now())
    }

    /// Whether leases are kept that nobody has used for so long.
    pub(super) fn is_idle(&self, time: Duration) -> bool {
        let state = &self.state;
        let elapsed = |since| self.links.platform.elapsed(since);
        state.posted.is_empty()
            && !state.leases.is_empty()
            && state.last_write.is_some_and(|last| elapsed(last) > time)
    }

    /// The last error and its number, if there has been one.
    pub(super) fn error(&self) -> Option<(u64, Errno)> {
        self.state.error
    }

    fn note_error(&mut self, errno: Errno) {
        self.state.error = Some((self.links.count_error(), errno));
    }

    /// Whether a write to these pieces may be answered although it may not have arrived.
    pub(super) fn may_answer(&self, pieces: &[(Piece, &[u8])]) -> bool {
        let now = self.links.now();
        let is_young = |posted: &Arc<Posted>| now.saturating_duration_since(posted.sent()) < OLDEST;
        self.state.posted.front().is_none_or(is_young)
            && pieces.iter().all(|(piece, _)| {
                let lease = self.state.leases.get(&piece.data.shard);
                lease.is_some_and(|lease| lease.may_answer_until > now)
                    && self.links.window(piece.target, |window| window.is_open()) == Some(true)
            })
    }

    /// Takes more connections where those that there are cannot carry what the link does.
    pub(super) fn add_connections(&mut self, pieces: &[(Piece, &[u8])]) {
        let links = self.links;
        let wanted = |(piece, _): &(Piece, &[u8])| {
            let connections = |bytes| links.outbox.connections_for(bytes);
            links.window(piece.target, |window| connections(window.limit_bytes()))
        };
        let connections = pieces.iter().filter_map(wanted).max().unwrap_or(1);
        if connections > self.state.connections {
            // Writes to one place must not go over two of them at once.
            self.finish_or_forget();
            self.state.connections = connections;
        }
    }

    /// Sends the pieces of a write.
    pub(super) fn post(&mut self, pieces: &[(Piece, &[u8])]) {
        let mut unreachable: Vec<TargetId> = Vec::new();
        for (piece, data) in pieces {
            let epoch = self.state.leases.get(&piece.data.shard).map_or(0, |lease| lease.epoch);
            let mut done = 0;
            while done < data.len() {
                let offset = piece.local_offset + done as u64;
                let room = Outbox::room(offset, (data.len() - done) as u64) as usize;
                let bytes = data[done..done + room].to_vec();
                done += room;
                self.links.note_sent(piece.target, room as u64);
                let posted = if unreachable.contains(&piece.target) {
                    self.links.outbox.post_lost(piece.target, piece.data, offset, epoch, bytes)
                } else {
                    let connections = self.state.connections;
                    let outbox = &self.links.outbox;
                    outbox.post(piece.target, piece.data, offset, epoch, connections, bytes)
                };
                if matches!(posted.outcome(), Outcome::Lost) {
                    // Dialled for once, not for each piece.
                    unreachable.push(piece.target);
                }
                self.state.is_dirty = true;
                self.state.last_write = Some(self.links.now());
                self.state.posted.push_back(posted);
            }
            let (links, own, oid) = (self.links, &mut self.state.own, self.queue.oid);
            own.take_if(|own| {
                let is_at_home = piece.data.shard == HOME_SHARD;
                let is_kept = is_at_home && own.write(links, oid, piece.local_offset, data);
                own.epoch != epoch || !is_kept
            });
        }
    }

    /// Reads at an offset what is in the file, if that is known and the lease holds; fewer bytes only at the end.
    pub(super) fn read_own(&self, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        self.own()?.read(self.links, self.queue.oid, offset, buffer)
    }

    /// The attributes of the file but for its times, if they are known and the lease holds.
    pub(super) fn own_attr(&self) -> Option<Attr> {
        self.own()?.attr(self.links, self.queue.oid)
    }

    /// All attributes of the file, if they were told since it was last changed and the lease holds.
    pub(super) fn attr_as_told(&self) -> Option<Attr> {
        self.own()?.attr_as_told(self.links, self.queue.oid)
    }

    /// Keeps attributes that were asked for when everything had arrived, and own changes of them had this count.
    pub(super) fn keep_own_attr(&mut self, attr: &Attr, changes: u64) {
        if self.own().is_some()
            && let Some(own) = &mut self.state.own
        {
            own.keep_attr(self.links, attr, changes);
        }
    }

    /// What is known of the file, if the lease holds.
    fn own(&self) -> Option<&Own> {
        let (own, lease) = (self.state.own.as_ref()?, self.state.leases.get(&HOME_SHARD)?);
        let holds = lease.epoch == own.epoch && lease.may_answer_until > self.links.now();
        (holds && self.state.error.is_none()).then_some(own)
    }

    /// Notes what has come of a write. False if it has to be sent again, or nothing has come.
    fn note(&mut self, posted: &Posted) -> bool {
        match posted.outcome() {
            Outcome::Waiting | Outcome::Lost => false,
            Outcome::Written { lease_ms, at } => {
                self.links.land(posted, Some(at));
                self.state.is_waited_for |= lease_ms == 0;
                if let Some(lease) = self.state.leases.get_mut(&posted.data().shard)
                    && lease.epoch == posted.epoch()
                {
                    let until = posted.sent() + Duration::from_millis(u64::from(lease_ms) / 2);
                    lease.may_answer_until = lease.may_answer_until.max(until);
                }
                true
            }
            Outcome::Failed(error) => {
                self.links.land(posted, None);
                self.note_error(of_client(&error));
                true
            }
        }
    }

    /// Takes in what has come, without waiting. False if something has to be sent again.
    pub(super) fn take_in(&mut self) -> bool {
        if let Some(oldest) = self.state.posted.front() {
            self.links.outbox.collect(oldest);
        }
        while let Some(oldest) = self.state.posted.front().cloned() {
            match oldest.outcome() {
                Outcome::Waiting => return true,
                Outcome::Lost => return false,
                Outcome::Written { .. } | Outcome::Failed(_) => self.note(&oldest),
            };
            self.state.posted.pop_front();
        }
        true
    }

    /// Waits for the oldest write; false if none is in flight.
    pub(super) fn await_oldest(&self) -> bool {
        match self.state.posted.front() {
            Some(oldest) => {
                self.links.outbox.wait(oldest);
                true
            }
            None => false,
        }
    }

    /// Waits until everything has arrived, sending again what was lost.
    ///
    /// # Errors
    /// If the engine cannot be reached. What it has not got is kept.
    pub(super) fn finish(&mut self) -> Result<()> {
        let mut finished = Ok(());
        loop {
            if !self.take_in() {
                finished = self.send_again();
            }
            if finished.is_err() || !self.await_oldest() {
                break;
            }
        }
        if self.state.is_dirty {
            // What was read meanwhile may be from before; and what is left changes it once more.
            self.state.is_dirty = !self.state.posted.is_empty();
            let note = || self.links.changes.note(self.queue.oid);
            match &mut self.state.own {
                Some(own) => own.note_arrived(self.links, self.queue.oid, note),
                None => note(),
            }
        }
        finished
    }

    /// The same; what cannot be brought to its end is an error of the file.
    pub(super) fn finish_or_forget(&mut self) {
        if let Err(errno) = self.finish() {
            tracing::warn!("answered writes to {} are lost: {errno}", self.queue.oid);
            self.forget(errno);
        }
    }

    /// Gives up what cannot be sent, and the leases: what may still be on its way under them must not
    /// land on later writes, which go under new ones.
    fn forget(&mut self, errno: Errno) {
        for posted in std::mem::take(&mut self.state.posted) {
            self.links.land(&posted, None);
        }
        self.state.leases.clear();
        self.state.own = None;
        self.note_error(errno);
    }

    /// If somebody waits for the end of a lease, they need wait no longer.
    pub(super) fn make_way(&mut self) {
        if self.state.is_waited_for {
            self.finish_or_forget();
            self.state.is_waited_for = false;
            self.release();
            self.refuse();
        }
    }

    /// Gives all leases back, without waiting. Nothing may be in flight.
    pub(super) fn release(&mut self) -> Vec<Arc<Posted>> {
        // It is of no use without its lease, and others have use for the memory.
        self.state.own = None;
        let (outbox, oid) = (&self.links.outbox, self.queue.oid);
        let back = |(shard, lease): (u16, Lease)| {
            outbox.release(lease.target, ShardRef { oid, shard, is_file: true }, lease.epoch)
        };
        self.state.leases.drain().map(back).collect()
    }

    /// Gives all leases back, and waits until the engines have them.
    pub(super) fn release_now(&mut self) {
        for posted in self.release() {
            self.links.outbox.wait(&posted);
        }
    }

    /// Asks for leases. False if there is not one for each shard.
    ///
    /// `with_contents`: what is in the file is asked for as well, which lies in its first shard.
    pub(super) fn ask_leases(&mut self, shards: &[(u16, TargetId)], with_contents: bool) -> bool {
        let wanted: Vec<_> = shards.iter().map(|(shard, target)| (*shard, *target, None)).collect();
        self.state.last_write = Some(self.links.now());
        let is_quiet = self.state.posted.is_empty() && self.state.leases.is_empty();
        let contents = (with_contents && is_quiet).then(|| Asked::new(self.data(HOME_SHARD)));
        // An engine that cannot be reached is met by the write itself.
        self.ask(&wanted, contents).unwrap_or(false)
    }

    /// Keeps the lease of a file that has just been made; and, if that may be kept, that nothing is in it yet.
    pub(super) fn keep_lease_of_new(&mut self, lease: LeaseOfNew, keeps_contents: bool) {
        let LeaseOfNew { asked, changes, leased } = lease;
        let oid = self.queue.oid;
        self.state.leases.insert(HOME_SHARD, Lease::new(oid.home(), asked, leased));
        self.state.last_write = Some(self.links.now());
        let own = || Own::of_new(oid, leased.version, self.links, &changes);
        self.state.own = keeps_contents.then(own).flatten();
    }

    /// Asks for leases, in place of others where epochs are given.
    fn ask(
        &mut self,
        wanted: &[(u16, TargetId, Option<u64>)],
        mut contents: Option<Asked>,
    ) -> std::result::Result<bool, ClientError> {
        let asked = self.links.now();
        self.state.own = None;
        let mut calls: Vec<_> = wanted
            .iter()
            .map(|(shard, target, instead_of)| {
                let data = self.data(*shard);
                Call::new(*target, LeaseWrite { data, instead_of: *instead_of })
            })
            .collect();
        // Behind the request for its lease: what is read under it nobody has changed since.
        let mut reads: Vec<_> = match (&mut contents, wanted) {
            (Some(contents), [(HOME_SHARD, target, _)]) => vec![contents.call(*target)],
            _ => Vec::new(),
        };
        let (leases, mut read) = self.links.pool().call_mixed(&mut calls, &mut reads);
        drop(reads);
        let read = read.pop().and_then(std::result::Result::ok);
        let mut all = true;
        let mut unreached = None;
        for (lease, (shard, target, _)) in leases.into_iter().zip(wanted) {
            match lease {
                Ok(granted) if granted.lease_ms > 0 => {
                    self.state.leases.insert(*shard, Lease::new(*target, asked, granted));
                }
                Err(error) if error.is_unreached() => unreached = Some(error),
                _ => {
                    all = false;
                    self.state.leases.remove(shard);
                    self.state.refused_until = Some(asked + REFUSAL);
                }
            }
        }
        if let (Some(contents), Some(read), Some(lease)) =
            (contents, read.filter(|read| !read.striped), self.state.leases.get(&HOME_SHARD))
        {
            self.state.own = contents.taken(read.bytes, lease.epoch, self.links);
        }
        match unreached {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }

    /// Something is lost: writes it again, in order and by ordinary requests.
    ///
    /// # Errors
    /// If the engine cannot be reached. What it has not got is kept.
    fn send_again(&mut self) -> Result<()> {
        for posted in &self.state.posted {
            self.links.outbox.wait(posted);
        }
        // All from the first lost one on: what came after it may have been overwritten by it since.
        for posted in std::mem::take(&mut self.state.posted) {
            let comes_after = !self.state.posted.is_empty()
                && matches!(posted.outcome(), Outcome::Written { .. });
            if comes_after || !self.note(&posted) {
                self.state.posted.push_back(posted);
            }
        }
        // What may still be on its way under the old epochs must not arrive after this.
        let leases = self.state.leases.iter();
        let old: Vec<_> =
            leases.map(|(shard, lease)| (*shard, lease.target, Some(lease.epoch))).collect();
        self.ask(&old, None).map_err(|error| of_client(&error))?;
        tracing::debug!("{} writes to {} are sent again", self.state.posted.len(), self.queue.oid);
        let again = self.still_in_time();
        let mut calls: Vec<_> = again
            .iter()
            .map(|posted| {
                let request = Write { data: posted.data(), offset: posted.offset() };
                Call::sending(posted.target(), request, posted.bytes()).in_order()
            })
            .collect();
        let done = self.links.pool().call_all(&mut calls);
        let mut sent = Ok(());
        for (done, posted) in done.into_iter().zip(&again) {
            match done {
                Err(error) if sent.is_ok() && error.is_unreached() => {
                    sent = Err(of_client(&error));
                    self.keep(posted);
                }
                // Whatever has come of it: what is written before it is not there yet.
                _ if sent.is_err() => self.keep(posted),
                Ok(()) => self.links.land(posted, None),
                Err(error) => {
                    self.links.land(posted, None);
                    self.note_error(of_client(&error));
                }
            }
        }
        sent
    }

    /// Puts a write back that has to be sent again.
    fn keep(&mut self, posted: &Arc<Posted>) {
        posted.lose();
        self.state.posted.push_back(Arc::clone(posted));
    }

    /// What is to be sent again: without what has waited too long to be written over what others may
    /// have written.
    fn still_in_time(&mut self) -> Vec<Arc<Posted>> {
        let mut again = Vec::with_capacity(self.state.posted.len());
        for posted in std::mem::take(&mut self.state.posted) {
            if self.has_lease(posted.data().shard)
                || self.links.platform.elapsed(posted.sent()) < GIVE_UP
            {
                again.push(posted);
            } else {
                self.links.land(&posted, None);
                self.note_error(Errno::IO);
            }
        }
        again
    }
}
