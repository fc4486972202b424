//! Who is connected, and what each session has open. Sessions are leases: one whose last
//! connection is gone keeps its holds for a while. Owns the hold counts and the sequence numbers of
//! slots; it stores nothing on disk.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_proto::limits::{HOLDS_MAX, LEASE_MS, SESSIONS_MAX, SLOTS_MAX};
use azekura_proto::{Oid, SessionId, Status};
use parking_lot::{Mutex, MutexGuard};

/// A client on the same host is cut off by nothing but its own end, so its lease is short.
const LOCAL_LEASE: Duration = Duration::from_secs(1);

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
    holds: Mutex<HashSet<Oid>>,
    slots: Box<[Mutex<Slot>]>,
}

impl Session {
    fn new(id: SessionId) -> Self {
        Self {
            id,
            remote: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            last_seen: Mutex::new(Instant::now()),
            holds: Mutex::new(HashSet::new()),
            slots: (0..SLOTS_MAX).map(|_| Mutex::default()).collect(),
        }
    }

    /// A connection of the session has closed.
    pub(crate) fn detach(&self) {
        *self.last_seen.lock() = Instant::now();
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Everything that the session has open.
    pub(crate) fn holds(&self) -> Vec<Oid> {
        self.holds.lock().iter().copied().collect()
    }

    fn lease(&self) -> Duration {
        if self.remote.load(Ordering::Relaxed) {
            Duration::from_millis(LEASE_MS)
        } else {
            LOCAL_LEASE
        }
    }

    /// Keeps a second copy of a request of this slot away, and tells whether the request with
    /// this number was seen before.
    pub(crate) fn enter_slot(
        &self,
        slot: u16,
        sequence: u64,
    ) -> Result<(MutexGuard<'_, Slot>, bool), Status> {
        let mut last = self.slots.get(usize::from(slot)).ok_or(Status::Invalid)?.lock();
        let seen = sequence <= last.sequence;
        if !seen {
            *last = Slot { sequence, created: None };
        }
        Ok((last, seen))
    }
}

/// All sessions of an engine.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
    held: Mutex<HashMap<Oid, u32>>,
}

impl Sessions {
    /// A connection of a session opens. Tells whether the session is new.
    pub(crate) fn attach(&self, id: SessionId, remote: bool) -> Option<(Arc<Session>, bool)> {
        let mut by_id = self.by_id.lock();
        let known = by_id.contains_key(&id);
        if !known && by_id.len() >= SESSIONS_MAX {
            return None;
        }
        let session = by_id.entry(id).or_insert_with(|| Arc::new(Session::new(id))).clone();
        session.connections.fetch_add(1, Ordering::Relaxed);
        session.remote.fetch_or(remote, Ordering::Relaxed);
        Some((session, !known))
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
            .filter(|session| session.last_seen.lock().elapsed() > session.lease())
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
    pub(crate) fn hold(&self, session: &Session, oid: Oid) -> Result<(), Status> {
        let mut holds = session.holds.lock();
        if holds.len() >= HOLDS_MAX {
            return Err(Status::LimitReached);
        }
        if holds.insert(oid) {
            *self.held.lock().entry(oid).or_insert(0) += 1;
        }
        Ok(())
    }

    /// The session no longer has the object open. Tells whether nobody has.
    pub(crate) fn release(&self, session: &Session, oid: Oid) -> bool {
        if !session.holds.lock().remove(&oid) {
            return false;
        }
        let mut held = self.held.lock();
        match held.get_mut(&oid) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => {
                held.remove(&oid);
                true
            }
        }
    }

    /// Whether any session has the object open.
    pub(crate) fn is_held(&self, oid: Oid) -> bool {
        self.held.lock().contains_key(&oid)
    }
}
