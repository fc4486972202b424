//! The own changes of files, counted so that nothing that was read ahead before a change is handed out
//! after it, nor attributes that were kept. Owns the counters. A change counts twice, when it begins and
//! when it is over, on every way out: what was asked for in between may be from before or after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura_proto::Oid;
use azekura_proto::placement::name_hash;

/// Counters; several files share one.
const COUNTERS: usize = 256;

/// The counters of a file system. Where nothing is ever read ahead there are none.
#[derive(Debug)]
pub(crate) struct Changes {
    counters: Box<[Arc<AtomicU64>]>,
    /// Names that were given or taken: of which files is not known here.
    names: Arc<AtomicU64>,
    /// The session has said goodbye, and its leases are over.
    is_over: Arc<AtomicBool>,
}

/// How often a file, or one that shares its counter, was changed.
#[derive(Debug)]
pub(crate) struct ChangeCount {
    file: Arc<AtomicU64>,
    names: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

/// How often all files had been changed when something was asked.
#[derive(Debug)]
pub(crate) struct ChangeCounts {
    files: Box<[u64]>,
    names: u64,
}

/// A change of a file's data or attributes that is under way: whatever changes them is given one. Dropping
/// it says that the change is over, whether it came to anything or not.
#[must_use = "the change is over when this is dropped"]
#[derive(Debug)]
pub(crate) struct DataChange<'c>(Option<&'c AtomicU64>);

fn counter_of(oid: Oid) -> usize {
    name_hash(&oid.to_bytes()) as usize % COUNTERS
}

impl Changes {
    pub(crate) fn new(anything_is_read_ahead: bool) -> Self {
        let count = if anything_is_read_ahead { COUNTERS } else { 0 };
        let counters = (0..count).map(|_| Arc::default()).collect();
        Self { counters, names: Arc::default(), is_over: Arc::default() }
    }

    fn counter(&self, oid: Oid) -> Option<&Arc<AtomicU64>> {
        self.counters.get(counter_of(oid))
    }

    /// The count of a file, for whoever keeps bytes of it.
    pub(crate) fn count_of(&self, oid: Oid) -> ChangeCount {
        let file = self.counter(oid).cloned().unwrap_or_default();
        let (names, is_over) = (Arc::clone(&self.names), Arc::clone(&self.is_over));
        ChangeCount { file, names, is_over }
    }

    /// The session is about to say goodbye: from now on its leases say nothing about any file.
    pub(crate) fn end_leases(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether there are counters.
    pub(crate) fn are_counted(&self) -> bool {
        !self.counters.is_empty()
    }

    /// The counts of all files, for whoever asks about files that are not known yet.
    pub(crate) fn counts(&self) -> ChangeCounts {
        let counts = self.counters.iter().map(|counter| counter.load(Ordering::SeqCst));
        ChangeCounts { files: counts.collect(), names: self.names.load(Ordering::SeqCst) }
    }

    /// The count of a file by now.
    pub(crate) fn now_of(&self, oid: Oid) -> u64 {
        self.counter(oid).map_or(0, |counter| counter.load(Ordering::SeqCst))
    }

    /// The count of a file, if it still is the one that it had then.
    pub(crate) fn count_if_unchanged(&self, oid: Oid, then: &ChangeCounts) -> Option<u64> {
        let count = then.files.get(counter_of(oid)).copied()?;
        (self.now_of(oid) == count).then_some(count)
    }

    /// Whether a file's attributes, its number of links among them, have not been changed since then.
    pub(crate) fn has_attributes_of(&self, oid: Oid, then: &ChangeCounts) -> bool {
        self.count_if_unchanged(oid, then).is_some()
            && self.names.load(Ordering::SeqCst) == then.names
    }

    /// A change of the file's data or attributes begins.
    pub(crate) fn begin(&self, oid: Oid) -> DataChange<'_> {
        let change = DataChange(self.counter(oid).map(|counter| &**counter));
        change.count();
        change
    }

    /// Files are about to get or lose names.
    pub(crate) fn begin_naming(&self) -> DataChange<'_> {
        let change = DataChange(Some(&*self.names));
        change.count();
        change
    }

    /// The file's data have been changed by what was sent earlier.
    pub(crate) fn note(&self, oid: Oid) {
        drop(DataChange(self.counter(oid).map(|counter| &**counter)));
    }
}

impl ChangeCount {
    /// Of the file itself.
    pub(crate) fn now(&self) -> u64 {
        self.file.load(Ordering::SeqCst)
    }

    /// Whether leases say something about the file.
    pub(crate) fn may_be_leased(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    /// Of all that its attributes tell, names of any file among it.
    pub(crate) fn of_attributes(&self) -> u64 {
        self.now().wrapping_add(self.names.load(Ordering::SeqCst))
    }
}

impl DataChange<'_> {
    fn count(&self) {
        if let Some(counter) = self.0 {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for DataChange<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    #[test]
    fn a_change_counts_when_it_begins_and_when_it_is_over_also_after_an_error() {
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1);
        let changes = Changes::new(true);
        let failing = || -> Result<(), ()> {
            let _change = changes.begin(oid);
            assert_eq!(changes.count_of(oid).now(), 1);
            Err(())
        };
        assert!(failing().is_err());
        assert_eq!(changes.count_of(oid).now(), 2);
        changes.note(oid);
        assert_eq!(changes.count_of(oid).now(), 3);
        drop(changes.begin_naming());
        assert_eq!(changes.count_of(oid).now(), 3, "what is read ahead stays good");
        assert_eq!(changes.count_of(oid).of_attributes(), 5);
        let off = Changes::new(false);
        drop(off.begin(oid));
        assert_eq!(off.count_of(oid).now(), 0);
    }
}
