//! What this session has open and locked at one engine. Owns the counting of opens, the queue of
//! releases, and the list that a restarted engine is told. It never talks to the engine itself.
//!
//! A release travels one way, so it must not overtake or be overtaken by an open of the same
//! object on another connection: an object whose release is on its way is not opened before the
//! connection that carries it has answered something sent after it. And while a create is under
//! way, the engine may hold an object of which this side does not know yet: what was closed since
//! it began, by a thread that found the new name, is not released before the create has ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use azekura_platform::{Platform, Signal};
use azekura_proto::Oid;
use azekura_proto::limits::RELEASES_MAX;
use azekura_proto::message::{Lock, LockKind};
use azekura_rpc::Releases;
use parking_lot::Mutex;

/// So many objects may wait for their release while files are opened by name.
const RELEASES_HELD_MAX: usize = RELEASES_MAX / 4;
/// An open waits at most this long for a release that is on its way; the connection that carries
/// it has failed by then, or will be found dead.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default)]
struct State {
    /// How often each object is open here. In order, as the locks are: what is asked of an engine that was started again
    /// follows it, and is to be the same each time.
    opens: BTreeMap<Oid, u32>,
    /// Objects that were closed for the last time and are still held at the engine, with the turn
    /// in which that was.
    closed: Vec<(Oid, u64)>,
    /// Objects whose release is on its way.
    leaving: Vec<Oid>,
    locks: BTreeMap<Oid, Vec<Lock>>,
    /// Locks that the engine did not take back after a restart, and whose owners do not know it yet.
    lost: BTreeMap<Oid, Vec<Lock>>,
    /// Grows with each close and each create.
    turn: u64,
    /// The turns in which creates under way began.
    creates: Vec<u64>,
    /// Opens by name that are under way.
    by_name: u32,
}

impl State {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn queue(&mut self, oid: Oid) {
        let turn = self.next_turn();
        self.closed.push((oid, turn));
    }
}

/// An open by name that is under way. To be ended in any case.
#[derive(Debug)]
pub(crate) struct OpeningName {
    /// Objects whose release was on its way when it began.
    leaving: Vec<Oid>,
}

/// The open references and locks at one engine.
#[derive(Debug, Default)]
pub(crate) struct OpenReferences {
    state: Mutex<State>,
    arrived: Signal,
    /// Length of `closed`, to be read without the lock.
    closed: AtomicUsize,
    /// Whether any lock is lost, likewise.
    has_lost: AtomicBool,
    /// Whether there has ever been a lock, likewise.
    has_locked: AtomicBool,
}

impl OpenReferences {
    /// Counts an open that is about to be asked for.
    pub(crate) fn open(&self, oid: Oid, platform: &dyn Platform) {
        let mut state = self.state.lock();
        *state.opens.entry(oid).or_insert(0) += 1;
        while state.leaving.contains(&oid) {
            if self.arrived.wait_for(platform, &mut state, RELEASE_WAIT) {
                break;
            }
        }
    }

    /// A create that will hold its object is about to be asked for. To be ended in any case.
    pub(crate) fn begin_create(&self) -> u64 {
        let mut state = self.state.lock();
        let turn = state.next_turn();
        state.creates.push(turn);
        turn
    }

    /// The create has ended; an object that it made is open here.
    pub(crate) fn end_create(&self, turn: u64, made: Option<Oid>) {
        let mut state = self.state.lock();
        state.creates.retain(|other| *other != turn);
        if let Some(oid) = made {
            *state.opens.entry(oid).or_insert(0) += 1;
        }
    }

    /// An open is about to be asked for whose object only the answer names. Meanwhile nothing is released:
    /// it could be that object. `None` if too much waits for its release.
    pub(crate) fn begin_open_by_name(&self) -> Option<OpeningName> {
        let mut state = self.state.lock();
        if state.closed.len() >= RELEASES_HELD_MAX {
            return None;
        }
        state.by_name += 1;
        Some(OpeningName { leaving: state.leaving.clone() })
    }

    /// The open by name has ended; an object that it has opened is open here. False if the engine may have
    /// taken a release that was on its way for one of this open.
    #[expect(clippy::needless_pass_by_value, reason = "it is over")]
    pub(crate) fn end_open_by_name(&self, opening: OpeningName, opened: Option<Oid>) -> bool {
        let mut state = self.state.lock();
        state.by_name -= 1;
        let Some(oid) = opened else { return true };
        *state.opens.entry(oid).or_insert(0) += 1;
        !opening.leaving.contains(&oid)
    }

    /// Counts a close. The last one queues the release; gives the length of that queue.
    pub(crate) fn close(&self, oid: Oid) -> usize {
        let mut state = self.state.lock();
        if let Entry::Occupied(mut opens) = state.opens.entry(oid) {
            if *opens.get() > 1 {
                *opens.get_mut() -= 1;
                return state.closed.len();
            }
            opens.remove();
        }
        state.queue(oid);
        self.closed.store(state.closed.len(), Ordering::Relaxed);
        state.closed.len()
    }

    /// Whether the object is open here.
    pub(crate) fn is_open(&self, oid: Oid) -> bool {
        self.state.lock().opens.contains_key(&oid)
    }

    /// The engine may hold an object that nobody here has opened.
    pub(crate) fn forget_stray(&self, oid: Oid) {
        let mut state = self.state.lock();
        if !state.opens.contains_key(&oid) {
            state.queue(oid);
            self.closed.store(state.closed.len(), Ordering::Relaxed);
        }
    }

    /// Remembers a lock that was granted: it replaces what the owner had in its range.
    pub(crate) fn lock(&self, oid: Oid, lock: Lock) {
        let mut state = self.state.lock();
        let locks = state.locks.entry(oid).or_default();
        subtract(locks, lock);
        locks.push(lock);
        self.has_locked.store(true, Ordering::Release);
    }

    /// Forgets what the owner has locked in the range.
    pub(crate) fn unlock(&self, oid: Oid, lock: Lock) {
        let mut state = self.state.lock();
        if let Entry::Occupied(mut locks) = state.locks.entry(oid) {
            subtract(locks.get_mut(), lock);
            if locks.get().is_empty() {
                locks.remove();
            }
        }
    }

    /// Whether the owner has anything locked on the object, or believes to.
    pub(crate) fn has_locks(&self, oid: Oid, kind: LockKind, owner: u64) -> bool {
        let state = self.state.lock();
        let is_own = |lock: &Lock| lock.kind == kind && lock.owner == owner;
        [&state.locks, &state.lost]
            .iter()
            .any(|locks| locks.get(&oid).is_some_and(|locks| locks.iter().any(is_own)))
    }

    /// Whether anybody here has anything locked on the object.
    pub(crate) fn is_locked(&self, oid: Oid) -> bool {
        self.has_locked.load(Ordering::Acquire) && self.state.lock().locks.contains_key(&oid)
    }

    /// A lock that was granted is lost.
    pub(crate) fn lose(&self, oid: Oid, lock: Lock) {
        let mut state = self.state.lock();
        let Entry::Occupied(mut locks) = state.locks.entry(oid) else { return };
        // What was unlocked meanwhile is not missed.
        let is_held = locks.get().iter().any(|held| meet(held, &lock));
        subtract(locks.get_mut(), lock);
        if locks.get().is_empty() {
            locks.remove();
        }
        if is_held {
            state.lost.entry(oid).or_default().push(lock);
            self.has_lost.store(true, Ordering::Release);
        }
    }

    /// Whether anybody here relies on a lock that is lost, for some part of these bytes.
    pub(crate) fn relies_on_lost(&self, oid: Oid, start: u64, end: u64) -> bool {
        self.has_lost.load(Ordering::Acquire)
            && self
                .state
                .lock()
                .lost
                .get(&oid)
                .is_some_and(|lost| lost.iter().any(|lock| lock.start <= end && start <= lock.end))
    }

    /// Whether the owner has lost a lock in the range.
    pub(crate) fn has_lost(&self, oid: Oid, range: Lock) -> bool {
        self.has_lost.load(Ordering::Acquire)
            && self
                .state
                .lock()
                .lost
                .get(&oid)
                .is_some_and(|lost| lost.iter().any(|lock| meet(lock, &range)))
    }

    /// The owner is told that it has lost what it had in the range.
    pub(crate) fn forget_lost(&self, oid: Oid, range: Lock) {
        let mut state = self.state.lock();
        if let Entry::Occupied(mut lost) = state.lost.entry(oid) {
            subtract(lost.get_mut(), range);
            if lost.get().is_empty() {
                lost.remove();
            }
        }
        self.has_lost.store(!state.lost.is_empty(), Ordering::Release);
    }

    /// Whether an engine that is started again has to hear of anything soon.
    pub(crate) fn holds_anything(&self) -> bool {
        let state = self.state.lock();
        !state.opens.is_empty() || !state.locks.is_empty()
    }

    /// Everything open and locked.
    pub(crate) fn claims(&self) -> (Vec<Oid>, Vec<(Oid, Lock)>) {
        let state = self.state.lock();
        let locks =
            state.locks.iter().flat_map(|(&oid, locks)| locks.iter().map(move |&l| (oid, l)));
        (state.opens.keys().copied().collect(), locks.collect())
    }

    /// What a forked child has open: the same objects, no locks, nothing to release. If another
    /// thread of the parent was at it just then, nothing.
    pub(crate) fn fork(&self) -> Self {
        let opens = self.state.try_lock().map(|state| state.opens.clone()).unwrap_or_default();
        Self { state: Mutex::new(State { opens, ..State::default() }), ..Self::default() }
    }
}

impl Releases for OpenReferences {
    /// Whether releases wait to be sent.
    fn are_waiting(&self) -> bool {
        self.closed.load(Ordering::Relaxed) > 0
    }

    /// Moves waiting releases into `out`, which goes out at once.
    fn take(&self, out: &mut Vec<Oid>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.by_name > 0 {
            return;
        }
        let oldest = state.creates.iter().min().copied().unwrap_or(u64::MAX);
        state.closed.retain(|&(oid, turn)| {
            let waits = turn > oldest || out.len() >= RELEASES_MAX;
            if !waits && !state.opens.contains_key(&oid) {
                out.push(oid);
                state.leaving.push(oid);
            }
            waits
        });
        self.closed.store(state.closed.len(), Ordering::Relaxed);
    }

    /// The releases have arrived, or (`arrived` false) their connection failed before that is
    /// known, so that they are to be sent again.
    fn settle(&self, released: &mut Vec<Oid>, arrived: bool) {
        if released.is_empty() {
            return;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for oid in released.drain(..) {
            if let Some(place) = state.leaving.iter().position(|other| *other == oid) {
                state.leaving.swap_remove(place);
            }
            if !arrived {
                state.queue(oid);
            }
        }
        self.closed.store(state.closed.len(), Ordering::Relaxed);
        drop(guard);
        self.arrived.notify_all();
    }
}

/// Whether two locks of one owner have a part in common.
fn meet(one: &Lock, other: &Lock) -> bool {
    one.kind == other.kind
        && one.owner == other.owner
        && one.start <= other.end
        && other.start <= one.end
}

/// Takes the range of `gone` away from the locks of the same table and owner.
fn subtract(locks: &mut Vec<Lock>, gone: Lock) {
    let mut rest = Vec::new();
    locks.retain(|&held| {
        let apart = !meet(&held, &gone);
        if !apart {
            if held.start < gone.start {
                rest.push(Lock { end: gone.start - 1, ..held });
            }
            if held.end > gone.end {
                rest.push(Lock { start: gone.end + 1, ..held });
            }
        }
        apart
    });
    locks.append(&mut rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_platform::System;
    use azekura_proto::message::LockMode;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn object(serial: u64) -> Oid {
        Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
    }

    fn range(owner: u64, start: u64, end: u64) -> Lock {
        Lock { kind: LockKind::Range, owner, pid: 1, mode: LockMode::Exclusive, start, end }
    }

    #[test]
    fn only_the_last_close_releases() {
        let references = OpenReferences::default();
        references.open(object(1), &System);
        references.open(object(1), &System);
        assert_eq!(references.close(object(1)), 0);
        assert!(!references.are_waiting());
        assert_eq!(references.close(object(1)), 1);
        let mut out = Vec::new();
        references.take(&mut out);
        assert_eq!(out, [object(1)]);
        assert!(!references.are_waiting());
    }

    #[test]
    fn an_object_opened_again_is_not_released() {
        let references = OpenReferences::default();
        references.open(object(1), &System);
        references.close(object(1));
        references.open(object(1), &System);
        let mut out = Vec::new();
        references.take(&mut out);
        assert!(out.is_empty());
        assert_eq!(references.claims().0, [object(1)]);
    }

    #[test]
    fn a_lost_release_is_sent_again() {
        let references = OpenReferences::default();
        references.open(object(1), &System);
        references.close(object(1));
        let mut out = Vec::new();
        references.take(&mut out);
        references.settle(&mut out, false);
        assert!(references.are_waiting());
        references.take(&mut out);
        assert_eq!(out, [object(1)]);
        references.settle(&mut out, true);
        references.open(object(1), &System);
        assert!(!references.are_waiting());
    }

    #[test]
    fn what_a_create_may_have_made_is_not_released_under_it() {
        let references = OpenReferences::default();
        references.open(object(1), &System);
        references.close(object(1));
        let create = references.begin_create();
        // Another thread finds the new name, opens it and closes it again.
        references.open(object(2), &System);
        references.close(object(2));
        let mut out = Vec::new();
        references.take(&mut out);
        assert_eq!(out, [object(1)], "closed before the create began");
        references.end_create(create, Some(object(2)));
        out.clear();
        references.take(&mut out);
        assert!(out.is_empty() && !references.are_waiting());
        assert!(references.is_open(object(2)));
    }

    #[test]
    fn nothing_is_released_under_an_open_by_name_that_may_be_it() {
        let references = OpenReferences::default();
        references.open(object(1), &System);
        references.close(object(1));
        let opening = references.begin_open_by_name().unwrap();
        let mut out = Vec::new();
        references.take(&mut out);
        assert!(out.is_empty());
        assert!(references.end_open_by_name(opening, Some(object(1))));
        references.take(&mut out);
        assert!(out.is_empty() && !references.are_waiting());
        references.close(object(1));
        references.take(&mut out);
        assert_eq!(out, [object(1)]);
        // Its release is on its way, and may arrive after what is asked now.
        let opening = references.begin_open_by_name().unwrap();
        assert!(!references.end_open_by_name(opening, Some(object(1))));
    }

    #[test]
    fn opens_by_name_do_not_put_releases_off_for_ever() {
        let references = OpenReferences::default();
        for serial in 0..RELEASES_HELD_MAX as u64 {
            references.open(object(serial), &System);
            references.close(object(serial));
        }
        assert!(references.begin_open_by_name().is_none());
        references.take(&mut Vec::new());
        assert!(references.begin_open_by_name().is_some());
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let references = OpenReferences::default();
        references.lock(object(1), range(7, 0, 99));
        references.lock(object(1), range(8, 200, 300));
        references.unlock(object(1), range(7, 10, 19));
        let (_, mut locks) = references.claims();
        locks.sort_by_key(|(_, lock)| lock.start);
        let ranges: Vec<_> = locks.iter().map(|(_, l)| (l.owner, l.start, l.end)).collect();
        assert_eq!(ranges, [(7, 0, 9), (7, 20, 99), (8, 200, 300)]);
        references.unlock(object(1), range(7, 0, u64::MAX));
        assert!(!references.has_locks(object(1), LockKind::Range, 7));
        assert!(references.has_locks(object(1), LockKind::Range, 8));
    }

    #[test]
    fn a_lost_lock_is_relied_on_until_its_owner_gives_it_back() {
        let references = OpenReferences::default();
        references.lock(object(1), range(7, 0, 99));
        references.lock(object(1), range(8, 200, 300));
        references.lose(object(1), range(7, 0, 99));
        references.lose(object(1), range(9, 400, 500));
        assert!(!references.relies_on_lost(object(1), 400, 500), "it was given back before");
        assert!(references.relies_on_lost(object(1), 99, 150));
        assert!(!references.relies_on_lost(object(1), 100, 300));
        assert!(!references.relies_on_lost(object(2), 0, 99));
        assert!(references.has_lost(object(1), range(7, 50, 50)));
        assert!(!references.has_lost(object(1), range(8, 50, 50)), "another owner");
        assert!(references.has_locks(object(1), LockKind::Range, 7));
        references.forget_lost(object(1), range(7, 0, 49));
        assert!(!references.relies_on_lost(object(1), 0, 49));
        assert!(references.relies_on_lost(object(1), 50, 50));
        references.forget_lost(object(1), range(7, 0, u64::MAX));
        assert!(!references.has_locks(object(1), LockKind::Range, 7));
        assert_eq!(references.claims().1.len(), 1);
    }
}
