//! Writing far files: writes that were answered to the program and are on their way to the engine. Owns
//! when a write may be answered early, what is kept until the engine has it, and the errors that nobody
//! has been told yet. Every write is sent at once; nothing is held back here.
//!
//! A write is answered early only under a write lease of the shard, and only while there is time left for
//! it to arrive under it. So whoever else wants to look at the shard waits for it. Everything that this
//! process does with a file otherwise comes after its writes: [`FileSystem::settle`].

mod keeper;
mod object;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use azekura_client::{Outbox, Outcome, Pool, pieces};
use azekura_policy::{Budget, WritePolicy, WriteWindow};
use azekura_proto::geometry::Extent;
use azekura_proto::limits::WRITE_LEASE_MS;
use azekura_proto::message::ShardRef;
use azekura_proto::{EngineId, Oid, TargetId};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::reader::Reading;
use crate::{FileSystem, OpenFile, Result};
use keeper::start_keeper;
use object::{Object, State};

/// A round trip from which on a link is far, in microseconds.
const FAR_US: u64 = 150;
/// Bytes of all files that may be in flight.
const BUDGET_BYTES: u64 = 64 << 20;
/// Nothing is answered early while a write is in flight that was sent longer ago than this.
const OLDEST: Duration = Duration::from_millis(WRITE_LEASE_MS / 4);
/// Shards of a wide file for which leases are asked for at once.
const SHARDS: u16 = 32;

/// What becomes of the leases once everything has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leases {
    /// They stay: what follows comes from this client.
    Keep,
    /// They are given back.
    Release,
    /// They are given back before anything else happens: other engines take part in what follows.
    ReleaseFirst,
}

/// How the files of a file system are written.
#[derive(Debug)]
pub(crate) struct Writing {
    policy: WritePolicy,
    outbox: Outbox,
    reading: Arc<Reading>,
    started: Instant,
    /// Files with leases or writes in flight.
    objects: Mutex<HashMap<Oid, Arc<Object>>>,
    /// Their number, to be read without the lock.
    count: AtomicUsize,
    windows: Mutex<HashMap<EngineId, WriteWindow>>,
    budget: Budget,
    /// Counts errors, so that each open file is told of each once.
    errors: AtomicU64,
    has_keeper: AtomicBool,
    /// The process is about to end: nothing is answered early any more.
    is_ending: AtomicBool,
}

/// How an open file is written; decided at its first write.
#[derive(Debug)]
pub(crate) enum Writer {
    /// Every write waits for its answer.
    Through,
    /// It may be far.
    MayBeFar {
        /// A first write tells how far; and whoever writes once only needs no lease.
        has_written: AtomicBool,
        /// Once it has been found to be far.
        attached: OnceLock<Attached>,
    },
}

/// An open file that has writes in flight, or had. Dropping it waits for them.
#[derive(Debug)]
pub(crate) struct Attached {
    writing: Arc<Writing>,
    object: Arc<Object>,
}

impl Attached {
    fn new(writing: &Arc<Writing>, oid: Oid) -> Self {
        start_keeper(writing);
        let mut objects = writing.objects.lock();
        let object = Arc::clone(objects.entry(oid).or_insert_with(|| Arc::new(Object::new(oid))));
        object.users.fetch_add(1, Ordering::Relaxed);
        writing.count.store(objects.len(), Ordering::SeqCst);
        Self { writing: Arc::clone(writing), object }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let oid = self.object.oid;
        let mut state = self.object.lock(&self.writing);
        self.writing.finish_or_forget(&self.object, &mut state);
        self.writing.release(&self.object, &mut state, false);
        drop(state);
        let mut objects = self.writing.objects.lock();
        if self.object.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            objects.remove(&oid);
            self.writing.count.store(objects.len(), Ordering::SeqCst);
        }
    }
}

impl Writing {
    pub(crate) fn new(pool: &Arc<Pool>, policy: WritePolicy, reading: Arc<Reading>) -> Arc<Self> {
        Arc::new(Self {
            policy,
            outbox: Outbox::new(Arc::clone(pool)),
            reading,
            started: Instant::now(),
            objects: Mutex::default(),
            count: AtomicUsize::new(0),
            windows: Mutex::default(),
            budget: Budget::new(BUDGET_BYTES),
            errors: AtomicU64::new(0),
            has_keeper: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        })
    }

    /// How many errors there have been.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    fn pool(&self) -> &Arc<Pool> {
        self.outbox.pool()
    }

    fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_micros() as u64
    }

    fn object(&self, oid: Oid) -> Option<Arc<Object>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.objects.lock().get(&oid).cloned()
    }

    /// The window to the engine of a target.
    fn window<T>(&self, target: TargetId, act: impl FnOnce(&mut WriteWindow) -> T) -> Option<T> {
        let engine = self.pool().map().engine_of(target)?;
        Some(act(self.windows.lock().entry(engine).or_default()))
    }

    /// Whether the way to a target is so long that writes are kept in flight.
    fn is_far(&self, target: TargetId) -> bool {
        match self.policy {
            WritePolicy::Always => true,
            WritePolicy::Through => false,
            WritePolicy::Auto => {
                // Whether it is remote takes looking at the host's files: last.
                self.window(target, |window| window.round_trip_us()) >= Some(FAR_US)
                    && self.pool().is_remote(target)
            }
        }
    }

    /// Whether it has been found to be short.
    fn is_near(&self, target: TargetId) -> bool {
        self.policy == WritePolicy::Auto
            && self
                .window(target, |window| window.round_trip_us())
                .is_some_and(|us| (1..FAR_US).contains(&us))
    }

    /// A request to a target was answered after this time.
    fn saw(&self, target: TargetId, took: Duration) {
        self.window(target, |window| window.saw_round_trip(took.as_micros() as u64));
    }

    /// Takes in what has come. What cannot be brought to its end is an error of the file.
    fn finish_or_forget(&self, object: &Object, state: &mut State) {
        if let Err(errno) = self.finish(object, state) {
            tracing::warn!("answered writes to {} are lost: {errno}", object.oid);
            self.forget(state, errno);
        }
    }

    /// Whether a write to these shards may be answered although it may not have arrived.
    fn may_answer(&self, state: &State, places: &[(u16, TargetId)]) -> bool {
        let now = Instant::now();
        let is_young = |oldest: &Instant| now.saturating_duration_since(*oldest) < OLDEST;
        state.oldest().as_ref().is_none_or(is_young)
            && places.iter().all(|(shard, target)| {
                state.may_answer_until(*shard).is_some_and(|until| until > now)
                    && self.window(*target, |window| window.is_open()) == Some(true)
            })
    }

    /// Takes more connections where those that there are cannot carry what the link does.
    fn widen_way(&self, object: &Object, state: &mut State, places: &[(u16, TargetId)]) {
        let wanted = |(_, target): &(u16, TargetId)| {
            self.window(*target, |window| self.outbox.lanes_for(window.limit_bytes()))
        };
        let lanes = places.iter().filter_map(wanted).max().unwrap_or(1);
        if lanes > state.lanes {
            // Writes to one place must not go over two of them at once.
            self.finish_or_forget(object, state);
            state.lanes = lanes;
        }
    }

    /// Sends the pieces of a write.
    fn post(&self, oid: Oid, state: &mut State, places: &[Place<'_>]) {
        let mut unreachable: Vec<TargetId> = Vec::new();
        for place in places {
            let data = ShardRef { oid, shard: place.shard, is_file: true };
            let mut done = 0;
            while done < place.data.len() {
                let offset = place.local_offset + done as u64;
                let room = Outbox::room(offset, (place.data.len() - done) as u64) as usize;
                let bytes = place.data[done..done + room].to_vec();
                done += room;
                self.window(place.target, |w| w.sent(self.us(Instant::now()), room as u64));
                let epoch = state.epoch(place.shard).unwrap_or(0);
                let posted = if unreachable.contains(&place.target) {
                    Outbox::post_lost(place.target, data, offset, epoch, bytes)
                } else {
                    self.outbox.post(place.target, data, offset, epoch, state.lanes, bytes)
                };
                if matches!(posted.outcome(), Outcome::Lost) {
                    // Dialled for once, not for each piece.
                    unreachable.push(place.target);
                }
                state.push(posted);
            }
        }
    }
}

/// A piece of a write.
struct Place<'d> {
    shard: u16,
    target: TargetId,
    local_offset: u64,
    data: &'d [u8],
}

impl FileSystem {
    /// How this file is written.
    fn new_writer(&self, file: &OpenFile) -> Writer {
        let is_synchronous = file.flags().intersects(OFlags::DSYNC | OFlags::SYNC);
        let may_be_far = match self.writing().policy {
            WritePolicy::Through => false,
            WritePolicy::Always => true,
            WritePolicy::Auto => (0..file.geometry().shards())
                .any(|shard| self.pool().is_remote(self.shard_target(file.oid(), shard))),
        };
        if is_synchronous || !may_be_far {
            return Writer::Through;
        }
        Writer::MayBeFar { has_written: AtomicBool::new(false), attached: OnceLock::new() }
    }

    fn places<'d>(&self, file: &OpenFile, offset: u64, data: &'d [u8]) -> Vec<Place<'d>> {
        let place = |piece: Extent| {
            let from = (piece.offset - offset) as usize;
            Place {
                shard: piece.shard,
                target: self.shard_target(file.oid(), piece.shard),
                local_offset: piece.local_offset,
                data: &data[from..from + piece.bytes as usize],
            }
        };
        pieces(file.geometry(), offset, data.len() as u64).map(place).collect()
    }

    /// Writes without waiting for the answer, if the file is far and it can be done safely. `None` if
    /// the write is to be done in the ordinary way: nothing is in flight then.
    ///
    /// # Errors
    /// What became of earlier writes, once.
    pub(crate) fn write_behind(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<usize>> {
        let Writer::MayBeFar { has_written, attached } = file.writer(|| self.new_writer(file))
        else {
            return self.settle(file.oid(), Leases::Keep).map(|()| None);
        };
        let is_first = !has_written.swap(true, Ordering::Relaxed);
        let writing = self.writing();
        let attached = match attached.get() {
            Some(attached) => attached,
            None if is_first || !writing.is_far(file.oid().home()) => {
                return self.settle(file.oid(), Leases::Keep).map(|()| None);
            }
            None => attached.get_or_init(|| Attached::new(writing, file.oid())),
        };
        let places = self.places(file, offset, data);
        let object = &attached.object;
        let mut state = object.lock(writing);
        if !writing.take_in(&mut state) {
            writing.finish_or_forget(object, &mut state);
        }
        state.tell_error(file)?;
        writing.make_way(object, &mut state);
        let shards: Vec<_> = places.iter().map(|place| (place.shard, place.target)).collect();
        let is_ready = !writing.is_ending.load(Ordering::SeqCst)
            && self.have_leases(file, object, &mut state, &shards)
            && writing.budget.take(data.len() as u64);
        if !is_ready {
            writing.finish_or_forget(object, &mut state);
            state.tell_error(file)?;
            return Ok(None);
        }
        writing.widen_way(object, &mut state, &shards);
        writing.post(file.oid(), &mut state, &places);
        loop {
            if !writing.take_in(&mut state) {
                writing.finish_or_forget(object, &mut state);
            }
            writing.make_way(object, &mut state);
            if writing.may_answer(&state, &shards) || !writing.await_oldest(&state) {
                break;
            }
        }
        state.tell_error(file)?;
        Ok(Some(data.len()))
    }

    /// Whether there are leases for these shards; asks for them if not.
    fn have_leases(
        &self,
        file: &OpenFile,
        object: &Object,
        state: &mut State,
        shards: &[(u16, TargetId)],
    ) -> bool {
        if shards.iter().all(|(shard, _)| state.epoch(*shard).is_some()) {
            return true;
        }
        // What is near is written through. What has not been met yet is met by asking.
        if state.is_refused() || shards.iter().any(|(_, target)| self.writing().is_near(*target)) {
            return false;
        }
        let count = file.geometry().shards();
        let mut wanted: Vec<u16> = shards.iter().map(|(shard, _)| *shard).collect();
        if file.is_wide() {
            let first = wanted.first().copied().unwrap_or(0);
            wanted.extend((1..count.min(SHARDS)).map(|turn| (first + turn) % count));
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|shard| state.epoch(*shard).is_none());
        let wanted: Vec<_> =
            wanted.iter().map(|shard| (*shard, self.shard_target(file.oid(), *shard))).collect();
        let asked = Instant::now();
        let all = self.writing().ask_leases(object, state, &wanted);
        for (_, target) in &wanted {
            self.writing().saw(*target, asked.elapsed());
        }
        if all && shards.iter().all(|(_, target)| self.writing().is_far(*target)) {
            return true;
        }
        if all {
            // Nearer than it seemed.
            state.refuse();
        }
        self.writing().release(object, state, false);
        false
    }

    /// A write was answered in the ordinary way: tells how far its target is.
    pub(crate) fn saw_write(&self, file: &OpenFile, offset: u64, took: Duration) {
        if let Writer::MayBeFar { .. } = file.writer(|| self.new_writer(file)) {
            let first = pieces(file.geometry(), offset, 1).next();
            if let Some(piece) = first {
                self.writing().saw(self.shard_target(file.oid(), piece.shard), took);
            }
        }
    }

    /// Waits until all that this process has written to a file has arrived. To be called before
    /// anything else is done with its data, length or times, or with its locks.
    ///
    /// # Errors
    /// `EIO` if that cannot be brought about now. What the engine refused is not told here but to
    /// those who have the file open.
    pub(crate) fn settle(&self, oid: Oid, leases: Leases) -> Result<()> {
        let Some(object) = self.writing().object(oid) else { return Ok(()) };
        let mut state = object.lock(self.writing());
        self.writing().finish(&object, &mut state)?;
        match leases {
            Leases::Keep => {}
            Leases::Release => self.writing().release(&object, &mut state, false),
            Leases::ReleaseFirst => self.writing().release(&object, &mut state, true),
        }
        Ok(())
    }

    /// The same for all files.
    ///
    /// # Errors
    /// As [`FileSystem::settle`].
    pub(crate) fn settle_all(&self) -> Result<()> {
        if self.writing().count.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let all: Vec<Oid> = self.writing().objects.lock().keys().copied().collect();
        all.into_iter().try_for_each(|oid| self.settle(oid, Leases::Keep))
    }

    /// [`FileSystem::drain`] for a process that is about to become another program, or to end: from now
    /// on nothing is answered early, whoever writes.
    ///
    /// # Errors
    /// As [`FileSystem::drain`].
    pub fn drain_for_good(&self) -> Result<()> {
        self.writing().is_ending.store(true, Ordering::SeqCst);
        self.drain()
    }

    /// The process goes on after [`FileSystem::drain_for_good`].
    pub fn resume(&self) {
        self.writing().is_ending.store(false, Ordering::SeqCst);
    }

    /// Lets everything arrive that was written to any file, and gives all leases back: for a process
    /// that is about to fork or to start a program.
    ///
    /// # Errors
    /// `EIO` if that cannot be brought about.
    pub fn drain(&self) -> Result<()> {
        let all: Vec<Oid> = self.writing().objects.lock().keys().copied().collect();
        let mut drained = Ok(());
        for oid in all {
            drained = drained.and(self.settle(oid, Leases::ReleaseFirst));
        }
        self.writing().outbox.close();
        drained
    }

    /// Whether what an engine says of a file may be older than what this process has written.
    pub(crate) fn has_unsettled(&self, oid: Oid) -> bool {
        self.writing().object(oid).is_some()
    }

    /// Waits as [`FileSystem::settle`] does, for `fsync` and `close`, which tell the errors.
    ///
    /// # Errors
    /// What became of earlier writes, once for each open file.
    pub(crate) fn settle_and_tell(&self, file: &OpenFile) -> Result<()> {
        let Some(object) = self.writing().object(file.oid()) else { return Ok(()) };
        let mut state = object.lock(self.writing());
        self.writing().finish_or_forget(&object, &mut state);
        self.writing().release(&object, &mut state, false);
        state.tell_error(file)
    }
}
