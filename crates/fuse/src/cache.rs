//! What the kernel may keep. Owns the memory of which version of a file the page cache has, so that
//! it survives close and open while nobody changes the file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use azekura_posix::{Attr, Oid, Timestamp};
use quick_cache::sync::Cache;

/// How much the kernel may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// Nothing: every operation asks the engines, reading and writing goes past the page cache.
    None,
    /// Attributes and names for up to a second; file data while the file has not changed, which is
    /// looked at when it is opened and whenever its attributes are asked for.
    #[default]
    Auto,
}

impl CacheMode {
    /// How long attributes and names are good for.
    pub(crate) const fn ttl(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Auto => Duration::from_secs(1),
        }
    }
}

/// Files whose version is remembered.
const FILES: usize = 64 * 1024;

/// A file that was seen like this less than this long ago may have changed again without its times
/// showing it: where the engine's disk keeps coarse times, they move every few milliseconds.
const SETTLING: Duration = Duration::from_millis(100);
/// One that was changed this long ago has settled at the first sight: clocks differ by less.
const LONG_SETTLED: Duration = Duration::from_secs(10);
/// The kernel drops what it has when the program that opened the file runs again: by then.
const DROPPING: Duration = Duration::from_secs(1);

/// By what a change of a file is recognized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    mtime: Timestamp,
    ctime: Timestamp,
    size: u64,
}

impl Version {
    fn of(attr: &Attr) -> Self {
        Self { mtime: attr.mtime, ctime: attr.ctime, size: attr.size }
    }

    /// Whether the kernel takes a file for unchanged by these two versions, though it may have changed.
    fn looks_like(self, other: Self) -> bool {
        self != other && (self.mtime, self.size) == (other.mtime, other.size)
    }
}

/// What the page cache has of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    /// Anything.
    Unknown,
    /// Nothing from before this version, once the kernel has done what it was told then.
    Dropping(Instant),
    /// Nothing from before this version.
    OfVersion,
}

/// What is remembered of a file.
#[derive(Clone, Copy, Debug)]
struct Seen {
    version: Version,
    since: Instant,
    pages: Pages,
}

/// What the kernel is told when a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// What it has is good.
    Keep,
    /// To drop what it has.
    Drop,
    /// The same; what it has from then on is of this version: see [`Versions::was_dropped`].
    DropFor(Version),
}

/// Which version of each file the page cache has.
#[derive(Debug)]
pub(crate) struct Versions {
    seen: Cache<Oid, Seen>,
}

impl Versions {
    pub(crate) fn new() -> Self {
        Self { seen: Cache::new(FILES) }
    }

    /// A file is opened and has these attributes. Tells what becomes of what the page cache has of it.
    /// It is kept only when it is sure that the kernel has dropped everything older: it does so some
    /// time after it was told, and others may open the file meanwhile.
    pub(crate) fn opened(&self, attr: &Attr, now: Instant) -> Kept {
        let version = Version::of(attr);
        let seen = self.seen.get(&attr.oid).filter(|seen| seen.version == version);
        let since = seen.map_or(now, |seen| seen.since);
        let is_past = |then, time| now.saturating_duration_since(then) >= time;
        let pages = match seen.map_or(Pages::Unknown, |seen| seen.pages) {
            Pages::OfVersion => return Kept::Keep,
            Pages::Dropping(then) if is_past(then, DROPPING) => Pages::OfVersion,
            Pages::Dropping(_) => return Kept::DropFor(version),
            Pages::Unknown
                if is_past(since, SETTLING) || is_settled(version.ctime, SystemTime::now()) =>
            {
                Pages::Dropping(now)
            }
            Pages::Unknown => Pages::Unknown,
        };
        self.seen.insert(attr.oid, Seen { version, since, pages });
        match pages {
            Pages::OfVersion => Kept::Keep,
            Pages::Dropping(_) => Kept::DropFor(version),
            Pages::Unknown => Kept::Drop,
        }
    }

    /// A program uses the file that it opened, so that the kernel has dropped what it was told to.
    pub(crate) fn was_dropped(&self, oid: Oid, version: Version) {
        if let Some(seen) = self.seen.get(&oid)
            && seen.version == version
            && matches!(seen.pages, Pages::Dropping(_))
        {
            self.seen.insert(oid, Seen { pages: Pages::OfVersion, ..seen });
        }
    }
}

/// Of which versions of a file the kernel has been told.
#[derive(Clone, Copy, Debug)]
struct LastTold {
    last: Version,
    /// Another one, if there was any: that is still what the kernel has if it did not take the last one, as it does
    /// where something has changed the file while it asked.
    before: Version,
}

/// Which version of each file the kernel has been told of last: for as long as it believes attributes, it takes
/// the file to be that long.
#[derive(Debug)]
pub(crate) struct Told {
    versions: Cache<Oid, LastTold>,
}

impl Told {
    pub(crate) fn new() -> Self {
        Self { versions: Cache::new(FILES) }
    }

    /// The kernel is told these attributes, or asks for them before it believes others. Whether they hide from it
    /// that the file may have changed since it was told others: by time and size it goes, and somebody has set the
    /// time back.
    pub(crate) fn note(&self, attr: &Attr) -> bool {
        let version = Version::of(attr);
        let Some(told) = self.versions.get(&attr.oid) else {
            if is_as_made(attr) {
                return false;
            }
            self.versions.insert(attr.oid, LastTold { last: version, before: version });
            return false;
        };
        if version == told.last {
            return false;
        }
        self.versions.insert(attr.oid, LastTold { last: version, before: told.last });
        version.looks_like(told.last) || version.looks_like(told.before)
    }

    /// Whether the kernel is known to have these.
    pub(crate) fn has(&self, attr: &Attr) -> bool {
        let told = self.versions.get(&attr.oid);
        told.map_or_else(|| is_as_made(attr), |told| told.last == Version::of(attr))
    }

    /// Whether the kernel has been told of a version that is no older than these, and another one: these are
    /// out of a listing that is older than that, and would take the kernel back.
    pub(crate) fn is_past(&self, attr: &Attr) -> bool {
        let told = self.versions.get(&attr.oid).map(|told| told.last);
        told.is_some_and(|told| told != Version::of(attr) && told.ctime >= attr.ctime)
    }
}

/// Whether a file is empty and has not changed since it was made. There is no other version that the kernel might have,
/// nor pages: so files that are made by the thousand take no place here.
fn is_as_made(attr: &Attr) -> bool {
    attr.size == 0 && attr.ctime == attr.btime
}

fn is_settled(changed: Timestamp, now: SystemTime) -> bool {
    let Ok(since_epoch) = u64::try_from(changed.secs) else { return true };
    let changed = UNIX_EPOCH + Duration::new(since_epoch, changed.nanos);
    now.duration_since(changed).is_ok_and(|age| age >= LONG_SETTLED)
}

/// Files, directories and symlinks that had no extended attributes when their attributes were last told.
#[derive(Debug)]
pub(crate) struct PlainFiles {
    since: Cache<Oid, Instant>,
    /// Those that got some through this mount: what is told of them may be from before.
    given: Cache<Oid, ()>,
}

impl PlainFiles {
    pub(crate) fn new() -> Self {
        Self { since: Cache::new(FILES), given: Cache::new(FILES) }
    }

    /// A file has these attributes.
    pub(crate) fn note(&self, attr: &Attr, now: Instant) {
        if attr.has_xattrs || self.given.get(&attr.oid).is_some() {
            self.forget(attr.oid);
        } else {
            self.since.insert(attr.oid, now);
        }
    }

    /// A file is about to be given extended attributes through this mount.
    pub(crate) fn give(&self, oid: Oid) {
        self.given.insert(oid, ());
        self.forget(oid);
    }

    /// A file may have extended attributes now.
    pub(crate) fn forget(&self, oid: Oid) {
        self.since.remove(&oid);
    }

    /// Whether a file is known to have none, by what was heard no longer ago than `ttl`.
    pub(crate) fn has(&self, oid: Oid, now: Instant, ttl: Duration) -> bool {
        self.since.get(&oid).is_some_and(|since| now.saturating_duration_since(since) < ttl)
    }
}

/// Counts the changes made through this mount, so that what was read before one of them is not
/// handed to the kernel after it.
#[derive(Debug, Default)]
pub(crate) struct Changes(AtomicU64);

impl Changes {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// One was made. To be called before the kernel hears of it.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use azekura_posix::FileKind;

    use super::*;

    fn file(size: u64, ctime: SystemTime) -> Attr {
        let since = ctime.duration_since(UNIX_EPOCH).unwrap();
        let time = Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() };
        Attr { size, mtime: time, ctime: time, ..azekura_testkit::attr(FileKind::Regular) }
    }

    #[test]
    fn data_are_kept_until_the_file_changes() {
        let (versions, now) = (Versions::new(), Instant::now());
        let then = SystemTime::now() - Duration::from_secs(60);
        for changed in [file(1, then), file(2, then), file(2, then + Duration::from_nanos(1))] {
            let version = Version::of(&changed);
            assert_eq!(versions.opened(&changed, now), Kept::DropFor(version));
            versions.was_dropped(changed.oid, version);
            assert_eq!(versions.opened(&changed, now), Kept::Keep);
        }
    }

    #[test]
    fn nothing_is_kept_before_the_kernel_has_dropped_what_is_older() {
        let (versions, now) = (Versions::new(), Instant::now());
        let then = SystemTime::now() - Duration::from_secs(60);
        let (old, new) = (file(1, then), file(2, then));
        let is_told_to_drop = Kept::DropFor(Version::of(&new));
        assert_eq!(versions.opened(&new, now), is_told_to_drop);
        assert_eq!(versions.opened(&new, now + DROPPING / 2), is_told_to_drop);
        versions.was_dropped(new.oid, Version::of(&old));
        assert_eq!(versions.opened(&new, now + DROPPING / 2), is_told_to_drop);
        assert_eq!(versions.opened(&new, now + DROPPING), Kept::Keep);
    }

    #[test]
    fn what_the_kernel_was_told_is_known_by_its_version() {
        let (told, then) = (Told::new(), SystemTime::now());
        assert!(!told.has(&file(1, then)));
        assert!(!told.note(&file(1, then)) && !told.note(&file(1, then)));
        assert!(told.has(&file(1, then)) && !told.has(&file(2, then)));
        let (before, after) = (then - Duration::from_secs(1), then + Duration::from_secs(1));
        assert!(told.is_past(&file(1, before)) && told.is_past(&file(2, then)));
        assert!(!told.is_past(&file(1, then)) && !told.is_past(&file(2, after)));
        let set_back = Attr { ctime: file(1, after).ctime, ..file(1, then) };
        assert!(told.note(&set_back), "as large and of the same time, and not the same");
        assert!(!told.note(&set_back), "it is dropped once");
        assert!(!told.note(&file(2, after)), "the kernel sees it");
        let set_back_again = Attr { ctime: file(1, before).ctime, ..set_back };
        assert!(told.note(&set_back_again), "unless it did not take what it was told in between");
    }

    #[test]
    fn what_the_kernel_was_told_of_a_new_file_is_known_without_being_noted() {
        let (told, made) = (Told::new(), SystemTime::now());
        let new = Attr { btime: file(0, made).ctime, ..file(0, made) };
        assert!(told.has(&new) && !told.note(&new));
        assert_eq!(told.versions.len(), 0);
        let written = Attr { size: 1, ..new.clone() };
        assert!(!told.has(&written), "it was told of an empty one at most");
        assert!(!told.note(&written) && told.has(&written) && !told.has(&new));
        let emptied = Attr { ctime: file(0, made + Duration::from_secs(1)).ctime, ..new };
        assert!(!told.has(&emptied) && !told.note(&emptied) && told.is_past(&written));
    }

    #[test]
    fn what_was_given_attributes_here_is_not_plain_whatever_is_told_late() {
        let (plain, now, ttl) = (PlainFiles::new(), Instant::now(), Duration::from_secs(1));
        let old = file(1, SystemTime::now());
        assert!(!plain.has(old.oid, now, ttl));
        plain.note(&old, now);
        assert!(plain.has(old.oid, now, ttl));
        assert!(!plain.has(old.oid, now + ttl, ttl), "another client may have given it some");
        plain.give(old.oid);
        plain.note(&old, now);
        assert!(!plain.has(old.oid, now, ttl));
    }

    #[test]
    fn a_file_that_was_changed_just_now_is_not_trusted_whatever_the_clock_says() {
        let now = Instant::now();
        for age in [Duration::ZERO, LONG_SETTLED / 2] {
            let versions = Versions::new();
            let fresh = file(1, SystemTime::now() - age);
            assert_eq!(versions.opened(&fresh, now), Kept::Drop);
            versions.was_dropped(fresh.oid, Version::of(&fresh));
            assert_eq!(versions.opened(&fresh, now + SETTLING / 2), Kept::Drop);
            let settled = Kept::DropFor(Version::of(&fresh));
            assert_eq!(versions.opened(&fresh, now + SETTLING), settled);
            versions.was_dropped(fresh.oid, Version::of(&fresh));
            assert_eq!(versions.opened(&fresh, now + SETTLING), Kept::Keep);
        }
    }
}
