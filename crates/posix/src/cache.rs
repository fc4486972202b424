//! What the client keeps for a moment: facts about directories, and where names of directories and
//! symlinks lead. Owns their lifetime and bounds. Nothing about regular files is kept, so a change
//! of one, by whomever, is seen by the next operation.
//!
//! An answer that was asked for before an own change and came after it must not be kept: each
//! change moves a counter, and an answer is stored only if its counter stands where it stood when
//! the question was asked.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::attr::DirectoryGuard;
use azekura_proto::placement::name_hash;
use azekura_proto::{Attr, Oid, Timestamp};
use parking_lot::Mutex;
use quick_cache::Equivalent;
use quick_cache::sync::Cache;

/// Directories kept, and names kept.
const ITEMS: usize = 16 * 1024;
/// Texts of symlinks kept, each of a path's length at most.
const TEXTS: usize = 1024;
/// Counters of changes; several things share one.
const COUNTERS: usize = 256;

/// Where a name leads.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// To a directory.
    Directory(Oid),
    /// To a symlink with this text.
    Symlink(Arc<[u8]>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Name {
    dir: Oid,
    name: Box<[u8]>,
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        NameRef { dir: self.dir, name: &self.name }.hash(state);
    }
}

#[derive(Hash)]
struct NameRef<'a> {
    dir: Oid,
    name: &'a [u8],
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, key: &Name) -> bool {
        self.dir == key.dir && *self.name == *key.name
    }
}

#[derive(Clone, Debug)]
struct Kept<T> {
    since: Instant,
    value: T,
}

/// What is known of a directory; kept since it was looked at.
#[derive(Clone, Debug)]
struct KnownDir {
    attr: Arc<Attr>,
    /// Since when it is known that its owner, its mode and what it hands on are these: later than that if an
    /// engine has confirmed them, which says nothing of its times and links.
    confirmed: Instant,
}

/// Says when a question was asked; see the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    counter: usize,
    value: u64,
    since: Instant,
}

/// The same where it is not known yet about what it was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedAny {
    changes: u64,
    since: Instant,
}

impl AskedAny {
    /// What had been asked so long before, and has turned out to be as it was.
    pub(crate) fn earlier_by(self, age: Duration) -> Self {
        Self { since: self.since.checked_sub(age).unwrap_or(self.since), ..self }
    }
}

/// The caches of one file system; with a lifetime of `None` nothing is kept.
#[derive(Debug)]
pub(crate) struct DirCache {
    ttl: Option<Duration>,
    platform: SharedPlatform,
    dirs: Cache<Oid, Kept<KnownDir>>,
    steps: Cache<Name, Kept<Step>>,
    /// Never out of date: a symlink's text does not change, and no other object ever has its number.
    texts: Cache<Oid, Arc<[u8]>>,
    changes: Box<[AtomicU64]>,
    /// Two changes of what is kept of one directory must not lose one.
    touching: [Mutex<()>; 16],
    started: Instant,
    /// What was asked for until then is a guess now: nanoseconds after `started`, and 1 more.
    aged_ns: AtomicU64,
}

/// A directory in which an entry was made or removed, with this time of last change.
pub(crate) fn touched(dir: &Attr, changed: Timestamp) -> Attr {
    let mut attr = dir.clone();
    // A time that was set into the future by hand gives way to a true one.
    attr.mtime = if attr.mtime > attr.ctime { changed } else { attr.mtime.max(changed) };
    attr.ctime = attr.ctime.max(changed);
    attr
}

fn dir_counter(dir: Oid) -> usize {
    name_hash(&dir.to_bytes()) as usize % COUNTERS
}

fn step_counter(dir: Oid, name: &[u8]) -> usize {
    (name_hash(name) ^ dir.inode_number()) as usize % COUNTERS
}

impl DirCache {
    pub(crate) fn new(ttl: Option<Duration>, platform: SharedPlatform) -> Self {
        let items = if ttl.is_some() { ITEMS } else { 1 };
        Self {
            ttl,
            started: platform.now(),
            aged_ns: AtomicU64::new(0),
            platform,
            dirs: Cache::new(items),
            steps: Cache::new(items),
            texts: Cache::new(items.min(TEXTS)),
            changes: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            touching: std::array::from_fn(|_| Mutex::new(())),
        }
    }

    fn asked(&self, counter: usize) -> Asked {
        let value = self.changes[counter].load(Ordering::SeqCst);
        Asked { counter, value, since: self.platform.now() }
    }

    fn is_current(&self, asked: Asked) -> bool {
        self.ttl.is_some() && self.changes[asked.counter].load(Ordering::SeqCst) == asked.value
    }

    fn is_fresh(&self, since: Instant) -> bool {
        self.ttl.is_some_and(|ttl| self.platform.elapsed(since) < ttl)
    }

    /// What is known of a directory, to judge by: its times and links may be older than is promised.
    pub(crate) fn dir(&self, dir: Oid) -> Option<Arc<Attr>> {
        self.ttl?;
        let known = self.dirs.get(&dir)?.value;
        let is_known = self.is_fresh(known.confirmed) && !self.has_aged(known.confirmed);
        is_known.then_some(known.attr)
    }

    /// What was known of a directory last, however long ago: a guess that an engine has to confirm.
    pub(crate) fn past_dir(&self, dir: Oid) -> Option<Arc<Attr>> {
        self.ttl?;
        self.dirs.get(&dir).map(|kept| kept.value.attr)
    }

    /// An engine has confirmed by what creations in a directory are judged. What is kept may have been
    /// asked for since that guess was made, and differ from it.
    pub(crate) fn confirm_dir(&self, asked: Asked, dir: Oid, guard: DirectoryGuard) {
        let _touching = self.touching[asked.counter % self.touching.len()].lock();
        if self.is_current(asked)
            && let Some(kept) = self.dirs.get(&dir)
            && kept.value.confirmed < asked.since
            && DirectoryGuard::of(&kept.value.attr) == guard
        {
            let value = KnownDir { confirmed: asked.since, ..kept.value };
            self.dirs.insert(dir, Kept { value, ..kept });
        }
    }

    /// To be called before a directory's attributes are asked for.
    pub(crate) fn ask_dir(&self, dir: Oid) -> Asked {
        self.asked(dir_counter(dir))
    }

    /// To be called before a question whose answer may bring the attributes of some directory.
    pub(crate) fn ask_any_dir(&self) -> AskedAny {
        AskedAny { changes: self.all_changes(), since: self.platform.now() }
    }

    fn all_changes(&self) -> u64 {
        let counters = self.changes.iter().map(|counter| counter.load(Ordering::SeqCst));
        counters.fold(0, u64::wrapping_add)
    }

    /// When it was asked for what an answer has turned out to be about, if nothing has changed since. `now`:
    /// as if it were asked for now.
    fn asked_of(&self, asked: AskedAny, now: Asked) -> Option<Asked> {
        let is_unchanged = self.all_changes() == asked.changes;
        is_unchanged.then_some(Asked { since: asked.since, ..now })
    }

    /// Keeps the attributes of a directory that was met.
    pub(crate) fn keep_met_dir(&self, asked: AskedAny, dir: Oid, attr: Box<Attr>) {
        if let Some(asked) = self.asked_of(asked, self.ask_dir(dir)) {
            self.keep_dir(asked, dir, &Arc::from(attr));
        }
    }

    /// Keeps a directory's attributes.
    pub(crate) fn keep_dir(&self, asked: Asked, dir: Oid, attr: &Arc<Attr>) {
        if self.is_current(asked) {
            let counter = asked.counter;
            let _touching = self.touching[counter % self.touching.len()].lock();
            if !self.is_current(asked) {
                return;
            }
            if self.dirs.get(&dir).is_some_and(|kept| kept.since > asked.since) {
                // An answer that was asked for later came sooner.
                return;
            }
            let value = KnownDir { attr: Arc::clone(attr), confirmed: asked.since };
            self.dirs.insert(dir, Kept { since: asked.since, value });
        }
    }

    /// What is known of a directory, to be shown, and for how much longer it may be believed.
    pub(crate) fn dir_with_age(&self, dir: Oid) -> Option<(Arc<Attr>, Duration)> {
        let ttl = self.ttl?;
        let kept = self.dirs.get(&dir)?;
        if self.has_aged(kept.since) {
            return None;
        }
        let left = ttl.checked_sub(self.platform.elapsed(kept.since))?;
        (!left.is_zero()).then_some((kept.value.attr, left))
    }

    /// This client made an entry, or removed one that is no directory, which gave the directory this
    /// time of last change and so many links more. What else is known of it stays true.
    pub(crate) fn touch_dir(&self, dir: Oid, changed: Timestamp, links: u32) {
        if self.ttl.is_none() {
            return;
        }
        let counter = dir_counter(dir);
        let _touching = self.touching[counter % self.touching.len()].lock();
        self.changes[counter].fetch_add(1, Ordering::SeqCst);
        let Some(kept) = self.dirs.get(&dir) else { return };
        let mut attr = touched(&kept.value.attr, changed);
        attr.nlink = attr.nlink.saturating_add(links);
        let attr = Arc::new(attr);
        let value = KnownDir { attr, ..kept.value };
        self.dirs.insert(dir, Kept { value, ..kept });
    }

    /// A directory's times or links have changed: what was known of it is a guess now.
    pub(crate) fn age_dir(&self, dir: Oid) {
        let Some(ttl) = self.ttl else { return };
        let counter = dir_counter(dir);
        let _touching = self.touching[counter % self.touching.len()].lock();
        self.changes[counter].fetch_add(1, Ordering::SeqCst);
        let Some(kept) = self.dirs.get(&dir) else { return };
        match self.platform.now().checked_sub(ttl) {
            Some(since) => {
                let value = KnownDir { confirmed: since, ..kept.value };
                self.dirs.insert(dir, Kept { since, value });
            }
            None => drop(self.dirs.remove(&dir)),
        }
    }

    /// A directory's attributes have changed, or it is gone.
    pub(crate) fn forget_dir(&self, dir: Oid) {
        if self.ttl.is_some() {
            let counter = dir_counter(dir);
            let _touching = self.touching[counter % self.touching.len()].lock();
            self.changes[counter].fetch_add(1, Ordering::SeqCst);
            self.dirs.remove(&dir);
        }
    }

    /// Something happened to directories whose ids are not at hand: one was moved or removed. What was
    /// known of them is a guess now.
    pub(crate) fn age_dirs(&self) {
        if self.ttl.is_none() {
            return;
        }
        for change in &self.changes {
            change.fetch_add(1, Ordering::SeqCst);
        }
        // After the counters: what was asked for before is not kept any more.
        self.aged_ns.fetch_max(self.since_start_ns(self.platform.now()) + 1, Ordering::SeqCst);
    }

    fn since_start_ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_nanos() as u64
    }

    fn has_aged(&self, since: Instant) -> bool {
        self.since_start_ns(since) < self.aged_ns.load(Ordering::SeqCst)
    }

    /// Where a name leads, if it is known to lead to a directory or symlink.
    pub(crate) fn step(&self, dir: Oid, name: &[u8]) -> Option<Step> {
        self.fresh_step(dir, name).map(|kept| kept.value)
    }

    fn fresh_step(&self, dir: Oid, name: &[u8]) -> Option<Kept<Step>> {
        self.ttl?;
        self.steps.get(&NameRef { dir, name }).filter(|kept| self.is_fresh(kept.since))
    }

    /// The directory to which a name leads, if that is known, and when it was asked for.
    pub(crate) fn directory(&self, dir: Oid, name: &[u8]) -> Option<(Oid, Instant)> {
        let kept = self.fresh_step(dir, name)?;
        match kept.value {
            Step::Directory(oid) => Some((oid, kept.since)),
            Step::Symlink(_) => None,
        }
    }

    /// Keeps what another client has been told of a name, before this one has changed anything.
    pub(crate) fn keep_handed_on(&self, since: Instant, (dir, name): (Oid, &[u8]), below: Oid) {
        let asked = Asked { since, ..self.ask_step(dir, name) };
        self.keep_step(asked, dir, name, Step::Directory(below));
    }

    /// The text of a symlink that is known to be there.
    pub(crate) fn text(&self, link: Oid) -> Option<Arc<[u8]>> {
        self.ttl?;
        self.texts.get(&link)
    }

    /// Keeps the text of a symlink.
    pub(crate) fn keep_text(&self, link: Oid, text: &Arc<[u8]>) {
        if self.ttl.is_some() {
            self.texts.insert(link, Arc::clone(text));
        }
    }

    /// To be called before a name is looked up.
    pub(crate) fn ask_step(&self, dir: Oid, name: &[u8]) -> Asked {
        self.asked(step_counter(dir, name))
    }

    /// Keeps where a name leads.
    pub(crate) fn keep_step(&self, asked: Asked, dir: Oid, name: &[u8], step: Step) {
        if self.is_current(asked) {
            let key = Name { dir, name: name.into() };
            self.steps.insert(key, Kept { since: asked.since, value: step });
        }
    }

    /// Keeps where a name leads that was met.
    pub(crate) fn keep_met_step(&self, asked: AskedAny, dir: Oid, name: &[u8], step: Step) {
        if let Some(asked) = self.asked_of(asked, self.ask_step(dir, name)) {
            self.keep_step(asked, dir, name, step);
        }
    }

    /// A name leads elsewhere, or nowhere, from now on.
    pub(crate) fn forget_step(&self, dir: Oid, name: &[u8]) {
        self.renew_step(dir, name, None);
    }

    /// A name leads elsewhere from now on: there, if it is said where and nothing else has happened to the
    /// name since that was asked for.
    pub(crate) fn renew_step(&self, dir: Oid, name: &[u8], new: Option<(Asked, Step)>) {
        if self.ttl.is_none() {
            return;
        }
        let before = self.changes[step_counter(dir, name)].fetch_add(1, Ordering::SeqCst);
        match new {
            Some((asked, value)) if asked.value == before => {
                let key = Name { dir, name: name.into() };
                self.steps.insert(key, Kept { since: asked.since, value });
            }
            _ => drop(self.steps.remove(&NameRef { dir, name })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn object(serial: u64) -> Oid {
        Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), serial)
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_kept() {
        let cache = DirCache::new(Some(Duration::from_secs(60)), azekura_platform::system());
        let asked = cache.ask_step(object(1), b"name");
        cache.forget_step(object(1), b"name");
        cache.keep_step(asked, object(1), b"name", Step::Directory(object(2)));
        assert!(cache.step(object(1), b"name").is_none());
        let asked = cache.ask_step(object(1), b"name");
        cache.keep_step(asked, object(1), b"name", Step::Directory(object(2)));
        assert!(
            matches!(cache.step(object(1), b"name"), Some(Step::Directory(oid)) if oid == object(2))
        );
        assert!(cache.step(object(2), b"name").is_none());
    }

    #[test]
    fn what_was_met_is_not_kept_after_any_change() {
        let cache = DirCache::new(Some(Duration::from_secs(60)), azekura_platform::system());
        let asked = cache.ask_any_dir();
        cache.forget_step(object(3), b"another");
        cache.keep_met_step(asked, object(1), b"name", Step::Directory(object(2)));
        assert!(cache.step(object(1), b"name").is_none());
        let asked = cache.ask_any_dir();
        cache.keep_met_step(asked, object(1), b"name", Step::Directory(object(2)));
        assert!(cache.step(object(1), b"name").is_some());
    }

    #[test]
    fn without_a_lifetime_nothing_is_kept() {
        let cache = DirCache::new(None, azekura_platform::system());
        let asked = cache.ask_step(object(1), b"name");
        cache.keep_step(asked, object(1), b"name", Step::Directory(object(2)));
        assert!(cache.step(object(1), b"name").is_none());
    }
}
