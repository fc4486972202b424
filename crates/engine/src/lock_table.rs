//! Advisory locks of the files whose home is at this engine: `fcntl` ranges and `flock`. Owns the
//! splitting and merging of ranges, waiting, and the search for deadlocks (POSIX.1-2024, fcntl).
//! Locks live in memory; after a restart their owners claim them again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, Signal};
use azekura_proto::limits::{LOCK_WAIT_SLICE_MS, LOCKS_GRACE_MS, LOCKS_MAX};
use azekura_proto::message::{Lock, LockKind, LockMode};
use azekura_proto::{Oid, SessionId, Status};
use parking_lot::Mutex;

use crate::held_note::HeldNote;

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
    /// What was granted since somebody has lost locks that may be claimed; `None` while nobody has.
    history: Option<History>,
}

/// Files of which the history tells one from the other, and ranges of one.
const HISTORY_FILES_MAX: usize = 16 * 1024;
const HISTORY_RANGES_MAX: usize = 16;

/// Locks that were granted, also those that were given back since.
#[derive(Debug, Default)]
struct History {
    files: HashMap<(Oid, LockKind), Vec<Held>>,
    /// There were too many: any may have been granted.
    is_full: bool,
}

impl History {
    fn note(&mut self, key: (Oid, LockKind), new: Held) {
        if self.files.len() >= HISTORY_FILES_MAX && !self.files.contains_key(&key) {
            self.is_full = true;
            return;
        }
        let ranges = self.files.entry(key).or_default();
        merge(ranges, new);
        if ranges.len() > HISTORY_RANGES_MAX {
            // Any of it, by somebody whom nobody is.
            let owner = Owner { session: SessionId([0; 16]), owner: 0 };
            let all = Held { owner, mode: LockMode::Exclusive, start: 0, end: u64::MAX, ..new };
            *ranges = vec![all];
        }
    }

    /// Whether other sessions were granted what excludes this lock.
    fn had_others(&self, key: (Oid, LockKind), session: SessionId, lock: &Lock) -> bool {
        self.is_full
            || self.files.get(&key).is_some_and(|ranges| {
                ranges.iter().any(|other| other.owner.session != session && excludes(other, lock))
            })
    }
}

/// Whether two locks of different owners cannot be held at once.
fn excludes(held: &Held, wanted: &Lock) -> bool {
    held.start <= wanted.end
        && wanted.start <= held.end
        && (held.mode == LockMode::Exclusive || wanted.mode == LockMode::Exclusive)
}

/// The lock table of an engine.
#[derive(Debug)]
pub(crate) struct LockTable {
    platform: SharedPlatform,
    table: Mutex<Table>,
    freed: Signal,
    grace_end: Option<Instant>,
    note: HeldNote,
}

fn conflict(held: &[Held], owner: Owner, wanted: &Lock) -> Option<Held> {
    held.iter().find(|lock| lock.owner != owner && excludes(lock, wanted)).copied()
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

    /// Notes a lock that was granted, for whoever wants to claim one later.
    fn remember(&mut self, oid: Oid, owner: Owner, lock: &Lock) {
        if let Some(history) = &mut self.history {
            let Lock { pid, mode, start, end, .. } = *lock;
            history.note((oid, lock.kind), Held { owner, pid, mode, start, end });
        }
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
    /// `note` says whether an earlier run of this engine had locks, whose owners may claim them first.
    pub(crate) fn new(platform: SharedPlatform, note: HeldNote) -> Self {
        let grace = Duration::from_millis(LOCKS_GRACE_MS);
        let grace_end = note.is_there().then(|| platform.now() + grace);
        let history = grace_end.map(|_| History::default());
        let table = Mutex::new(Table { history, ..Table::default() });
        Self { table, freed: Signal::new(), grace_end, note, platform }
    }

    /// Whether others get locks after those who had some in an earlier run only.
    pub(crate) fn is_in_grace(&self) -> bool {
        self.grace_end.is_some_and(|end| self.platform.now() < end)
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
        if self.is_in_grace() {
            return Err(Status::Grace);
        }
        let deadline = self.platform.now() + Duration::from_millis(LOCK_WAIT_SLICE_MS);
        let owner = Owner { session, owner: lock.owner };
        let mut table = self.table.lock();
        let mut time_is_up = !wait;
        let result = loop {
            let other = match table.try_acquire(oid, owner, lock) {
                Ok(()) => {
                    table.remember(oid, owner, lock);
                    break Ok(());
                }
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
        drop(table);
        result.and_then(|()| self.note_or_undo(session, oid, lock))
    }

    /// Takes a lock again that the session had: under an earlier run of the engine, or before its lease
    /// ran out. It is lost if anybody else has had one since that it excludes.
    pub(crate) fn claim(&self, session: SessionId, oid: Oid, lock: &Lock) -> Result<(), Status> {
        if lock.start > lock.end {
            return Err(Status::Invalid);
        }
        let owner = Owner { session, owner: lock.owner };
        {
            let mut table = self.table.lock();
            let granted = table.history.as_ref();
            if granted.is_some_and(|granted| granted.had_others((oid, lock.kind), session, lock)) {
                return Err(Status::Locked);
            }
            table.try_acquire(oid, owner, lock).map_err(|why| match why {
                Ok(_) => Status::Locked,
                Err(status) => status,
            })?;
            if !self.is_in_grace() {
                table.remember(oid, owner, lock);
            }
        }
        self.note_or_undo(session, oid, lock)
    }

    /// A lock of which the next run of the engine would know nothing is not given.
    fn note_or_undo(&self, session: SessionId, oid: Oid, lock: &Lock) -> Result<(), Status> {
        self.note.make().inspect_err(|_| self.release(session, oid, lock))
    }

    /// Takes the note for the next run away if nobody holds anything.
    pub(crate) fn clear_note(&self) {
        if !self.is_in_grace() {
            self.note.clear(|| self.is_empty());
        }
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

    /// Drops everything that a session holds; it may come back and claim what nobody has had since.
    pub(crate) fn drop_session(&self, session: SessionId) {
        let mut table = self.table.lock();
        let had_locks = table.files.values().flatten().any(|lock| lock.owner.session == session);
        if had_locks {
            table.history.get_or_insert_default();
        }
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
    use crate::engine_dir::Held;
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
        let table = LockTable::new(VirtualTime::new(), HeldNote::unwritten(Held::Locks));
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
        let table = LockTable::new(VirtualTime::new(), HeldNote::unwritten(Held::Locks));
        table.acquire(ONE, oid(), &lock(1, LockMode::Shared, 0, 9), false).unwrap();
        table.acquire(TWO, oid(), &lock(1, LockMode::Shared, 5, 9), false).unwrap();
        let wanted = lock(1, LockMode::Exclusive, 7, 7);
        assert_eq!(table.acquire(ONE, oid(), &wanted, false), Err(Status::Locked));
        assert_eq!(table.test(ONE, oid(), &wanted).map(|other| other.start), Some(5));
    }

    #[test]
    fn a_circle_of_waiters_is_found() {
        let table = LockTable::new(VirtualTime::new(), HeldNote::unwritten(Held::Locks));
        let mode = LockMode::Exclusive;
        table.acquire(ONE, oid(), &lock(1, mode, 0, 0), false).unwrap();
        table.acquire(TWO, oid(), &lock(1, mode, 1, 1), false).unwrap();
        assert_eq!(table.acquire(ONE, oid(), &lock(1, mode, 1, 1), true), Err(Status::Locked));
        assert_eq!(table.acquire(TWO, oid(), &lock(1, mode, 0, 0), true), Err(Status::Deadlock));
    }

    #[test]
    fn a_lock_that_is_claimed_late_is_lost_if_another_had_it_since() {
        let table = LockTable::new(VirtualTime::new(), HeldNote::unwritten(Held::Locks));
        let (shared, exclusive) = (LockMode::Shared, LockMode::Exclusive);
        let all = [lock(1, exclusive, 0, 9), lock(1, shared, 20, 29), lock(1, exclusive, 40, 49)];
        for lock in &all {
            table.acquire(ONE, oid(), lock, false).unwrap();
        }
        table.drop_session(ONE);
        // One range is taken and given back, one is shared, nobody wants the third.
        let since = lock(1, shared, 5, 5);
        table.acquire(TWO, oid(), &since, false).unwrap();
        table.release(TWO, oid(), &since);
        table.acquire(TWO, oid(), &lock(1, shared, 20, 29), false).unwrap();
        let claimed = all.map(|lock| table.claim(ONE, oid(), &lock));
        assert_eq!(claimed, [Err(Status::Locked), Ok(()), Ok(())]);
        // What has been taken again is in the way of the others.
        assert_eq!(table.acquire(TWO, oid(), &lock(1, shared, 45, 45), false), Err(Status::Locked));
        assert_eq!(table.claim(TWO, oid(), &lock(1, exclusive, 45, 45)), Err(Status::Locked));
    }
}
