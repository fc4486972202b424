//! Read leases: the promise to a client that the data of a shard do not change for a moment, so that it
//! may use what it has read ahead without asking again. Owns the rule that keeps the promise without a
//! call back to the client: a write by anybody else waits until the lease has run out, and after that no
//! lease is given for a while. A shard that is read by some and written by others is simply not read
//! ahead.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_proto::limits::READ_LEASE_MS;
use azekura_proto::{Oid, SessionId};
use parking_lot::{Condvar, Mutex};

const LEASE: Duration = Duration::from_millis(READ_LEASE_MS);
/// For this long after a write by somebody else no lease is given.
const REFUSAL: Duration = Duration::from_secs(5);
/// Shards with a lease at once; more are refused.
const ENTRIES_MAX: usize = 64 * 1024;

/// A shard of an object.
pub(crate) type Key = (Oid, u16);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    One(SessionId),
    Several,
}

#[derive(Debug)]
struct Entry {
    holder: Holder,
    until: Instant,
    refused_until: Option<Instant>,
    version: u64,
}

/// What a client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    /// How long the promise holds; zero if there is none.
    pub(crate) lease: Duration,
    /// Differs from an earlier one if the data may have changed in between.
    pub(crate) version: u64,
}

/// The read leases of a target.
#[derive(Debug)]
pub(crate) struct ReadLeases {
    entries: Mutex<HashMap<Key, Entry>>,
    ended: Condvar,
    /// Lets writes pass without the lock while nobody has a lease.
    count: AtomicUsize,
    /// Never the same for two states of one shard, in this run or an earlier one.
    versions: AtomicU64,
    /// Until then leases of an earlier run of the engine may hold.
    grace_until: Option<Instant>,
}

impl ReadLeases {
    /// Without leases. `boot`: how often the target has been started; `had_leases`: whether the run
    /// before may have given some that still hold.
    pub(crate) fn new(boot: u64, had_leases: bool) -> Self {
        Self {
            entries: Mutex::default(),
            ended: Condvar::new(),
            count: AtomicUsize::new(0),
            versions: AtomicU64::new(boot << 40),
            grace_until: had_leases.then(|| Instant::now() + LEASE),
        }
    }

    fn draw_version(&self) -> u64 {
        self.versions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Gives or renews a lease.
    pub(crate) fn grant(&self, key: Key, session: SessionId) -> Granted {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&key) {
            entries.retain(|_, entry| {
                entry.until > now || entry.refused_until.is_some_and(|until| until > now)
            });
            self.count.store(entries.len(), Ordering::SeqCst);
            if entries.len() >= ENTRIES_MAX {
                return Granted { lease: Duration::ZERO, version: self.draw_version() };
            }
        }
        let entry = entries.entry(key).or_insert_with(|| Entry {
            holder: Holder::One(session),
            until: now,
            refused_until: None,
            version: self.draw_version(),
        });
        let version = entry.version;
        if entry.refused_until.is_some_and(|until| until > now) {
            return Granted { lease: Duration::ZERO, version };
        }
        entry.refused_until = None;
        if entry.until <= now {
            entry.holder = Holder::One(session);
        } else if entry.holder != Holder::One(session) {
            entry.holder = Holder::Several;
        }
        entry.until = now + LEASE;
        self.count.store(entries.len(), Ordering::SeqCst);
        Granted { lease: LEASE, version }
    }

    /// To be called before the data of a shard change; waits until nobody but the writer may rely on
    /// them. `writer`: its session, if it is a client that has one.
    pub(crate) fn before_write(&self, key: Key, writer: Option<SessionId>) {
        if let Some(until) = self.grace_until {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                std::thread::sleep(left);
            }
        }
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        while let Some(entry) = entries.get_mut(&key) {
            let now = Instant::now();
            let is_own = writer.is_some_and(|session| entry.holder == Holder::One(session));
            if entry.until <= now || is_own {
                if !is_own {
                    entry.refused_until = Some(now + REFUSAL);
                }
                entry.version = self.draw_version();
                return;
            }
            let until = entry.until;
            entry.refused_until = Some(until + REFUSAL);
            self.ended.wait_until(&mut entries, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    const READER: SessionId = SessionId([1; 16]);
    const WRITER: SessionId = SessionId([2; 16]);

    fn key() -> Key {
        (Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 7), 3)
    }

    #[test]
    fn a_write_waits_for_the_lease_of_another_and_ends_the_giving_of_leases() {
        let leases = ReadLeases::new(1, false);
        let start = Instant::now();
        let first = leases.grant(key(), READER);
        assert_eq!(first.lease, LEASE);
        leases.before_write(key(), Some(WRITER));
        assert!(start.elapsed() >= LEASE);
        let second = leases.grant(key(), READER);
        assert_eq!(second.lease, Duration::ZERO);
        assert_ne!(second.version, first.version);
        // Nobody holds one now: no waiting, but another version.
        leases.before_write(key(), Some(WRITER));
        assert_ne!(leases.grant(key(), READER).version, second.version);
    }

    #[test]
    fn the_holder_itself_does_not_wait_and_keeps_its_lease() {
        let leases = ReadLeases::new(1, false);
        let start = Instant::now();
        let first = leases.grant(key(), READER);
        leases.before_write(key(), Some(READER));
        assert!(start.elapsed() < LEASE);
        let second = leases.grant(key(), READER);
        assert_eq!(second.lease, LEASE);
        assert_ne!(second.version, first.version);
    }

    #[test]
    fn a_second_holder_makes_the_first_wait_too() {
        let leases = ReadLeases::new(1, false);
        leases.grant(key(), READER);
        leases.grant(key(), WRITER);
        let start = Instant::now();
        leases.before_write(key(), Some(READER));
        assert!(start.elapsed() >= LEASE / 2);
    }

    #[test]
    fn renewals_do_not_hold_up_a_writer_for_ever() {
        let leases = ReadLeases::new(1, false);
        leases.grant(key(), READER);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| leases.before_write(key(), Some(WRITER)));
            for _ in 0..20 {
                std::thread::sleep(LEASE / 10);
                if writer.is_finished() {
                    break;
                }
                leases.grant(key(), READER);
            }
            assert!(writer.is_finished());
        });
    }

    #[test]
    fn versions_of_two_runs_never_meet_and_a_restart_keeps_old_promises() {
        let before = ReadLeases::new(1, false).grant(key(), READER);
        let leases = ReadLeases::new(2, true);
        let start = Instant::now();
        leases.before_write(key(), Some(WRITER));
        assert!(start.elapsed() >= LEASE * 9 / 10);
        assert_ne!(leases.grant(key(), READER).version, before.version);
    }
}
