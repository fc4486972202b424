//! The order of commits, and what of them the database does not have yet. Owns the sequence
//! numbers, the queue of pending batches, their overlay and their journal. A commit ends here, in
//! memory and in the journal; `background` carries the batches on to the database in groups.
//!
//! Locks are taken in this order: `applying`, then `log`, then a shard of the overlay.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::call::Call;
use super::front_journal::{FrontJournal, RECORD_BYTES_MAX};
use super::overlay::{Overlay, Pending};
use super::record::Changes;
use crate::free_space::FreeSpace;

/// Most batches that wait for the database.
const PENDING_MAX: usize = 8192;
/// So many waiting batches call the applier before its time.
const CALL_AT: usize = 512;
/// Bounds of a group that goes to the database at once: batches, and bytes of their records.
const GROUP_BATCHES: usize = 512;
const GROUP_BYTES: usize = 512 * 1024;

/// The commits in their order.
pub(crate) struct Log {
    journal: FrontJournal,
    last_seq: u64,
    /// The journal does not follow on what the database knows: the next batch must go straight to
    /// the database, and its marker makes both agree again. So it is after every opening, since
    /// the epoch is new then, and after a failure.
    broken_off: bool,
    pending: VecDeque<Arc<Pending>>,
}

impl Log {
    /// The oldest batches, not more than go to the database at once.
    pub(crate) fn group(&self) -> Vec<Arc<Pending>> {
        let mut bytes = 0;
        let fits = |batch: &&Arc<Pending>| {
            bytes += batch.changes.record_bytes();
            bytes <= GROUP_BYTES
        };
        // A record alone is always within the bound.
        self.pending.iter().take(GROUP_BATCHES).take_while(fits).cloned().collect()
    }

    /// Begins a commit straight to the database; nothing is pending. Until [`Log::follow_on`] the
    /// number counts as lost.
    pub(crate) fn break_off(&mut self) -> (u64, u64) {
        assert!(self.pending.is_empty(), "a batch would go before those that wait");
        self.broken_off = true;
        self.last_seq += 1;
        (self.last_seq, self.journal.end())
    }

    /// The database has everything, and says so.
    pub(crate) fn follow_on(&mut self) {
        self.broken_off = false;
    }
}

/// What became of a commit.
pub(crate) enum Appended {
    Done,
    /// The database must take some of what is pending first.
    Full(Changes),
    /// The batch must go straight to the database.
    Straight(Changes),
}

/// The front of the database.
pub(crate) struct Front {
    pub(crate) epoch: u64,
    gauge: Arc<FreeSpace>,
    /// Held by whoever brings batches to the database.
    pub(crate) applying: Mutex<()>,
    log: Mutex<Log>,
    pub(crate) overlay: Overlay,
    pub(crate) call: Call,
    /// The last batch that the database has.
    applied: AtomicU64,
}

impl Front {
    /// Begins a new epoch after batch `seq`, the last one that the database has. No epoch of this
    /// target may come twice, so its number is drawn at random.
    pub(crate) fn new(journal: FrontJournal, epoch: u64, seq: u64, gauge: Arc<FreeSpace>) -> Self {
        let log = Log { journal, last_seq: seq, broken_off: true, pending: VecDeque::new() };
        Self {
            epoch,
            gauge,
            applying: Mutex::new(()),
            log: Mutex::new(log),
            overlay: Overlay::new(),
            call: Call::new(),
            applied: AtomicU64::new(seq),
        }
    }

    /// Commits a batch to the journal and the overlay, if it can be done there.
    pub(crate) fn append(&self, mut changes: Changes) -> Appended {
        let bytes = changes.record_bytes();
        if bytes > RECORD_BYTES_MAX {
            return Appended::Straight(changes);
        }
        let mut log = self.log.lock();
        if log.broken_off {
            return Appended::Straight(changes);
        }
        let oldest = log.pending.front().map(|batch| batch.at);
        let at = match log.journal.place(bytes, oldest) {
            Some(at) if log.pending.len() < PENDING_MAX => at,
            // Nothing to wait for: the journal is smaller than it should be.
            None if oldest.is_none() => return Appended::Straight(changes),
            _ => return Appended::Full(changes),
        };
        let seq = log.last_seq + 1;
        if let Err(error) = log.journal.write(at, changes.seal(self.epoch, seq)) {
            tracing::error!(%error, "cannot write to the journal of the last commits");
            // Some of the record may be there: its number must not come again.
            log.last_seq = seq;
            log.broken_off = true;
            return Appended::Straight(changes);
        }
        log.last_seq = seq;
        self.gauge.add_waiting(bytes as u64);
        let batch = Arc::new(Pending { seq, at, end: log.journal.end(), changes });
        // Under the lock, so that the newest batch wins.
        self.overlay.insert(&batch);
        log.pending.push_back(batch);
        let waiting = log.pending.len();
        drop(log);
        self.call.pending(waiting >= CALL_AT);
        Appended::Done
    }

    /// Forgets the oldest batches, which the database has.
    pub(crate) fn forget(&self, log: &mut Log, group: &[Arc<Pending>]) {
        let Some(last) = group.last() else { return };
        let last_pending = log.pending.drain(..group.len()).next_back();
        assert!(last_pending.is_some_and(|batch| batch.seq == last.seq), "not the oldest batches");
        self.set_applied(last.seq);
        let bytes: usize = group.iter().map(|batch| batch.changes.record_bytes()).sum();
        self.gauge.remove_waiting(bytes as u64);
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// The number of the last commit.
    pub(crate) fn last_seq(&self) -> u64 {
        self.log.lock().last_seq
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.log.lock().pending.is_empty()
    }

    /// The last batch that the database has.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(crate) fn set_applied(&self, seq: u64) {
        let before = self.applied.swap(seq, Ordering::AcqRel);
        assert!(before < seq, "batch {seq} went to the database after {before}");
    }
}
