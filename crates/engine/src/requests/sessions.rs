//! Who is connected, and what each session has open. Sessions are leases: one whose last
//! connection is gone keeps its open references for a while. Owns their counts and the sequence numbers
//! of slots; it stores nothing on disk.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, Signal};
use azekura_proto::limits::{
    LEASE_MS, LOCAL_LEASE_MS, OPEN_REFERENCES_MAX, RELAY_SLOT, SESSIONS_MAX, SLOTS_MAX,
};
use azekura_proto::{Oid, SessionId, Status};
use parking_lot::{Mutex, MutexGuard};

use crate::held_note::HeldNote;
use crate::records::record::Origin;
use crate::requests::gate::Gate;

/// A connection waits this long for the end of an earlier session of its client.
const ENDING_WAIT: Duration = Duration::from_secs(3);

/// The last request of a slot that this run of the engine has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) sequence: u64,
    /// What it made.
    pub(crate) created: Option<Oid>,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Whether any connection came over a network.
    remote: AtomicBool,
    connections: AtomicUsize,
    last_seen: Mutex<Instant>,
    open: Mutex<HashSet<Oid>>,
    slots: Box<[Mutex<Slot>]>,
    /// The number of the last request of each slot, to be looked at while it is carried out.
    last_sequences: Box<[AtomicU64]>,
    gates: Box<[Gate]>,
    /// Which streams of changes may reach this engine through others.
    relay_gate: Gate,
    /// The number of the last change that has, held while one is carried out.
    relayed: Mutex<u64>,
    /// Whether it has asked for read leases.
    pub(crate) reads_ahead: AtomicBool,
    /// It is being ended, or has been: what it had is given up, and nothing new is taken for it.
    is_over: AtomicBool,
}

impl Session {
    fn new(id: SessionId, now: Instant) -> Self {
        Self {
            id,
            remote: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            last_seen: Mutex::new(now),
            open: Mutex::new(HashSet::new()),
            slots: (0..SLOTS_MAX).map(|_| Mutex::default()).collect(),
            last_sequences: (0..SLOTS_MAX).map(|_| AtomicU64::new(0)).collect(),
            gates: (0..SLOTS_MAX).map(|_| Gate::default()).collect(),
            relay_gate: Gate::default(),
            relayed: Mutex::new(0),
            reads_ahead: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Everything that the session has open.
    pub(crate) fn open_objects(&self) -> Vec<Oid> {
        self.open.lock().iter().copied().collect()
    }

    /// Whether it has ended; a client of this name that comes back has another one.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn lease(&self) -> Duration {
        let is_remote = self.remote.load(Ordering::Relaxed);
        Duration::from_millis(if is_remote { LEASE_MS } else { LOCAL_LEASE_MS })
    }

    /// Which connections of a slot may bring changes.
    pub(crate) fn gate(&self, slot: u16) -> Option<&Gate> {
        if slot == RELAY_SLOT {
            return Some(&self.relay_gate);
        }
        self.gates.get(usize::from(slot))
    }

    /// Lets a change in that comes through another engine, one at a time. A second copy of an earlier one may come
    /// when the next has been carried out.
    pub(crate) fn enter_relayed(&self, sequence: u64) -> Result<MutexGuard<'_, u64>, Status> {
        let mut last = self.relayed.lock();
        if sequence < *last {
            return Err(Status::Busy);
        }
        *last = sequence;
        Ok(last)
    }

    /// Keeps a second copy of a request of this slot away, and tells whether the request with
    /// this number was seen before. One that a later one has followed is not done any more: nobody waits
    /// for it.
    pub(crate) fn enter_slot(
        &self,
        slot: u16,
        sequence: u64,
    ) -> Result<(MutexGuard<'_, Slot>, bool), Status> {
        let mut last = self.slots.get(usize::from(slot)).ok_or(Status::Invalid)?.lock();
        if sequence < last.sequence {
            return Err(Status::Invalid);
        }
        let seen = sequence == last.sequence;
        if !seen {
            *last = Slot { sequence, created: None };
            self.last_sequences[usize::from(slot)].store(sequence, Ordering::SeqCst);
        }
        Ok((last, seen))
    }

    /// Whether no later request of its slot has been seen.
    fn may_ask_again(&self, origin: &Origin) -> bool {
        let last = self.last_sequences.get(usize::from(origin.slot));
        last.is_some_and(|last| last.load(Ordering::SeqCst) <= origin.sequence)
    }
}

/// All sessions of an engine.
#[derive(Debug)]
pub(crate) struct Sessions {
    platform: SharedPlatform,
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// A session that was being ended is gone.
    ended: Signal,
    /// How many sessions have an object open.
    references: Mutex<HashMap<Oid, u32>>,
    note: HeldNote,
    /// Until then sessions of an earlier run may come back.
    strangers_end: Instant,
    /// Until then sessions of an earlier run, which had objects open, may claim them.
    claims_end: Option<Instant>,
}

impl Sessions {
    /// `note` says whether an earlier run has left sessions that had objects open.
    pub(crate) fn new(platform: SharedPlatform, note: HeldNote) -> Self {
        let strangers_end = platform.now() + Duration::from_millis(LEASE_MS);
        let claims_end = note.is_there().then_some(strangers_end);
        Self {
            platform,
            by_id: Mutex::default(),
            ended: Signal::new(),
            references: Mutex::default(),
            note,
            strangers_end,
            claims_end,
        }
    }

    /// A connection of a session opens. Tells whether the session is new. One that is being ended is
    /// waited for: what its client claims after that must not be given up with the old one.
    pub(crate) fn attach(&self, id: SessionId, remote: bool) -> Option<(Arc<Session>, bool)> {
        let mut by_id = self.by_id.lock();
        let deadline = self.platform.now() + ENDING_WAIT;
        while by_id.get(&id).is_some_and(|session| session.is_over()) {
            if self.ended.wait_until(&*self.platform, &mut by_id, deadline) {
                return None;
            }
        }
        let known = by_id.contains_key(&id);
        if !known && by_id.len() >= SESSIONS_MAX {
            return None;
        }
        let session = by_id
            .entry(id)
            .or_insert_with(|| Arc::new(Session::new(id, self.platform.now())))
            .clone();
        session.connections.fetch_add(1, Ordering::Relaxed);
        session.remote.fetch_or(remote, Ordering::Relaxed);
        Some((session, !known))
    }

    /// A connection of a session has closed. Tells whether it was the last.
    pub(crate) fn detach(&self, session: &Session) -> bool {
        *session.last_seen.lock() = self.platform.now();
        let before = session.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a connection closes once");
        before == 1
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    /// Sessions whose lease has run out are handed over for cleaning up, each to be
    /// [forgotten](Sessions::forget) then.
    pub(crate) fn take_expired(&self) -> Vec<Arc<Session>> {
        let by_id = self.by_id.lock();
        let expired = by_id.values().filter(|session| {
            session.connections.load(Ordering::Relaxed) == 0
                && self.platform.elapsed(*session.last_seen.lock()) > session.lease()
        });
        // Under the lock that lets connections in, so that none does now.
        expired.filter(|session| !session.is_over.swap(true, Ordering::AcqRel)).cloned().collect()
    }

    /// Hands a session over that has said goodbye, unless other connections of it are open.
    pub(crate) fn take(&self, session: &Session) -> Option<Arc<Session>> {
        let by_id = self.by_id.lock();
        if session.connections.load(Ordering::Relaxed) > 1 {
            return None;
        }
        let session =
            by_id.get(&session.id).filter(|known| std::ptr::eq(&raw const ***known, session));
        session.filter(|session| !session.is_over.swap(true, Ordering::AcqRel)).cloned()
    }

    /// A session that was handed over has been cleaned up: its client may come back as a new one.
    pub(crate) fn forget(&self, session: &Session) {
        let mut by_id = self.by_id.lock();
        if by_id.get(&session.id).is_some_and(|known| std::ptr::eq(&raw const **known, session)) {
            by_id.remove(&session.id);
        }
        drop(by_id);
        self.ended.notify_all();
    }

    /// A session that has not ended.
    pub(crate) fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.by_id.lock().get(&id).filter(|session| !session.is_over()).cloned()
    }

    pub(crate) fn is_known(&self, id: SessionId) -> bool {
        self.by_id.lock().contains_key(&id)
    }

    /// Whether the client that has sent a request may send it again.
    pub(crate) fn may_ask_again(&self, origin: &Origin) -> bool {
        match self.by_id.lock().get(&origin.session) {
            Some(session) => session.may_ask_again(origin),
            None => self.platform.now() < self.strangers_end && origin.slot < SLOTS_MAX,
        }
    }

    /// The session has an object open from now on.
    pub(crate) fn open(&self, session: &Session, oid: Oid) -> Result<(), Status> {
        let mut open = session.open.lock();
        if open.len() >= OPEN_REFERENCES_MAX {
            return Err(Status::LimitReached);
        }
        if open.insert(oid) {
            *self.references.lock().entry(oid).or_insert(0) += 1;
        }
        drop(open);
        self.note.make()
    }

    /// The session no longer has the object open. Tells whether nobody has.
    pub(crate) fn release(&self, session: &Session, oid: Oid) -> bool {
        if !session.open.lock().remove(&oid) {
            return false;
        }
        let mut references = self.references.lock();
        let Entry::Occupied(mut count) = references.entry(oid) else {
            unreachable!("what a session has open is counted");
        };
        *count.get_mut() -= 1;
        let nobody = *count.get() == 0;
        if nobody {
            count.remove();
        }
        nobody
    }

    /// Whether any session has the object open, or may have had since an earlier run of the engine.
    pub(crate) fn is_open(&self, oid: Oid) -> bool {
        self.awaits_claims() || self.references.lock().contains_key(&oid)
    }

    /// Whether sessions of an earlier run may still claim what they had open.
    pub(crate) fn awaits_claims(&self) -> bool {
        self.claims_end.is_some_and(|end| self.platform.now() < end)
    }

    /// Takes the note for the next run away if nobody has anything open.
    pub(crate) fn clear_note(&self) {
        if !self.awaits_claims() {
            self.note.clear(|| self.references.lock().is_empty());
        }
    }
}
