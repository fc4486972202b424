//! The order of commits, and what of them the database does not have yet. Owns the sequence
//! numbers, the queue of pending batches, their overlay and their journal. A commit ends here, in
//! memory and in the journal; `background` carries the batches on to the database in groups.
//!
//! Locks are taken in this order: `applying`, then `log`, then a shard of the overlay or the lock of
//! what is relied on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::{Dependence, Dependences, TargetId};
use parking_lot::{Mutex, MutexGuard};

use super::call::Call;
use super::change::Value;
use super::database::Marker;
use super::front_journal::{FrontJournal, RECORD_BYTES_MAX};
use super::history::History;
use super::overlay::{Overlay, Pending};
use super::record::Changes;
use super::reliance::{self, RELIANCE_KEY, Reliance};
use super::space::Space;
use crate::disk::File;
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
    history: History,
    /// What the database says about this journal.
    marker: Marker,
    /// The journal does not follow on what the database knows: the next batch must go straight to
    /// the database, and its marker makes both agree again. So it is after a failure.
    broken_off: bool,
    /// The batches whose place in the journal is kept, the oldest first. The database may have the first ones.
    pending: VecDeque<Arc<Pending>>,
    /// The last batch that other targets may rely on as durable.
    promised: u64,
}

/// What an opening found.
pub(crate) struct Opened {
    pub(crate) journal: FrontJournal,
    pub(crate) history: History,
    pub(crate) marker: Marker,
    /// Batches that the database may not have before other targets have been asked.
    pub(crate) pending: VecDeque<Arc<Pending>>,
}

impl Log {
    /// The oldest batches that the database does not have, not more than go there at once, and none that relies
    /// on what is not known to be durable.
    pub(crate) fn group(&self, reliance: &Reliance) -> Vec<Arc<Pending>> {
        let mut bytes = 0;
        let fits = |batch: &&Arc<Pending>| {
            bytes += batch.changes.record_bytes();
            bytes <= GROUP_BYTES && reliance.has_settled(&batch.relies_on)
        };
        let waiting = self.pending.iter().skip(self.applied_count());
        // A record alone is always within the bound.
        waiting.take(GROUP_BATCHES).take_while(fits).cloned().collect()
    }

    /// How many of the batches the database has.
    fn applied_count(&self) -> usize {
        self.pending.iter().take_while(|batch| batch.seq <= self.marker.seq).count()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub(crate) fn marker(&self) -> Marker {
        self.marker
    }

    /// Begins a commit straight to the database; nothing is pending. Until [`Log::follow_on`] the
    /// number counts as lost.
    pub(crate) fn break_off(&mut self) -> Marker {
        assert!(self.pending.is_empty(), "a batch would go before those that wait");
        self.broken_off = true;
        self.last_seq += 1;
        let (epoch, seq) = (self.history.current(), self.last_seq);
        Marker { epoch, seq, end: self.journal.end() }
    }

    /// The database has everything, and says so.
    pub(crate) fn follow_on(&mut self) {
        self.broken_off = false;
    }

    /// Drops everything that is pending: it is no part of the history any more.
    pub(crate) fn cut(&mut self, epoch: u64) -> History {
        let last = self.marker.seq;
        self.history.begin(epoch, last);
        self.last_seq = last;
        self.pending.clear();
        // Whoever is about to commit goes by way of the database, and is refused there.
        self.broken_off = true;
        self.history.clone()
    }

    /// Whether others rely on batches that the database has and that are durable in the journal alone, where
    /// the database has made everything up to `synced` durable: their place there must not be overwritten.
    pub(crate) fn must_be_kept(&self, synced: u64) -> bool {
        let last = self.marker.seq;
        self.pending.front().is_some_and(|first| {
            first.seq <= last && self.promised >= first.seq && self.promised.min(last) > synced
        })
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

/// What has to be synced so that other targets may rely on it.
pub(crate) struct Promise {
    /// The last batch that is promised.
    pub(crate) last: u64,
    /// The last batch that the database has; those after it are in the journal.
    pub(crate) applied: u64,
    pub(crate) journal: Arc<dyn File>,
}

/// The front of the database.
pub(crate) struct Front {
    target: TargetId,
    epoch: u64,
    gauge: Arc<FreeSpace>,
    /// Held by whoever brings batches to the database.
    pub(crate) applying: Mutex<()>,
    /// Held by whoever syncs the journal for other targets: once for all that came before. Set by the
    /// first failure, for good: what the journal lost then is lost.
    pub(crate) holding: Mutex<bool>,
    log: Mutex<Log>,
    pub(crate) overlay: Overlay,
    pub(crate) reliance: Reliance,
    pub(crate) call: Call,
    /// The last batch that the database has.
    applied: AtomicU64,
    /// The last batch that the database has made durable, and with it what it relies on.
    synced: AtomicU64,
    /// The last batch that is durable in the journal or the database, whatever it relies on.
    held: AtomicU64,
}

impl Front {
    /// The front over what an opening has found.
    pub(crate) fn new(target: TargetId, opened: Opened, gauge: Arc<FreeSpace>) -> Self {
        let Opened { journal, history, marker, pending } = opened;
        let last_seq = pending.back().map_or(marker.seq, |batch| batch.seq);
        let overlay = Overlay::new();
        let mut relied_on = Dependences::NONE;
        for batch in &pending {
            gauge.add_waiting(batch.changes.record_bytes() as u64);
            overlay.insert(batch);
            relied_on.add_all(&batch.relies_on);
        }
        let epoch = history.current();
        Self {
            target,
            epoch,
            gauge,
            applying: Mutex::new(()),
            holding: Mutex::new(false),
            log: Mutex::new(Log {
                journal,
                last_seq,
                history,
                marker,
                broken_off: false,
                pending,
                // What is still in the journal may have been promised by an earlier run.
                promised: last_seq,
            }),
            overlay,
            reliance: Reliance::carried(relied_on),
            call: Call::new(),
            applied: AtomicU64::new(marker.seq),
            synced: AtomicU64::new(marker.seq),
            held: AtomicU64::new(marker.seq),
        }
    }

    /// Commits a batch to the journal and the overlay, if it can be done there.
    pub(crate) fn append(&self, mut changes: Changes) -> Appended {
        if changes.record_bytes() > RECORD_BYTES_MAX {
            return Appended::Straight(changes);
        }
        let mut log = self.log.lock();
        if log.broken_off {
            return Appended::Straight(changes);
        }
        let before = changes.len();
        let relies_on = self.reliance.take_uncarried();
        let carried = relies_on.is_empty()
            || changes
                .push(Space::Reliance, RELIANCE_KEY, Some(&reliance::encode(&relies_on)))
                .is_ok();
        let bytes = changes.record_bytes();
        let oldest = log.pending.front().map(|batch| batch.at);
        let place = log.journal.place(bytes, oldest);
        let refused =
            if !carried || bytes > RECORD_BYTES_MAX || (place.is_none() && oldest.is_none()) {
                // Nothing to wait for: the journal is smaller than it should be.
                Some(Appended::Straight as fn(Changes) -> Appended)
            } else if place.is_none() || log.pending.len() >= PENDING_MAX {
                Some(Appended::Full as fn(Changes) -> Appended)
            } else {
                None
            };
        let (None, Some(at)) = (refused, place) else {
            changes.shorten(before);
            self.reliance.give_back(&relies_on);
            return refused.unwrap_or(Appended::Straight)(changes);
        };
        let seq = log.last_seq + 1;
        if let Err(error) = log.journal.write(at, changes.seal(self.epoch, seq)) {
            tracing::error!(%error, "cannot write to the journal of the last commits");
            // Some of the record may be there: its number must not come again.
            log.last_seq = seq;
            log.broken_off = true;
            changes.shorten(before);
            self.reliance.give_back(&relies_on);
            return Appended::Straight(changes);
        }
        log.last_seq = seq;
        self.gauge.add_waiting(bytes as u64);
        let (epoch, end) = (self.epoch, log.journal.end());
        let batch = Arc::new(Pending { epoch, seq, at, end, changes, relies_on });
        // Under the lock, so that the newest batch wins.
        self.overlay.insert(&batch);
        log.pending.push_back(batch);
        let waiting = log.pending.len();
        drop(log);
        // Not by each commit where many wait for other targets anyway.
        let calls =
            waiting >= CALL_AT && (waiting.is_multiple_of(CALL_AT) || self.reliance.is_settled());
        self.call.pending(calls);
        Appended::Done
    }

    /// Forgets the batches that the database has: their place in the journal may be overwritten.
    pub(crate) fn forget(&self, log: &mut Log) {
        let count = log.applied_count();
        let bytes: usize =
            log.pending.drain(..count).map(|batch| batch.changes.record_bytes()).sum();
        self.gauge.remove_waiting(bytes as u64);
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.log.lock().has_pending()
    }

    /// Whether the applier has something to do: to bring batches to the database, or to make sure of
    /// what the next one relies on.
    pub(crate) fn has_work(&self) -> bool {
        self.has_pending() || !self.reliance.is_settled()
    }

    /// Whether so much is pending that commits will soon have to wait.
    pub(crate) fn wants_haste(&self) -> bool {
        self.log.lock().pending.len() >= PENDING_MAX / 2
    }

    /// What is pending of a space, by stored key, from `first` to before `end`.
    pub(crate) fn pending_of(
        &self,
        space: Space,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> BTreeMap<Vec<u8>, Option<Value>> {
        let log = self.log.lock();
        let mut newest = BTreeMap::new();
        for batch in &log.pending {
            for slot in batch.changes.slots().iter().filter(|slot| slot.space == space) {
                let key = batch.changes.key(slot);
                if is_wanted(key) {
                    newest.insert(key.to_vec(), batch.changes.value(slot).map(Value::from));
                }
            }
        }
        newest
    }

    /// The last batch that the database has.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(crate) fn set_applied(&self, log: &mut Log, marker: Marker) {
        let before = self.applied.swap(marker.seq, Ordering::AcqRel);
        assert!(before < marker.seq, "batch {} went to the database after {before}", marker.seq);
        log.marker = marker;
    }

    /// The last batch that the database has made durable.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn set_synced(&self, seq: u64) {
        self.synced.fetch_max(seq, Ordering::AcqRel);
    }

    /// The last batch that is durable, whatever it relies on.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire).max(self.synced())
    }

    pub(crate) fn set_held(&self, seq: u64) {
        self.held.fetch_max(seq, Ordering::AcqRel);
    }

    /// What whoever learns of this target's state from now on relies on.
    pub(crate) fn position(&self) -> Dependences {
        // The number first: what is observed before a commit is observed before its number is seen.
        let (seq, epoch) = {
            let log = self.log.lock();
            // The last commit may be of an epoch before this run's.
            (log.last_seq, log.history.epoch_of(log.last_seq))
        };
        let mut all = self.reliance.unsettled();
        if seq > self.synced() {
            all.add(Dependence { target: self.target, epoch, seq });
        }
        all
    }

    /// From now on commits rely on these. False, and nothing is done, if one of them is a commit that
    /// this target lost itself.
    pub(crate) fn observe(&self, heard: &Dependences) -> bool {
        let (own, others): (Vec<&Dependence>, Vec<&Dependence>) =
            heard.iter().partition(|each| each.target == self.target);
        // What is its own comes before whatever it commits next.
        let has_all = own.iter().all(|own| self.has(own.epoch, own.seq));
        if has_all {
            self.reliance.observe(others.into_iter().copied());
            self.call.pending(false);
        }
        has_all
    }

    /// Whether a commit is part of what the target is.
    pub(crate) fn has(&self, epoch: u64, seq: u64) -> bool {
        let log = self.log.lock();
        log.history.has(epoch, seq, log.last_seq)
    }

    /// Promises that everything committed before the call will be durable; the caller sees to it.
    pub(crate) fn promise(&self) -> Promise {
        let mut log = self.log.lock();
        log.promised = log.last_seq;
        Promise { last: log.last_seq, applied: log.marker.seq, journal: log.journal.file() }
    }
}
