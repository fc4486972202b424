//! Who is connected, and what each session has open. Sessions are leases: one whose last
//! connection is gone keeps its open references for a while. Owns their counts and the sequence numbers
//! of slots; it stores nothing on disk.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::limits::{
    LEASE_MS, LOCAL_LEASE_MS, OPEN_REFERENCES_MAX, SESSIONS_MAX, SLOTS_MAX,
};
use azekura_proto::{Oid, SessionId, Status};
use parking_lot::{Mutex, MutexGuard};

use crate::requests::gate::Gate;

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
    gates: Box<[Gate]>,
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
            gates: (0..SLOTS_MAX).map(|_| Gate::default()).collect(),
        }
    }

    /// Everything that the session has open.
    pub(crate) fn open_objects(&self) -> Vec<Oid> {
        self.open.lock().iter().copied().collect()
    }

    fn lease(&self) -> Duration {
        let is_remote = self.remote.load(Ordering::Relaxed);
        Duration::from_millis(if is_remote { LEASE_MS } else { LOCAL_LEASE_MS })
    }

    /// Which connections of a slot may bring changes.
    pub(crate) fn gate(&self, slot: u16) -> Option<&Gate> {
        self.gates.get(usize::from(slot))
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
        }
        Ok((last, seen))
    }
}

/// All sessions of an engine.
#[derive(Debug)]
pub(crate) struct Sessions {
    platform: SharedPlatform,
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// How many sessions have an object open.
    references: Mutex<HashMap<Oid, u32>>,
}

impl Sessions {
    pub(crate) fn new(platform: SharedPlatform) -> Self {
        Self { platform, by_id: Mutex::default(), references: Mutex::default() }
    }

    /// A connection of a session opens. Tells whether the session is new.
    pub(crate) fn attach(&self, id: SessionId, remote: bool) -> Option<(Arc<Session>, bool)> {
        let mut by_id = self.by_id.lock();
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

    /// A connection of a session has closed.
    pub(crate) fn detach(&self, session: &Session) {
        *session.last_seen.lock() = self.platform.now();
        let before = session.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a connection closes once");
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    /// Sessions whose lease has run out are forgotten and handed over for cleaning up.
    pub(crate) fn take_expired(&self) -> Vec<Arc<Session>> {
        let mut by_id = self.by_id.lock();
        let expired: Vec<SessionId> = by_id
            .values()
            .filter(|session| session.connections.load(Ordering::Relaxed) == 0)
            .filter(|session| self.platform.elapsed(*session.last_seen.lock()) > session.lease())
            .map(|session| session.id)
            .collect();
        expired.iter().filter_map(|id| by_id.remove(id)).collect()
    }

    /// Forgets a session that has said goodbye, unless other connections of it are open.
    pub(crate) fn take(&self, session: &Session) -> Option<Arc<Session>> {
        let mut by_id = self.by_id.lock();
        if session.connections.load(Ordering::Relaxed) > 1 {
            return None;
        }
        by_id.remove(&session.id)
    }

    pub(crate) fn is_known(&self, id: SessionId) -> bool {
        self.by_id.lock().contains_key(&id)
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
        Ok(())
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

    /// Whether any session has the object open.
    pub(crate) fn is_open(&self, oid: Oid) -> bool {
        self.references.lock().contains_key(&oid)
    }
}
