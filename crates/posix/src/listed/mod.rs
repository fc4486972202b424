//! What listings of directories have brought along, for the looks that follow them: attributes by name,
//! and directories that were opened and listed beside the one that was asked for. Owns how long that is
//! believed, how much of it is kept, and what is worth asking for next. It never asks anybody, which
//! is the business of [`crate::ops::listed`], and it never knows anything of a name that no listing had.
//!
//! Where names are *leased* ([`Trust::Leased`]) nothing is believed of them but under leases of all names of their
//! directory, and then also that a name is not there.
//!
//! Nothing of it outlives a change by this client. Changes of names are counted ([`name_changes`]); those of a
//! file's data and attributes are counted by [`Changes`]. An answer is kept only if nothing was
//! changed since the question was asked, and believed only as long as that holds. Once the process has
//! children, which are clients of their own, nothing is kept any more: it would not see what they do.

mod directory;
mod entry;
mod files;
mod looked;
mod name_changes;
mod order;
mod paths;
mod relied;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura_client::OpenReference;
use azekura_platform::{SharedPlatform, Signal};
use azekura_proto::{Attr, FileKind, Oid};
use parking_lot::Mutex;

use crate::changes::{ChangeCounts, Changes};
use crate::reader::BroughtBytes;
pub(crate) use directory::Look;
use directory::{Directory, PAGE_ENTRIES, Page};
pub use entry::Listed;
use entry::{Entry, Seen, Stamp};
pub(crate) use entry::{Given, Part, PartOf};
use files::BroughtFiles;
pub use files::Foreseen;
pub(crate) use files::{Bounds, BroughtFile, Wanted};
pub(crate) use looked::FoundName;
use looked::Looked;
pub(crate) use name_changes::NameChange;
use name_changes::{NameChanges, Where};
pub(crate) use order::ListedFile;
pub(crate) use paths::NameIn;
use paths::Paths;
use relied::{Hint, ReliedWalks};

/// A way through directories that was taken no longer ago than this is asked for together with another one.
const BESIDE: Duration = Duration::from_secs(2);
/// A lease that is over sooner than this is renewed when there is an occasion to.
const RENEWED_BEFORE: Duration = Duration::from_millis(500);
/// Directories of more entries are listed again by themselves.
const RENEWED_ENTRIES_MAX: usize = 96;
/// For so long whoever opens a file waits for another one who asks for it: by then its leases are over.
const COMING_MAX: Duration = Duration::from_secs(1);
/// Entries kept, of all directories.
const ENTRIES_MAX: usize = 32 * 1024;

/// When something was asked: an answer from before an own change is not kept after it.
#[derive(Debug)]
pub(crate) struct Asked {
    stamp: Stamp,
    data: ChangeCounts,
}

/// Whether what listings have brought is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// For as long as directories are.
    ForAWhile,
    /// As long as that, and only under leases of all names.
    Leased,
}

/// A directory that was opened beside another one, and has not been asked for yet.
#[derive(Debug)]
struct Opened {
    seen: Seen,
    reference: OpenReference,
}

/// What listings have brought, of one file system.
#[derive(Debug)]
pub(crate) struct Listings {
    /// For how long it is believed; `None`: nothing is kept.
    ttl: Option<Duration>,
    trust: Trust,
    /// Only where a round trip takes at least so long.
    round_trip_min_us: u64,
    platform: SharedPlatform,
    changes: Arc<Changes>,
    name_changes: NameChanges,
    is_stopped: AtomicBool,
    known: Mutex<Known>,
    /// Files that somebody has asked for have come, or do not.
    arrived: Signal,
}

#[derive(Debug, Default)]
struct Known {
    directories: HashMap<Oid, Directory>,
    /// The directory in whose listing a directory was found.
    above: HashMap<Oid, Oid>,
    opened: Vec<Opened>,
    files: BroughtFiles,
    looked: Looked,
    paths: Paths,
    relied: ReliedWalks,
    /// Pages by their numbers, in the order in which they came: the directory, and the cookie after which
    /// they begin.
    pages: BTreeMap<u64, (Oid, u64)>,
    /// Pages that there have been.
    count: u64,
    entries: usize,
}

impl Known {
    fn remove(&mut self, number: u64) {
        let Some((dir, after)) = self.pages.remove(&number) else { return };
        let Some(directory) = self.directories.get_mut(&dir) else { return };
        let Some(page) = directory.remove(after) else { return };
        self.entries -= page.weight();
        for below in page.directories() {
            if self.above.get(&below) == Some(&dir) {
                self.above.remove(&below);
            }
        }
    }

    /// Puts a page in a place where there is none.
    fn insert(&mut self, dir: Oid, after: u64, mut page: Page) {
        self.count += 1;
        page.number = self.count;
        self.pages.insert(page.number, (dir, after));
        self.entries += page.weight();
        self.above.extend(page.directories().map(|below| (below, dir)));
        self.directories.entry(dir).or_default().insert(after, page);
        while self.entries > ENTRIES_MAX
            && let Some((&oldest, &(of, _))) = self.pages.first_key_value()
        {
            self.remove(oldest);
            if self.directories.get(&of).is_some_and(Directory::is_empty) {
                self.directories.remove(&of);
            }
        }
    }

    /// A directory that may have come along is used: that counts once.
    fn note_used(&mut self, dir: Oid) {
        if let Some(above) = self.above.get(&dir)
            && let Some(above) = self.directories.get_mut(above)
            && !above.was_entered(dir)
        {
            above.note_entered(dir, true);
        }
    }

    /// The first directory behind one of which files are worth being brought, once those of that one are here, and these
    /// files.
    fn files_of_next(
        &self,
        dir: Oid,
        is_open: impl Fn(Oid) -> bool,
    ) -> Option<(Oid, Vec<ListedFile>)> {
        let above = self.directories.get(self.above.get(&dir)?)?;
        let following = above.following(dir);
        if !self.files.are_few(&[&[dir], &*following].concat()) {
            return None;
        }
        let directory = self.directories.get(&dir)?;
        let is_wanted = |entry: &Entry| self.files.is_wanted(entry, &is_open);
        // One of which no listing has come may be the one that is wanted.
        let listed = |next| Some((next, self.directories.get(&next)?));
        following.into_iter().map_while(listed).find_map(|(next, listed)| {
            let files = directory.files_of_next(listed, is_wanted);
            (!files.is_empty()).then_some((next, files))
        })
    }

    /// Makes room for a part of a directory that has been listed anew.
    fn remove_part(&mut self, dir: Oid, after: u64, until: Option<u64>) {
        let pages = self.directories.get(&dir).map(|known| known.pages_in(after, until));
        for number in pages.unwrap_or_default() {
            self.remove(number);
        }
    }
}

impl Listings {
    /// Keeps what is believed for `ttl`, where a round trip takes at least `round_trip_min_us`.
    pub(crate) fn new(
        ttl: Option<Duration>,
        (trust, round_trip_min_us): (Trust, Option<u64>),
        platform: SharedPlatform,
        changes: Arc<Changes>,
    ) -> Self {
        let is_watched = changes.are_counted();
        Self {
            ttl: ttl.filter(|_| is_watched && round_trip_min_us.is_some()),
            trust,
            round_trip_min_us: round_trip_min_us.unwrap_or(u64::MAX),
            platform,
            changes,
            name_changes: NameChanges::default(),
            is_stopped: AtomicBool::new(false),
            known: Mutex::default(),
            arrived: Signal::new(),
        }
    }

    /// Whether anything may be kept for a pool; `far_us` tells how far it is, if that is as far as it is given.
    pub(crate) fn is_on(&self, far_us: impl FnOnce(u64) -> u64) -> bool {
        !self.is_stopped.load(Ordering::SeqCst) && self.is_for_far(far_us)
    }

    /// The same, whether or not anything may be kept by this process.
    pub(crate) fn is_for_far(&self, far_us: impl FnOnce(u64) -> u64) -> bool {
        self.ttl.is_some() && far_us(self.round_trip_min_us) >= self.round_trip_min_us
    }

    /// From now on others share what this process does: nothing is kept any more.
    pub(crate) fn stop(&self) {
        if self.ttl.is_some() && !self.is_stopped.swap(true, Ordering::SeqCst) {
            // What is dropped may speak to an engine, which needs no lock held.
            let known = std::mem::take(&mut *self.known.lock());
            drop(known);
        }
    }

    /// A change of names, of links or of extended attributes begins. What is asked for before it is over
    /// is not kept.
    pub(crate) fn change_names(&self) -> NameChange<'_> {
        self.name_changes.begin(Where::Anywhere)
    }

    /// The same of a change that makes a name in a directory, of which nothing is known of any other name or object.
    pub(crate) fn make_name(&self, dir: Oid) -> NameChange<'_> {
        self.name_changes.begin(Where::Made(dir))
    }

    /// The same of a change by which a name goes, or is moved from one directory to another; what it leads to may have
    /// other names elsewhere.
    pub(crate) fn move_name(&self, from: Oid, to: Oid) -> NameChange<'_> {
        self.name_changes.begin(Where::Moved(from, to))
    }

    /// Whether names are believed under leases alone.
    pub(crate) fn are_leased(&self) -> bool {
        self.trust == Trust::Leased
    }

    /// To be called before anything is asked for.
    pub(crate) fn ask(&self) -> Asked {
        self.ask_since(self.platform.now())
    }

    /// The same of what was asked for a while ago, when nobody here could change anything yet.
    pub(crate) fn ask_since(&self, since: Instant) -> Asked {
        let stamp = Stamp { since, name_changes: self.name_changes.count() };
        Asked { stamp, data: self.changes.counts() }
    }

    fn is_unchanged(&self, dir: Oid, stamp: Stamp) -> bool {
        self.name_changes.has_none_since(dir, stamp.name_changes)
    }

    fn is_fresh(&self, stamp: Stamp) -> bool {
        self.ttl.is_some_and(|ttl| self.platform.elapsed(stamp.since) < ttl)
    }

    fn believes(&self, dir: Oid, stamp: Stamp) -> bool {
        self.is_unchanged(dir, stamp) && self.is_fresh(stamp)
    }

    /// Whether the names of a page of a directory are believed.
    fn believes_names(&self, dir: Oid, page: &Page) -> bool {
        let is_leased = || page.leased_until.is_some_and(|until| self.platform.now() < until);
        self.believes(dir, page.stamp) && (self.trust == Trust::ForAWhile || is_leased())
    }

    /// Whether this client has changed neither the names of a directory nor an object in it since then.
    pub(crate) fn is_unchanged_since(&self, dir: Oid, object: Option<Oid>, asked: &Asked) -> bool {
        let is_unchanged = |oid| {
            self.is_unchanged(oid, asked.stamp)
                && self.changes.count_if_unchanged(oid, &asked.data).is_some()
        };
        self.may_keep(dir, asked) && object.is_none_or(is_unchanged)
    }

    fn may_keep(&self, dir: Oid, asked: &Asked) -> bool {
        self.ttl.is_some()
            && !self.is_stopped.load(Ordering::SeqCst)
            && self.is_unchanged(dir, asked.stamp)
    }

    /// Attributes as they were told, if this client has not changed the object since it asked.
    fn seen(&self, asked: &Asked, attr: Attr) -> Option<Seen> {
        let data_changes = self.changes.count_if_unchanged(attr.oid, &asked.data)?;
        Some(Seen { stamp: asked.stamp, data_changes, attr })
    }

    fn holds(&self, seen: &Seen) -> bool {
        // What has one name has it where that was found, and nothing was moved there; of another one it is not known
        // whether it was meant.
        let has_one_name = seen.attr.kind == FileKind::Directory || seen.attr.nlink <= 1;
        // Of a directory what is made in it counts.
        self.believes(seen.attr.oid, seen.stamp)
            && self.changes.now_of(seen.attr.oid) == seen.data_changes
            && (has_one_name || self.name_changes.has_no_move_since(seen.stamp.name_changes))
    }

    /// A name leads to a directory, as has been asked for.
    pub(crate) fn note_directory(&self, dir: Oid, name: &[u8], below: Oid) {
        let now = self.platform.now();
        self.known.lock().paths.note_directory(dir, name, below, now);
    }

    /// A name, and those that were looked up below it last, which are worth being asked for together.
    pub(crate) fn names_along(&self, dir: Oid, name: &[u8]) -> Vec<NameIn> {
        self.known.lock().paths.along(dir, name)
    }

    /// The names that were looked up below a directory last.
    pub(crate) fn names_below(&self, dir: Oid) -> Vec<NameIn> {
        self.known.lock().paths.below(dir)
    }

    /// The names of another path that goes on from the same directory, where somebody went a moment ago: what was told of
    /// them is soon no longer believed either.
    pub(crate) fn names_beside(&self, name: &NameIn) -> Vec<NameIn> {
        let Some(since) = self.platform.now().checked_sub(BESIDE) else { return Vec::new() };
        self.known.lock().paths.beside(name, since)
    }

    /// What a name leads to was told with another one.
    pub(crate) fn keep_told(&self, asked: &Asked, name: NameIn, attr: Attr) {
        if self.may_keep(name.0, asked)
            && let Some(seen) = self.seen(asked, attr)
        {
            self.known.lock().paths.keep_told(name, seen);
        }
    }

    /// What was told of a name with another one, and when that was asked for, if it is believed still.
    pub(crate) fn told(&self, dir: Oid, name: &[u8]) -> Option<(Box<Attr>, Instant)> {
        let mut known = self.known.lock();
        let holds = |seen: &Seen| self.is_unchanged(dir, seen.stamp) && self.holds(seen);
        let seen = known.paths.told(&(dir, name.into()), holds)?;
        Some((Box::new(seen.attr.clone()), seen.stamp.since))
    }

    /// Keeps a part of a directory.
    pub(crate) fn keep(&self, asked: &Asked, dir: Oid, part: Part) {
        let Part { mut after, until, entries, end, what, leased_until } = part;
        if !self.may_keep(dir, asked) {
            return;
        }
        let last = entries.last().map_or(after, |entry| entry.cookie);
        let mut known = self.known.lock();
        let replaced_until = if end { None } else { Some(until.unwrap_or(last)) };
        known.remove_part(dir, after, replaced_until);
        // What is leased again while somebody goes through it is no other walk.
        let is_begun = what == PartOf::Listing || what == PartOf::Gift && leased_until.is_none();
        if after == 0 && is_begun {
            known.directories.entry(dir).or_default().begin();
        }
        let mut rest = entries.into_iter().peekable();
        loop {
            let mut page = Page::new(asked.stamp, leased_until, what != PartOf::Gift);
            for entry in rest.by_ref().take(PAGE_ENTRIES) {
                page.push(entry, |attr| self.seen(asked, attr));
            }
            let next = page.last_cookie().unwrap_or(after);
            let is_last = rest.peek().is_none();
            page.is_end = end && is_last;
            known.insert(dir, after, page);
            if is_last {
                break;
            }
            after = next;
        }
    }

    /// What is known of a name, or what is worth asking for to know it. `is_again`: that has been asked for.
    pub(crate) fn look(&self, dir: Oid, name: &[u8], is_again: bool) -> Look {
        let _old;
        let mut known = self.known.lock();
        _old = self.remove_old_files(&mut known);
        if self.are_leased() {
            return self.look_under_lease(&mut known, (dir, name), is_again);
        }
        let Known { directories, looked, .. } = &mut *known;
        let Some(directory) = directories.get_mut(&dir).filter(|known| !known.is_empty()) else {
            let is_worth = !is_again && looked.note(dir, name, self.platform.now());
            return if is_worth { Look::Unlisted } else { Look::Unknown };
        };
        let (is_fresh, holds) = (|stamp| self.is_fresh(stamp), |seen: &Seen| self.holds(seen));
        let Some((after, page, place)) = directory.find(name) else { return Look::Unknown };
        if !self.is_unchanged(dir, page.stamp) {
            return Look::Unknown;
        }
        match page.look(after, place, is_fresh, holds) {
            Look::Old { .. } | Look::Incomplete(_) if is_again => Look::Unknown,
            look => {
                if matches!(look, Look::Known(..)) {
                    looked.note_found(dir);
                    known.note_used(dir);
                }
                look
            }
        }
    }

    /// The same, where nothing is believed but under leases.
    fn look_under_lease(
        &self,
        known: &mut Known,
        (dir, name): (Oid, &[u8]),
        is_again: bool,
    ) -> Look {
        let now = self.platform.now();
        let Known { directories, above, relied, .. } = known;
        let directory = directories.get_mut(&dir);
        match directory.and_then(|directory| self.leased_answer(directory, (dir, name))) {
            Some(answer @ (Look::Known(..) | Look::Absent)) => {
                relied.note_answered(dir, name, now);
                known.note_used(dir);
                answer
            }
            Some(look @ Look::Incomplete(_)) if !is_again => look,
            None if !is_again => {
                let is_changed = |page: &Page| !self.is_unchanged(dir, page.stamp);
                let is_void = directories.get(&dir).is_some_and(|known| known.is_whole(is_changed));
                let above = above.get(&dir).and_then(|above| directories.get(above));
                let is_followed = above.is_some_and(|above| above.is_followed(dir));
                let hint = Hint { is_void, is_followed };
                let is_worth = relied.note_asked(dir, name, now, hint);
                if is_worth { Look::Unlisted } else { Look::Unknown }
            }
            _ => Look::Unknown,
        }
    }

    /// What the lease of all names of a directory says of a name; `None` if there is none.
    fn leased_answer(&self, directory: &mut Directory, (dir, name): (Oid, &[u8])) -> Option<Look> {
        let Some((after, page, place)) = directory.find(name) else {
            let is_whole = directory.is_whole(|page| self.believes_names(dir, page));
            return is_whole.then_some(Look::Absent);
        };
        if !self.believes_names(dir, page) {
            return None;
        }
        let leased_until = page.leased_until;
        Some(match page.look(after, place, |_| true, |seen| self.holds(seen)) {
            Look::Known(attr, since) => Look::Known(attr, self.since_by_lease(since, leased_until)),
            look => look,
        })
    }

    /// Directories that are worth being listed again under leases together with another one: those that are looked at as
    /// well, with a lease that is about to be over or is so.
    pub(crate) fn worth_renewing(&self, dir: Oid) -> Vec<Oid> {
        if !self.are_leased() {
            return Vec::new();
        }
        let now = self.platform.now();
        let mut known = self.known.lock();
        let Known { directories, relied, .. } = &mut *known;
        relied.worth_renewing(dir, now, |of| {
            let lasts = |page: &Page| {
                self.believes_names(of, page)
                    && page.leased_until.is_some_and(|until| until > now + RENEWED_BEFORE)
            };
            directories.get(&of).is_some_and(|directory| {
                directory.entries() <= RENEWED_ENTRIES_MAX && !directory.is_whole(lasts)
            })
        })
    }

    /// Whether the directory above one, in which it stands, is worth being listed with it: names of directories are looked
    /// at one directory after the other, and where the next ones are is not known.
    pub(crate) fn is_above_wanted(&self, dir: Oid, above: Oid) -> bool {
        if self.are_leased() {
            return false;
        }
        let known = self.known.lock();
        let believes = |page: &Page| self.believes_names(above, page);
        let listed = known.directories.get(&above);
        known.looked.walks_on(dir) && !listed.is_some_and(|listed| listed.is_whole(believes))
    }

    /// No lease has been given of the names of a directory.
    pub(crate) fn note_refused(&self, dir: Oid) {
        self.known.lock().relied.note_refused(dir, self.platform.now());
    }

    /// Where a name leads, if it is believed to lead to a directory.
    pub(crate) fn directory(&self, dir: Oid, name: &[u8]) -> Option<Oid> {
        let mut known = self.known.lock();
        let (_, page, place) = known.directories.get_mut(&dir)?.find(name)?;
        if self.believes_names(dir, page) { page.directory_at(place) } else { None }
    }

    /// Attributes that listings of a directory had not brought have been asked for. `None`: the object is
    /// gone, or cannot be asked for.
    pub(crate) fn complete(&self, asked: &Asked, dir: Oid, answers: Vec<(Oid, Option<Attr>)>) {
        let mut known = self.known.lock();
        let Some(directory) = known.directories.get_mut(&dir) else { return };
        if self.may_keep(dir, asked) {
            let answers = answers.into_iter().map(|(oid, attr)| {
                let seen = attr.and_then(|attr| self.seen(asked, attr));
                (oid, seen)
            });
            directory.complete(answers.collect());
        }
    }

    /// Entries of a directory after a cookie that were brought along and that nobody has been given, with attributes if
    /// those are wanted. They are given once.
    pub(crate) fn take(&self, dir: Oid, after: u64, with_attrs: bool) -> Option<Given> {
        let mut known = self.known.lock();
        let page = known.directories.get_mut(&dir)?.page(after)?;
        if page.is_given || !self.believes_names(dir, page) {
            return None;
        }
        let leased_until = page.leased_until;
        let mut given = page.give(|seen| with_attrs && self.holds(seen));
        given.since = self.since_by_lease(given.since, leased_until);
        if let (true, Some(first)) = (with_attrs && self.are_leased(), given.entries.first()) {
            // Whoever gets attributes has no need to look: the lease was of use.
            known.relied.note_answered(dir, &first.name, self.platform.now());
        }
        known.note_used(dir);
        Some(given)
    }

    /// As if it had been asked for so early that it is believed for no longer than a lease holds.
    fn since_by_lease(&self, since: Instant, leased_until: Option<Instant>) -> Instant {
        let by_lease = leased_until.zip(self.ttl);
        let by_lease = by_lease.and_then(|(until, ttl)| until.checked_sub(ttl));
        by_lease.map_or(since, |by_lease| since.min(by_lease))
    }

    /// A directory that was opened beside another one.
    pub(crate) fn take_open(&self, dir: Oid) -> Option<azekura_client::Opened> {
        let (taken, _old);
        {
            let mut known = self.known.lock();
            _old = self.remove_old(&mut known);
            let place = known.opened.iter().position(|opened| opened.seen.attr.oid == dir)?;
            taken = known.opened.swap_remove(place);
            if let Some(above) = known.above.get(&dir).copied()
                && let Some(above) = known.directories.get_mut(&above)
            {
                above.note_entered(dir, true);
            }
        }
        Some((Box::new(taken.seen.attr), taken.reference))
    }

    /// Keeps a directory that was opened beside another one.
    pub(crate) fn keep_open(&self, asked: &Asked, attr: Attr, reference: OpenReference) {
        let _old;
        if self.may_keep(attr.oid, asked)
            && let Some(seen) = self.seen(asked, attr)
        {
            let mut known = self.known.lock();
            _old = self.remove_old(&mut known);
            known.opened.push(Opened { seen, reference });
        }
    }

    /// A file was found by its name.
    pub(crate) fn note_name(&self, oid: Oid, found: FoundName) {
        self.known.lock().looked.note_name(oid, found);
    }

    /// By what name a file was found last, or else a listing has it.
    pub(crate) fn name_of(&self, oid: Oid) -> Option<FoundName> {
        let known = self.known.lock();
        known.looked.name_of(oid).or_else(|| {
            let mut directories = known.directories.iter();
            directories.find_map(|(dir, directory)| {
                let name = directory.name_of(oid)?.into();
                Some(FoundName { dir: *dir, name, looked_up: None })
            })
        })
    }

    /// The attributes of a file that was brought, as they are now.
    pub(crate) fn brought_attr(&self, dir: Oid, name: &[u8]) -> Option<Attr> {
        let _old;
        let mut known = self.known.lock();
        _old = self.remove_old_files(&mut known);
        known.files.attr(dir, name, self.platform.now())
    }

    /// Something that was listed turns out to be gone, or to be elsewhere: nothing is believed that was
    /// listed before.
    pub(crate) fn doubt(&self) {
        drop(self.change_names());
    }

    /// A file is opened for reading: the file itself, if it was brought, and what is worth being asked for,
    /// within these bounds, and none that `is_open` says need not be asked for.
    pub(crate) fn open_file(
        &self,
        dir: Oid,
        name: &[u8],
        bounds: Bounds,
        is_open: impl Fn(Oid) -> bool,
    ) -> (Option<BroughtFile>, Wanted) {
        let _old;
        let now = self.platform.now();
        let mut known = self.known.lock();
        _old = self.remove_old_files(&mut known);
        let Known { directories, files, .. } = &mut *known;
        let here = files.take(dir, name, (now, bounds.waited));
        let Some(directory) = directories.get_mut(&dir) else {
            return (here, files.note_unlisted(dir, name));
        };
        let Some((file, run)) = directory.note_file(name) else { return (here, Wanted::Nothing) };
        if !files.are_worth_more(run, now) || here.is_some() && !files.are_few(&[dir]) {
            return (here, Wanted::Nothing);
        }
        let next = directory.next_files(|entry| files.is_wanted(entry, &is_open));
        if !next.is_empty() {
            let mut wanted = files.choose(next, bounds.bytes_max, now);
            directory.expect_files(&wanted);
            if here.is_none() && !wanted.is_empty() {
                wanted.insert(0, file);
            }
            return (here, Wanted::Files { dir, files: wanted });
        }
        // All of them are here, so the link has time for those of the next directory.
        let runs = directory.runs();
        let next = here.as_ref().and_then(|_| known.files_of_next(dir, &is_open));
        let Some((dir, next)) = next else { return (here, Wanted::Nothing) };
        let Known { directories, files, .. } = &mut *known;
        let wanted = files.choose(next, bounds.bytes_max, now);
        if let Some(directory) = directories.get_mut(&dir) {
            directory.follow(runs);
            directory.expect_files(&wanted);
        }
        (here, Wanted::Files { dir, files: wanted })
    }

    /// Somebody begins to ask for files of a directory, beside the program that goes on.
    pub(crate) fn begin_bringing(&self, coming: Vec<NameIn>) {
        self.known.lock().files.begin_bringing(coming);
    }

    /// They are here, or will not come.
    pub(crate) fn end_bringing(&self) {
        self.known.lock().files.end_bringing();
        self.arrived.notify_all();
    }

    /// Waits for a file that somebody is asking for: to ask for it once more would take no less time.
    pub(crate) fn wait_for_coming(&self, dir: Oid, name: &[u8]) {
        let mut known = self.known.lock();
        let mut deadline = None;
        while known.files.is_coming(dir, name) {
            let deadline = *deadline.get_or_insert_with(|| self.platform.now() + COMING_MAX);
            if self.arrived.wait_until(&*self.platform, &mut known, deadline) {
                // In a forked child nobody asks any more.
                known.files.end_bringing();
            }
        }
    }

    /// Takes files away that are good no more; dropping one may speak to an engine.
    fn remove_old_files(&self, known: &mut Known) -> Vec<BroughtFile> {
        known.files.remove_old(|dir, stamp| self.believes(dir, stamp), self.platform.now())
    }

    /// The directory has been listed because files of it were opened one after the other, up to this one.
    pub(crate) fn begin_files_after(&self, dir: Oid, name: &[u8]) {
        if let Some(directory) = self.known.lock().directories.get_mut(&dir) {
            directory.begin_files_after(name);
        }
    }

    /// Keeps files that have come, of so many that were asked for.
    pub(crate) fn keep_files(
        &self,
        (dir, asked): (Oid, &Asked),
        count: usize,
        files: Vec<BroughtFile>,
    ) {
        if self.may_keep(dir, asked) {
            self.known.lock().files.keep(asked.stamp, count, files);
        }
    }

    /// Where the bytes of files that are brought are counted.
    pub(crate) fn brought_bytes(&self) -> Arc<BroughtBytes> {
        Arc::clone(&self.known.lock().files.bytes)
    }

    /// What became of files that were brought.
    pub(crate) fn foreseen(&self) -> Foreseen {
        self.known.lock().files.counts()
    }

    /// Takes those away that are believed no more; dropping one may speak to an engine.
    fn remove_old(&self, known: &mut Known) -> Vec<Opened> {
        let (kept, old) =
            std::mem::take(&mut known.opened).into_iter().partition(|o| self.holds(&o.seen));
        known.opened = kept;
        old
    }

    /// The directories that are worth being brought along with one that is opened and listed now: none
    /// for the first of its siblings, then ever more, as long as they are used.
    pub(crate) fn beside(&self, dir: Oid) -> Vec<Oid> {
        let mut known = self.known.lock();
        let Known { directories, above, opened, .. } = &mut *known;
        let Some(above) = above.get(&dir).and_then(|above| directories.get_mut(above)) else {
            return Vec::new();
        };
        above.beside(dir, |oid| opened.iter().any(|opened| opened.seen.attr.oid == oid))
    }
}

#[cfg(test)]
mod tests;
