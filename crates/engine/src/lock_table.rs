//! Advisory locks of the files whose home is at this engine: `fcntl` ranges and `flock`. Owns the
//! splitting and merging of ranges, waiting, and the search for deadlocks (POSIX.1-2024, fcntl).
//! Locks live in memory; after a restart their owners claim them again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, Signal};
use azekura_proto::limits::{LOCK_WAIT_SLICE_MS, LOCKS_MAX};
use azekura_proto::message::{Lock, LockKind, LockMode};
use azekura_proto::{Oid, SessionId, Status};
use parking_lot::Mutex;

/// Who owns a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Owner {
    session: SessionId,
    owner: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    owner: Owner,
    pid: u32,
    mode: LockMode,
    start: u64,
    end: u64,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(Oid, LockKind), Vec<Held>>,
    count: usize,
    /// Who waits for whom, to find circles.
    waits: HashMap<Owner, Owner>,
}

/// The lock table of an engine.
#[derive(Debug)]
pub(crate) struct LockTable {
    platform: SharedPlatform,
    table: Mutex<Table>,
    freed: Signal,
    grace_end: Option<Instant>,
}

fn conflict(held: &[Held], owner: Owner, wanted: &Lock) -> Option<Held> {
    held.iter()
        .find(|lock| {
            lock.owner != owner
                && lock.start <= wanted.end
                && wanted.start <= lock.end
                && (lock.mode == LockMode::Exclusive || wanted.mode == LockMode::Exclusive)
        })
        .copied()
}

/// Takes `start..=end` out of what `owner` holds, splitting ranges at its edges.
fn cut(held: &mut Vec<Held>, owner: Owner, start: u64, end: u64) {
    let mut pieces = Vec::new();
    held.retain(|lock| {
        if lock.owner != owner || lock.start > end || start > lock.end {
            return true;
        }
        if lock.start < start {
            pieces.push(Held { end: start - 1, ..*lock });
        }
        if lock.end > end {
            pieces.push(Held { start: end + 1, ..*lock });
        }
        false
    });
    held.extend(pieces);
}

/// Joins a new range with its neighbours of the same owner and mode, so that a program that locks
/// record by record does not grow the table.
fn merge(held: &mut Vec<Held>, mut new: Held) {
    held.retain(|lock| {
        let touches = lock.owner == new.owner
            && lock.mode == new.mode
            && lock.start <= new.end.saturating_add(1)
            && new.start <= lock.end.saturating_add(1);
        if touches {
            new.start = new.start.min(lock.start);
            new.end = new.end.max(lock.end);
        }
        !touches
    });
    held.push(new);
}

impl Table {
    fn circle(&self, from: Owner, to: Owner) -> bool {
        let mut at = to;
        for _ in 0..64 {
            if at == from {
                return true;
            }
            match self.waits.get(&at) {
                Some(next) => at = *next,
                None => return false,
            }
        }
        false
    }

    fn try_acquire(
        &mut self,
        oid: Oid,
        owner: Owner,
        lock: &Lock,
    ) -> Result<(), Result<Held, Status>> {
        let held = self.files.entry((oid, lock.kind)).or_default();
        if let Some(other) = conflict(held, owner, lock) {
            return Err(Ok(other));
        }
        let before = held.len();
        // The bound must hold before anything changes: a cut can add one piece, the lock another.
        if self.count + 2 > LOCKS_MAX {
            return Err(Err(Status::LimitReached));
        }
        cut(held, owner, lock.start, lock.end);
        let new = Held { owner, pid: lock.pid, mode: lock.mode, start: lock.start, end: lock.end };
        merge(held, new);
        self.count = self.count + held.len() - before;
        assert!(self.count <= LOCKS_MAX, "looked at above");
        Ok(())
    }

    fn remove(&mut self, key: (Oid, LockKind), change: impl FnOnce(&mut Vec<Held>)) -> bool {
        let Some(held) = self.files.get_mut(&key) else { return false };
        let before = held.len();
        change(held);
        assert!(self.count >= before, "every range is counted");
        self.count = self.count + held.len() - before;
        if held.is_empty() {
            self.files.remove(&key);
        }
        true
    }
}

impl LockTable {
    /// `grace`: an earlier run of this engine had locks, whose owners may claim them first.
    pub(crate) fn new(platform: SharedPlatform, grace: Option<Duration>) -> Self {
        Self {
            table: Mutex::default(),
            freed: Signal::new(),
            grace_end: grace.map(|grace| platform.now() + grace),
            platform,
        }
    }

    /// Takes a lock; with `wait` tries for one slice of time.
    pub(crate) fn acquire(
        &self,
        session: SessionId,
        oid: Oid,
        lock: &Lock,
        wait: bool,
    ) -> Result<(), Status> {
        if lock.start > lock.end {
            return Err(Status::Invalid);
        }
        if self.grace_end.is_some_and(|end| self.platform.now() < end) {
            return Err(Status::Grace);
        }
        let deadline = self.platform.now() + Duration::from_millis(LOCK_WAIT_SLICE_MS);
        let owner = Owner { session, owner: lock.owner };
        let mut table = self.table.lock();
        let mut time_is_up = !wait;
        let result = loop {
            let other = match table.try_acquire(oid, owner, lock) {
                Ok(()) => break Ok(()),
                Err(Err(status)) => break Err(status),
                Err(Ok(other)) => other,
            };
            if time_is_up {
                break Err(Status::Locked);
            }
            if lock.kind == LockKind::Range && table.circle(owner, other.owner) {
                break Err(Status::Deadlock);
            }
            table.waits.insert(owner, other.owner);
            time_is_up = self.freed.wait_until(&*self.platform, &mut table, deadline);
        };
        // While a slice is over and the client asks again, the edge must stay: otherwise two
        // waiters that ask in turn would never see each other.
        if wait && result != Err(Status::Locked) {
            table.waits.remove(&owner);
        }
        result
    }

    /// Takes a lock again that an earlier run of the engine had granted.
    pub(crate) fn claim(&self, session: SessionId, oid: Oid, lock: &Lock) -> Result<(), Status> {
        let owner = Owner { session, owner: lock.owner };
        self.table.lock().try_acquire(oid, owner, lock).map_err(|why| match why {
            Ok(_) => Status::Locked,
            Err(status) => status,
        })
    }

    /// Gives a range back.
    pub(crate) fn release(&self, session: SessionId, oid: Oid, lock: &Lock) {
        let owner = Owner { session, owner: lock.owner };
        let mut table = self.table.lock();
        table.waits.remove(&owner);
        if table.remove((oid, lock.kind), |held| cut(held, owner, lock.start, lock.end)) {
            self.freed.notify_all();
        }
    }

    /// The lock in the way of another.
    pub(crate) fn test(&self, session: SessionId, oid: Oid, lock: &Lock) -> Option<Lock> {
        let owner = Owner { session, owner: lock.owner };
        let table = self.table.lock();
        let held = table.files.get(&(oid, lock.kind))?;
        conflict(held, owner, lock).map(|other| Lock {
            kind: lock.kind,
            owner: other.owner.owner,
            pid: other.pid,
            mode: other.mode,
            start: other.start,
            end: other.end,
        })
    }

    /// Drops everything that a session holds.
    pub(crate) fn drop_session(&self, session: SessionId) {
        let mut table = self.table.lock();
        let keys: Vec<_> = table.files.keys().copied().collect();
        for key in keys {
            table.remove(key, |held| held.retain(|lock| lock.owner.session != session));
        }
        table.waits.retain(|owner, _| owner.session != session);
        assert!(table.count > 0 || table.files.is_empty(), "a file without locks is not kept");
        self.freed.notify_all();
    }

    /// Whether any lock is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_time::VirtualTime;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn lock(owner: u64, mode: LockMode, start: u64, end: u64) -> Lock {
        Lock { kind: LockKind::Range, owner, pid: 1, mode, start, end }
    }

    fn oid() -> Oid {
        Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 1)
    }

    const ONE: SessionId = SessionId([1; 16]);
    const TWO: SessionId = SessionId([2; 16]);

    #[test]
    fn ranges_split_and_merge() {
        let table = LockTable::new(VirtualTime::new(), None);
        let mode = LockMode::Exclusive;
        table.acquire(ONE, oid(), &lock(1, mode, 0, 99), false).unwrap();
        table.release(ONE, oid(), &lock(1, mode, 40, 59));
        assert_eq!(table.acquire(TWO, oid(), &lock(1, mode, 45, 50), false), Ok(()));
        assert_eq!(table.acquire(TWO, oid(), &lock(1, mode, 30, 45), false), Err(Status::Locked));
        table.release(TWO, oid(), &lock(1, mode, 0, u64::MAX));
        table.acquire(ONE, oid(), &lock(1, mode, 40, 59), false).unwrap();
        assert_eq!(table.table.lock().count, 1, "three touching ranges are one");
        table.drop_session(ONE);
        assert!(table.is_empty());
    }

    #[test]
    fn shared_locks_share_and_report_who_is_in_the_way() {
        let table = LockTable::new(VirtualTime::new(), None);
        table.acquire(ONE, oid(), &lock(1, LockMode::Shared, 0, 9), false).unwrap();
        table.acquire(TWO, oid(), &lock(1, LockMode::Shared, 5, 9), false).unwrap();
        let wanted = lock(1, LockMode::Exclusive, 7, 7);
        assert_eq!(table.acquire(ONE, oid(), &wanted, false), Err(Status::Locked));
        assert_eq!(table.test(ONE, oid(), &wanted).map(|other| other.start), Some(5));
    }

    #[test]
    fn a_circle_of_waiters_is_found() {
        let table = LockTable::new(VirtualTime::new(), None);
        let mode = LockMode::Exclusive;
        table.acquire(ONE, oid(), &lock(1, mode, 0, 0), false).unwrap();
        table.acquire(TWO, oid(), &lock(1, mode, 1, 1), false).unwrap();
        assert_eq!(table.acquire(ONE, oid(), &lock(1, mode, 1, 1), true), Err(Status::Locked));
        assert_eq!(table.acquire(TWO, oid(), &lock(1, mode, 0, 0), true), Err(Status::Deadlock));
    }
}
