//! One target of this engine: its store, and who may touch which record right now. Owns the lock
//! under which every change of the namespace is checked and committed, and the serial numbers of
//! new objects. It knows nothing of other targets.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, Signal};
use azekura_proto::ids::SERIAL_MAX;
use azekura_proto::limits::RECORD_WAIT_MS;
use azekura_proto::transaction::{Action, TransactionId};
use azekura_proto::{Dependences, Oid, Status, TargetId, Timestamp};
use azekura_store::{Batch, Space, Store};
use parking_lot::{Mutex, MutexGuard};

use crate::background::set_aside::SetAside;
use crate::clock;
use crate::data::handed_out::HandedOut;
use crate::data::leases::{Given, Leases};
use crate::namespace::dir_shards::DirShards;
use crate::object_counts::{ObjectCounts, Removed};
use crate::records::record::encode;
use crate::records::stored::{load, store_status};
use crate::transaction::finished::Finished;
use crate::transaction::key_locks::{KeyLocks, Wanted};

/// How long an operation waits for a transaction to let go of a record.
pub(crate) const RECORD_WAIT: Duration = Duration::from_millis(RECORD_WAIT_MS);
/// Serial numbers are reserved on disk in steps of this.
const SERIAL_STEP: u64 = 1 << 16;
const SERIALS_KEY: &[u8] = b"serials";
const BOOTS_KEY: &[u8] = b"boots";
/// Whether read leases have been given; stays on record once they have.
const READ_LEASES_KEY: &[u8] = b"read-leases";
/// Likewise for write leases.
const WRITE_LEASES_KEY: &[u8] = b"write-leases";
const NAMES_LEASES_KEY: &[u8] = b"names-leases";
/// Likewise for descriptors that are written to.
const WRITE_DESCRIPTORS_KEY: &[u8] = b"write-descriptors";

/// A part of a transaction that waits for its outcome.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) actions: Vec<Action>,
    pub(crate) keys: Vec<Wanted>,
    pub(crate) since: Instant,
}

impl Prepared {
    /// Whether it has these actions as a part. No two parts of a transaction are alike: one locks the
    /// tree, the other changes what is below it.
    pub(crate) fn has_part(&self, actions: &[Action]) -> bool {
        actions.is_empty() || self.actions.windows(actions.len()).any(|part| part == actions)
    }
}

/// What the namespace lock guards.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) locks: KeyLocks,
    pub(crate) prepared: HashMap<TransactionId, Prepared>,
    /// Parts that are being looked at, without the lock.
    pub(crate) preparing: HashSet<TransactionId>,
    pub(crate) finished: Finished,
}

/// The namespace lock of a target, taken.
pub(crate) type Guard<'a> = MutexGuard<'a, State>;

#[derive(Debug)]
struct Serials {
    next: u64,
    reserved: u64,
}

/// One target.
pub(crate) struct Target {
    pub(crate) platform: SharedPlatform,
    pub(crate) id: TargetId,
    pub(crate) store: Store,
    /// The target's directory.
    pub(crate) dir: PathBuf,
    /// Names the file system below, so that targets sharing one are counted once.
    pub(crate) device: u64,
    state: Mutex<State>,
    freed: Signal,
    /// How many keys are locked; lets readers pass without the lock while it is 0.
    locked: AtomicUsize,
    serials: Mutex<Serials>,
    reserving_serials: Mutex<()>,
    size_locks: [Mutex<()>; 64],
    next_transaction: AtomicU64,
    pub(crate) objects: ObjectCounts,
    pub(crate) reclaim_backlog: AtomicU64,
    pub(crate) reclaim_wanted: AtomicUsize,
    /// Records that the background work cannot deal with.
    pub(crate) set_aside: SetAside,
    pub(crate) dir_shards: DirShards,
    /// Leases on the shards of this target; [`Target::record_leases`] comes before giving one.
    pub(crate) leases: Leases,
    /// Whether it is on record that read or write leases have been given.
    read_leases_recorded: AtomicBool,
    write_leases_recorded: AtomicBool,
    names_leases_recorded: AtomicBool,
    /// Descriptors of the files of shards.
    pub(crate) handed_out: HandedOut,
    /// Whether it is on record that some to be written to have been handed out.
    write_descriptors_recorded: AtomicBool,
}

/// Which kind of lease, or of what outlives a run of the engine as they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseKind {
    Read,
    Write,
    /// To make names.
    Names,
    /// A descriptor that is written to.
    WriteDescriptor,
}

impl Target {
    /// Wraps an open store. Counts the boot, so that transaction numbers never come twice.
    pub(crate) fn new(
        platform: SharedPlatform,
        id: TargetId,
        store: Store,
        dir: PathBuf,
    ) -> Result<Self, Status> {
        let device = store.device();
        let serials: u64 = load(&store, Space::System, SERIALS_KEY)?.unwrap_or(16);
        let had = |key| load::<u64>(&store, Space::System, key).map(|n| n.is_some_and(|n| n > 0));
        let given = Given {
            read: had(READ_LEASES_KEY)?,
            write: had(WRITE_LEASES_KEY)?,
            names: had(NAMES_LEASES_KEY)?,
        };
        let write_descriptors = had(WRITE_DESCRIPTORS_KEY)?;
        let boots: u64 = load(&store, Space::System, BOOTS_KEY)?.unwrap_or(0) + 1;
        // Once they are all given, the last step is left to `draw_serial`, which says so.
        let reserved_serials = (serials + SERIAL_STEP).min(SERIAL_MAX).max(serials);
        let target = Self {
            id,
            store,
            dir,
            device,
            state: Mutex::default(),
            freed: Signal::new(),
            locked: AtomicUsize::new(0),
            serials: Mutex::new(Serials { next: serials, reserved: reserved_serials }),
            reserving_serials: Mutex::new(()),
            size_locks: std::array::from_fn(|_| Mutex::new(())),
            next_transaction: AtomicU64::new(boots << 40),
            objects: ObjectCounts::default(),
            reclaim_backlog: AtomicU64::new(0),
            reclaim_wanted: AtomicUsize::new(0),
            set_aside: SetAside::default(),
            dir_shards: DirShards::default(),
            leases: Leases::new(Arc::clone(&platform), boots, given),
            read_leases_recorded: AtomicBool::new(given.read),
            write_leases_recorded: AtomicBool::new(given.write),
            names_leases_recorded: AtomicBool::new(given.names),
            handed_out: HandedOut::default(),
            write_descriptors_recorded: AtomicBool::new(write_descriptors),
            platform,
        };
        target.put_numbers(&[(BOOTS_KEY, boots), (SERIALS_KEY, reserved_serials)])?;
        Ok(target)
    }

    /// The time to stamp a change with.
    pub(crate) fn now(&self) -> Timestamp {
        clock::now(&*self.platform)
    }

    /// The exact time, for what is only compared with itself.
    pub(crate) fn fine_now(&self) -> Timestamp {
        clock::fine_now(&*self.platform)
    }

    /// Records numbers durably: what is numbered by them may be durable before anything else is synced,
    /// and the next run must not give the same numbers again.
    fn put_numbers(&self, numbers: &[(&[u8], u64)]) -> Result<(), Status> {
        let mut batch = Batch::new();
        for (key, number) in numbers {
            batch.put(Space::System, key, encode(number));
        }
        // A number that was taken back could be given again, and what it names may be durable elsewhere.
        self.store.commit_aside(batch).map_err(store_status)
    }

    /// What is committed from now on relies on these commits of other targets.
    ///
    /// # Errors
    /// [`Status::Busy`]: one of them is lost here, and whoever speaks of it will hear of that.
    pub(crate) fn rely_on(&self, heard: &Dependences) -> Result<(), Status> {
        if self.store.observe(heard) { Ok(()) } else { Err(Status::Busy) }
    }

    /// Puts on record, before the first lease is given, that there are some, so that the next run
    /// keeps them.
    pub(crate) fn record_leases(&self, kind: LeaseKind) -> Result<(), Status> {
        let (recorded, key) = self.recorded(kind);
        if !recorded.load(Ordering::Acquire) {
            self.put_numbers(&[(key, 1)])?;
            recorded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Whether any are on record, of this run or an earlier one.
    pub(crate) fn has_recorded(&self, kind: LeaseKind) -> bool {
        self.recorded(kind).0.load(Ordering::Acquire)
    }

    fn recorded(&self, kind: LeaseKind) -> (&AtomicBool, &'static [u8]) {
        match kind {
            LeaseKind::Read => (&self.read_leases_recorded, READ_LEASES_KEY),
            LeaseKind::Write => (&self.write_leases_recorded, WRITE_LEASES_KEY),
            LeaseKind::Names => (&self.names_leases_recorded, NAMES_LEASES_KEY),
            LeaseKind::WriteDescriptor => (&self.write_descriptors_recorded, WRITE_DESCRIPTORS_KEY),
        }
    }

    /// A serial number that no object of this target ever had.
    pub(crate) fn draw_serial(&self) -> Result<u64, Status> {
        self.draw_serials(1)
    }

    /// So many serial numbers, one after the other, that no object of this target ever had: the first.
    pub(crate) fn draw_serials(&self, count: u32) -> Result<u64, Status> {
        let count = u64::from(count);
        loop {
            {
                let mut serials = self.serials.lock();
                if serials.reserved - serials.next >= count {
                    serials.next += count;
                    return Ok(serials.next - count);
                }
            }
            self.reserve_serials(count)?;
        }
    }

    /// Whether an object of this number may exist here.
    pub(crate) fn has_given(&self, serial: u64) -> bool {
        serial < self.serials.lock().next
    }

    /// Reserves more serial numbers if fewer than so many are left.
    fn reserve_serials(&self, wanted: u64) -> Result<(), Status> {
        // One after the other, so that what is on record only grows.
        let _alone = self.reserving_serials.lock();
        let reserved = {
            let serials = self.serials.lock();
            assert!(serials.next <= serials.reserved, "no number is given before it is on record");
            if serials.reserved - serials.next >= wanted {
                return Ok(());
            }
            serials.reserved + SERIAL_STEP
        };
        if reserved > SERIAL_MAX {
            return Err(Status::NoSpace);
        }
        self.put_numbers(&[(SERIALS_KEY, reserved)])?;
        self.serials.lock().reserved = reserved;
        Ok(())
    }

    /// Reserves serial numbers before they run out, since drawing one would wait for the disk then.
    pub(crate) fn reserve_serials_ahead(&self) {
        match self.reserve_serials(SERIAL_STEP / 2) {
            // Those that are left are given still.
            Ok(()) | Err(Status::NoSpace) => {}
            Err(status) => tracing::warn!(target = self.id.0, "numbers of objects: {status}"),
        }
    }

    /// A transaction number for this target as coordinator.
    pub(crate) fn draw_transaction(&self) -> TransactionId {
        let number = self.next_transaction.fetch_add(1, Ordering::Relaxed);
        TransactionId { coordinator: self.id, number }
    }

    /// Keeps other changes of a file's length away: truncation and append.
    pub(crate) fn lock_size(&self, oid: Oid) -> MutexGuard<'_, ()> {
        self.size_locks[oid.inode_number() as usize % self.size_locks.len()].lock()
    }

    /// Whether it is known that there is no bucket of names with this key, without a look at the store.
    pub(crate) fn lacks_bucket(&self, key: &[u8]) -> bool {
        let names = &self.dir_shards.names;
        let lacks = names.lacks(key);
        debug_assert!(
            !lacks
                || !matches!(self.store.get(Space::Entry, key), Ok(Some(_)))
                // It has come since.
                || !names.lacks(key),
            "a name that is there is believed not to be"
        );
        lacks
    }

    /// Inodes were removed: counts them, and wakes the reclaimer.
    pub(crate) fn removed(&self, inodes: &Removed) {
        if !inodes.is_empty() {
            self.objects.remove(inodes);
            self.reclaim_wanted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The namespace lock, whatever transactions hold.
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.state.lock()
    }

    /// The namespace lock, once no transaction holds any of these keys.
    pub(crate) fn lock_free(&self, wanted: &[Wanted]) -> Result<Guard<'_>, Status> {
        let mut state = self.state.lock();
        if state.locks.are_free(wanted) {
            return Ok(state);
        }
        let deadline = self.platform.now() + RECORD_WAIT;
        while !state.locks.are_free(wanted) {
            let time_is_up = self.freed.wait_until(&*self.platform, &mut state, deadline);
            if time_is_up && !state.locks.are_free(wanted) {
                return Err(Status::Busy);
            }
        }
        Ok(state)
    }

    /// Waits until no transaction holds these keys, for a reader: so that nobody sees one half of
    /// a rename.
    pub(crate) fn wait_free(&self, wanted: &[Wanted]) -> Result<(), Status> {
        if self.locked.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.lock_free(wanted).map(drop)
    }

    /// Waits until no transaction is changing names of a directory here, and whoever has the namespace lock
    /// has given it back.
    pub(crate) fn wait_for_changes(&self, dir: Oid) -> Result<(), Status> {
        let mut state = self.state.lock();
        let deadline = self.platform.now() + RECORD_WAIT;
        while state.locks.hold_names_of(dir) {
            let time_is_up = self.freed.wait_until(&*self.platform, &mut state, deadline);
            if time_is_up && state.locks.hold_names_of(dir) {
                return Err(Status::Busy);
            }
        }
        Ok(())
    }

    /// Takes keys for a transaction, or answers `Busy` at once: waiting here could be for ever.
    pub(crate) fn take_keys(
        &self,
        state: &mut State,
        id: TransactionId,
        wanted: &[Wanted],
    ) -> Result<(), Status> {
        if !state.locks.try_take(id, wanted) {
            return Err(Status::Busy);
        }
        self.locked.store(state.locks.len(), Ordering::Release);
        Ok(())
    }

    /// Gives keys of a transaction back.
    pub(crate) fn give_back_keys(&self, state: &mut State, id: TransactionId, wanted: &[Wanted]) {
        state.locks.give_back(id, wanted);
        self.locked.store(state.locks.len(), Ordering::Release);
        self.freed.notify_all();
    }
}
