//! What is known of regular files that nobody here has open: by what a write to them was last judged, and
//! whether they are striped. Owns how many are known, and for how long that may be relied upon. None of it
//! is ever shown to anybody: it serves for asking an engine the right thing at once, and what may be out
//! of date is asked for together with a guard, or believed for no longer than a mount believes attributes.
//!
//! Chunk size and class of a striped file never change, and striped it stays: so where its data lie is
//! true for as long as it is known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::attr::{FileGuard, FileKind};
use azekura_proto::placement::name_hash;
use azekura_proto::{Attr, Oid};
use parking_lot::Mutex;
use quick_cache::sync::Cache;

/// Files known at a time.
const FILES: usize = 16 * 1024;
/// Counters of changes; several files share one.
const COUNTERS: usize = 256;

/// What is known of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownFile {
    pub(crate) guard: FileGuard,
    pub(crate) striped: bool,
    /// When it was asked for.
    since: Instant,
}

/// Says when a question was asked: an answer from before an own change is not kept after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    value: u64,
    since: Instant,
}

/// The files that are known.
#[derive(Debug)]
pub(crate) struct KnownFiles {
    /// For how long owner and mode are believed; `None`: never.
    ttl: Option<Duration>,
    platform: SharedPlatform,
    files: Cache<Oid, KnownFile>,
    changes: Box<[Mutex<()>]>,
    counters: Box<[AtomicU64]>,
}

fn counter(oid: Oid) -> usize {
    name_hash(&oid.to_bytes()) as usize % COUNTERS
}

impl KnownFiles {
    pub(crate) fn new(ttl: Option<Duration>, platform: SharedPlatform) -> Self {
        Self {
            ttl,
            platform,
            files: Cache::new(FILES),
            changes: (0..COUNTERS).map(|_| Mutex::default()).collect(),
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// To be called before a file's attributes are asked for.
    pub(crate) fn ask(&self, oid: Oid) -> Asked {
        let value = self.counters[counter(oid)].load(Ordering::SeqCst);
        Asked { value, since: self.platform.now() }
    }

    /// The same for a file that is about to be made, and has no id yet.
    pub(crate) fn ask_for_new(&self) -> Instant {
        self.platform.now()
    }

    /// Takes note of a file that was made from here: what is known of it otherwise is newer.
    pub(crate) fn keep_new(&self, since: Instant, attr: &Attr) {
        let counter = counter(attr.oid);
        let value = self.counters[counter].load(Ordering::SeqCst);
        if self.get(attr.oid).is_none() {
            self.keep(Asked { value, since }, attr);
        }
    }

    /// Takes note of a regular file's attributes.
    pub(crate) fn keep(&self, asked: Asked, attr: &Attr) -> KnownFile {
        let (guard, striped) = (FileGuard::of(attr), attr.striped);
        let file = KnownFile { guard, striped, since: asked.since };
        if attr.kind == FileKind::Regular && !self.is_old_news(&file, attr.oid) {
            let counter = counter(attr.oid);
            let _change = self.changes[counter].lock();
            if self.counters[counter].load(Ordering::SeqCst) == asked.value {
                self.files.insert(attr.oid, file);
            }
        }
        file
    }

    /// Whether the same is known of the file since not much earlier.
    fn is_old_news(&self, file: &KnownFile, oid: Oid) -> bool {
        let news_after = self.ttl.map_or(Duration::MAX, |ttl| ttl / 4);
        self.files.get(&oid).is_some_and(|known| {
            (known.guard, known.striped) == (file.guard, file.striped)
                && file.since.saturating_duration_since(known.since) < news_after
        })
    }

    /// What is known of a file, however old.
    pub(crate) fn get(&self, oid: Oid) -> Option<KnownFile> {
        self.files.get(&oid)
    }

    /// Whether the owner and mode of a file may be relied upon without asking.
    pub(crate) fn may_rely_on(&self, file: &KnownFile) -> bool {
        self.ttl.is_some_and(|ttl| self.platform.elapsed(file.since) < ttl)
    }

    /// The file has been changed from here, or what is known of it has proved wrong.
    pub(crate) fn forget(&self, oid: Oid) {
        let counter = counter(oid);
        let _change = self.changes[counter].lock();
        self.counters[counter].fetch_add(1, Ordering::SeqCst);
        self.files.remove(&oid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u16) -> Attr {
        Attr { mode, ..azekura_testkit::attr(FileKind::Regular) }
    }

    #[test]
    fn what_was_asked_before_an_own_change_is_not_kept_after_it() {
        let known = KnownFiles::new(Some(Duration::from_secs(60)), azekura_platform::system());
        let attr = file(0o600);
        let asked = known.ask(attr.oid);
        known.forget(attr.oid);
        known.keep(asked, &attr);
        assert_eq!(known.get(attr.oid), None);
        let file = known.keep(known.ask(attr.oid), &attr);
        assert_eq!(known.get(attr.oid), Some(file));
        assert!(known.may_rely_on(&file));
    }

    #[test]
    fn news_replace_what_was_known() {
        let known = KnownFiles::new(None, azekura_platform::system());
        let attr = file(0o600);
        known.keep(known.ask(attr.oid), &attr);
        let news = known.keep(known.ask(attr.oid), &file(0o640));
        assert_eq!(known.get(attr.oid), Some(news));
        assert!(!known.may_rely_on(&news), "without a lifetime everything is asked for");
        let kept = known.get(attr.oid);
        known.keep(known.ask(attr.oid), &azekura_testkit::attr(FileKind::Directory));
        assert_eq!(known.get(attr.oid), kept, "nothing but regular files is known");
    }

    #[test]
    fn it_stays_bounded() {
        let known = KnownFiles::new(None, azekura_platform::system());
        for serial in 0..4 * FILES as u64 {
            let mut attr = file(0o600);
            let container = azekura_proto::ContainerId(1);
            let class = azekura_proto::ObjectClass::SX;
            attr.oid = Oid::new(container, class, azekura_proto::TargetId(0), serial);
            known.keep(known.ask(attr.oid), &attr);
        }
        assert!(known.files.len() <= FILES);
    }
}
