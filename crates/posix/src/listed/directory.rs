//! What is known of one directory by its listings: pages of entries, and how its names are looked at. Owns
//! what looks like a walk, for which more is worth asking than for a single look.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Instant;

use azekura_proto::attr::FileKind;
use azekura_proto::{Attr, Oid};

use super::entry::{Entry, Given, Listed, Seen, Stamp};
use super::order::{FileOrder, ListedFile, Runs};

/// Entries whose attributes are asked for anew together.
pub(super) const PAGE_ENTRIES: usize = 256;
/// So many looks at different names of a page are a walk.
pub(super) const WALK_LOOKS: u32 = 3;
/// Attributes that are asked for together where a listing had not brought them.
const MISSING_MAX: usize = 128;
/// Directories brought along with the second one that is opened, and at most.
pub(super) const BESIDE_FIRST: usize = 4;
pub(super) const BESIDE_MAX: usize = 32;
/// So often they may be brought in vain; after so many further ones that are opened it is tried again.
const IN_VAIN_MAX: u32 = 2;
const TRIED_AGAIN_AFTER: u32 = 4;
/// Directories by which the order is known in which a program opens them.
const LAST_ENTERED: usize = 16;
/// So many are remembered as having been opened: a mount lives long, and they may be gone.
const ENTERED_MAX: usize = 16 * 1024;
/// So many steps in one order tell whose files come next: one may be chance, and files are more than a listing.
const FOLLOWING_STEPS: usize = 2;
/// So many of those that come next are looked at for files that are worth being brought, in directories of at most so many
/// entries: that is done while a program waits.
const FOLLOWING_MAX: usize = 4;
const FOLLOWED_ENTRIES_MAX: usize = 2048;

/// What a look at a name comes to.
#[derive(Debug)]
pub(crate) enum Look {
    /// The name is to be looked up by itself.
    Unknown,
    /// It has these attributes, which were asked for then.
    Known(Box<Attr>, Instant),
    /// It is not there, as long as a lease of all names holds.
    Absent,
    /// It belongs to a walk through a directory that is worth being listed.
    Unlisted,
    /// It belongs to a walk: this part of the directory is worth being listed again.
    Old {
        /// The cookie after which the part begins.
        after: u64,
        /// The cookie with which it ends; `None`: with the directory.
        until: Option<u64>,
        /// Bytes of its names.
        name_bytes: usize,
        /// How many there are.
        entries: usize,
    },
    /// It belongs to a walk: the attributes of these objects are worth being asked for.
    Incomplete(Vec<Oid>),
}

/// Entries that follow each other in a directory.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) number: u64,
    pub(super) stamp: Stamp,
    /// Until when its names stay so, by leases.
    pub(super) leased_until: Option<Instant>,
    entries: Vec<Entry>,
    pub(super) is_end: bool,
    /// Whoever lists the directory has got the entries.
    pub(super) is_given: bool,
    /// Looks since the page came, each at another name than the one before.
    looks: u32,
    last: Option<usize>,
}

impl Page {
    pub(super) fn new(stamp: Stamp, leased_until: Option<Instant>, is_given: bool) -> Self {
        Self {
            number: 0,
            stamp,
            leased_until,
            entries: Vec::new(),
            is_end: false,
            is_given,
            looks: 0,
            last: None,
        }
    }

    pub(super) fn push(&mut self, entry: Listed, see: impl FnOnce(Attr) -> Option<Seen>) {
        let Listed { name, oid, kind, cookie, attr } = entry;
        let (name, seen) = (name.into_boxed_slice(), attr.and_then(see));
        self.entries.push(Entry { name, oid, kind, cookie, seen, is_lost: false });
    }

    /// How much room it takes, in entries.
    pub(super) fn weight(&self) -> usize {
        1 + self.entries.len()
    }

    pub(super) fn last_cookie(&self) -> Option<u64> {
        self.entries.last().map(|entry| entry.cookie)
    }

    /// The directories among the entries.
    pub(super) fn directories(&self) -> impl Iterator<Item = Oid> + '_ {
        let found = self.entries.iter().filter(|entry| entry.kind == FileKind::Directory);
        found.map(|entry| entry.oid)
    }

    pub(super) fn directory_at(&self, place: usize) -> Option<Oid> {
        let entry = self.entries.get(place)?;
        (entry.kind == FileKind::Directory).then_some(entry.oid)
    }

    /// A look at an entry of the page that begins after a cookie.
    pub(super) fn look(
        &mut self,
        after: u64,
        place: usize,
        is_fresh: impl Fn(Stamp) -> bool,
        holds: impl Fn(&Seen) -> bool,
    ) -> Look {
        if self.last != Some(place) {
            self.last = Some(place);
            self.looks += 1;
        }
        let is_walk = self.looks >= WALK_LOOKS;
        if !is_fresh(self.stamp) {
            if !is_walk {
                return Look::Unknown;
            }
            let until = self.last_cookie().filter(|_| !self.is_end);
            let name_bytes = self.entries.iter().map(|entry| entry.name.len()).sum();
            return Look::Old { after, until, name_bytes, entries: self.entries.len() };
        }
        let misses = |entry: &Entry| !entry.seen.as_ref().is_some_and(&holds);
        let Some(entry) = self.entries.get(place) else { return Look::Unknown };
        match &entry.seen {
            Some(seen) if holds(seen) => {
                // Attributes may be younger than the listing that had the name.
                let since = self.stamp.since.min(seen.stamp.since);
                Look::Known(Box::new(seen.attr.clone()), since)
            }
            _ if !is_walk || entry.is_lost => Look::Unknown,
            _ => {
                let rest = self.entries[place..].iter().filter(|e| !e.is_lost && misses(e));
                Look::Incomplete(rest.take(MISSING_MAX).map(|entry| entry.oid).collect())
            }
        }
    }

    /// The entries, for whoever lists the directory, with the attributes that hold.
    pub(super) fn give(&mut self, holds: impl Fn(&Seen) -> bool) -> Given {
        self.is_given = true;
        let mut since = self.stamp.since;
        let entries = self.entries.iter().map(|entry| {
            let seen = entry.seen.as_ref().filter(|seen| holds(seen));
            since = seen.map_or(since, |seen| since.min(seen.stamp.since));
            Listed {
                name: entry.name.to_vec(),
                oid: entry.oid,
                kind: entry.kind,
                cookie: entry.cookie,
                attr: seen.map(|seen| seen.attr.clone()),
            }
        });
        Given { entries: entries.collect(), end: self.is_end, since }
    }
}

/// How many directories are brought along when one is opened, and what became of them.
#[derive(Debug, Default)]
struct Beside {
    next: usize,
    brought: usize,
    used: usize,
    in_vain: u32,
    /// Since it was in vain for the last time.
    without: u32,
}

/// What is known of a directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// By the cookie after which they begin.
    pages: BTreeMap<u64, Page>,
    /// The page and the place in it where a name stands.
    names: HashMap<Box<[u8]>, (u64, usize)>,
    /// Directories below that have been opened since it was listed.
    entered: HashSet<Oid>,
    /// The last of them, in the order in which that was.
    last_entered: VecDeque<Oid>,
    beside: Beside,
    files: FileOrder,
}

impl Directory {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many entries are known.
    pub(super) fn entries(&self) -> usize {
        self.pages.values().map(|page| page.entries.len()).sum()
    }

    /// Somebody lists it from the start: what was learned is of an earlier walk.
    pub(super) fn begin(&mut self) {
        self.begin_walk();
        self.files.begin();
    }

    fn begin_walk(&mut self) {
        self.entered.clear();
        self.last_entered.clear();
        self.beside = Beside::default();
    }

    pub(super) fn insert(&mut self, after: u64, page: Page) {
        for (place, entry) in page.entries.iter().enumerate() {
            self.names.insert(entry.name.clone(), (after, place));
        }
        self.pages.insert(after, page);
    }

    pub(super) fn remove(&mut self, after: u64) -> Option<Page> {
        let page = self.pages.remove(&after)?;
        for (place, entry) in page.entries.iter().enumerate() {
            if self.names.get(&entry.name) == Some(&(after, place)) {
                self.names.remove(&entry.name);
            }
        }
        Some(page)
    }

    /// The numbers of the page that begins after a cookie, and of those that begin between that one and
    /// another.
    pub(super) fn pages_in(&self, after: u64, until: Option<u64>) -> Vec<u64> {
        let pages = self.pages.range(after..);
        let is_in = |at: u64| at == after || until.is_none_or(|until| at < until);
        pages.take_while(|(at, _)| is_in(**at)).map(|(_, page)| page.number).collect()
    }

    pub(super) fn page(&mut self, after: u64) -> Option<&mut Page> {
        self.pages.get_mut(&after)
    }

    /// The page that has a name, with the cookie after which it begins, and the name's place in it.
    pub(super) fn find(&mut self, name: &[u8]) -> Option<(u64, &mut Page, usize)> {
        let (after, place) = *self.names.get(name)?;
        Some((after, self.pages.get_mut(&after)?, place))
    }

    /// Whether all its names are known, by pages that are good.
    pub(super) fn is_whole(&self, is_good: impl Fn(&Page) -> bool) -> bool {
        let mut after = 0;
        for (at, page) in &self.pages {
            if *at != after || !is_good(page) {
                return false;
            }
            if page.is_end {
                return true;
            }
            let Some(last) = page.last_cookie() else { return false };
            after = last;
        }
        false
    }

    fn file(&mut self, name: &[u8]) -> Option<ListedFile> {
        let (_, page, place) = self.find(name)?;
        let entry = page.entries.get(place)?;
        (entry.kind == FileKind::Regular).then(|| ListedFile::of(entry))
    }

    /// The name of a file.
    pub(super) fn name_of(&self, oid: Oid) -> Option<&[u8]> {
        let mut entries = self.pages.values().flat_map(|page| &page.entries);
        entries.find(|entry| entry.oid == oid).map(|entry| &*entry.name)
    }

    /// A file is opened by its name. Gives it, and how many opens follow each other in some order.
    pub(super) fn note_file(&mut self, name: &[u8]) -> Option<(ListedFile, u32)> {
        let file = self.file(name)?;
        let Self { pages, files, .. } = self;
        let entries = pages.values().flat_map(|page| &page.entries);
        let run = files.note(&entries, file.clone());
        Some((file, run))
    }

    /// Files were opened one after the other, up to this one, before the directory was known.
    pub(super) fn begin_files_after(&mut self, name: &[u8]) {
        if let Some(last) = self.file(name) {
            self.files.begin_after(last);
        }
    }

    /// The files that come next in the order in which they are opened, if they are wanted by what is known
    /// of them.
    pub(super) fn next_files(&self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<ListedFile> {
        self.files.next(self.pages.values().flat_map(|page| &page.entries), is_wanted)
    }

    /// The files of a directory that comes after this one, if they are wanted by what is known of them.
    pub(super) fn files_of_next(
        &self,
        next: &Self,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<ListedFile> {
        self.files.continued(next.pages.values().flat_map(|page| &page.entries), is_wanted)
    }

    /// How its files have been opened.
    pub(super) fn runs(&self) -> Runs {
        self.files.runs()
    }

    /// Files of it have been asked for while those of a directory before it are read so.
    pub(super) fn follow(&mut self, runs: Runs) {
        self.files.follow(runs);
    }

    /// These have been asked for.
    pub(super) fn expect_files(&mut self, files: &[ListedFile]) {
        self.files.expect(files);
    }

    /// Takes in what was asked for by object.
    pub(super) fn complete(&mut self, mut answers: HashMap<Oid, Option<Seen>>) {
        for entry in self.pages.values_mut().flat_map(|page| &mut page.entries) {
            if let Some(seen) = answers.remove(&entry.oid) {
                entry.is_lost = seen.is_none();
                entry.seen = seen;
            }
        }
    }

    /// Whether a directory below has been opened.
    pub(super) fn was_entered(&self, below: Oid) -> bool {
        self.entered.contains(&below)
    }

    /// A directory below was opened, `was_brought` if it had been brought along.
    pub(super) fn note_entered(&mut self, below: Oid, was_brought: bool) {
        if self.entered.len() == ENTERED_MAX {
            self.begin_walk();
        }
        self.beside.used += usize::from(was_brought);
        self.entered.insert(below);
        if self.last_entered.back() != Some(&below) {
            self.last_entered.push_back(below);
        }
        if self.last_entered.len() > LAST_ENTERED {
            self.last_entered.pop_front();
        }
    }

    /// The directories that come next after the one that was entered last, as far as files of theirs are worth a look.
    pub(super) fn following(&self, below: Oid) -> Vec<Oid> {
        if self.last_entered.back() != Some(&below) || self.entries() > FOLLOWED_ENTRIES_MAX {
            return Vec::new();
        }
        let rest = self.next_in_order(FOLLOWING_STEPS).unwrap_or_default().into_iter();
        rest.filter(|oid| !self.entered.contains(oid)).take(FOLLOWING_MAX).collect()
    }

    /// Whether a directory below is likely to be gone through as a whole: most of those that were brought along for
    /// somebody who goes from one directory to the next have been entered.
    pub(super) fn is_followed(&self, below: Oid) -> bool {
        let Beside { brought, used, .. } = self.beside;
        !self.entered.contains(&below) && brought > 0 && 2 * used >= brought
    }

    /// The directories that come next after one, as many as it seems worth to bring: none unless those that
    /// were opened last follow each other in some order, and none for a while once that was in vain twice.
    pub(super) fn beside(&mut self, below: Oid, is_here: impl Fn(Oid) -> bool) -> Vec<Oid> {
        if self.entered.contains(&below) && self.last_entered.back() != Some(&below) {
            // It is gone through once more.
            self.begin_walk();
        }
        self.note_entered(below, false);
        let Some(rest) = self.next_in_order(1) else { return Vec::new() };
        let Beside { next, brought, used, in_vain, without } = &mut self.beside;
        if *used == 0 && *brought > 0 {
            (*next, *in_vain) = (0, *in_vain + 1);
        } else if 2 * *used < *brought {
            // Whoever is slow comes to few of them while they are believed.
            *next = *used;
        }
        if *in_vain == IN_VAIN_MAX {
            *without += 1;
            if *without > TRIED_AGAIN_AFTER {
                // It may have been slow, not elsewhere.
                (*next, *in_vain, *without) = (1, IN_VAIN_MAX - 1, 0);
            }
        }
        let next_wanted = if *next == 0 { BESIDE_FIRST } else { *next };
        let wanted = if *in_vain < IN_VAIN_MAX { next_wanted } else { 0 };
        *next = (wanted * 4).min(BESIDE_MAX);
        let is_wanted = |oid: &Oid| !self.entered.contains(oid) && !is_here(*oid);
        let found: Vec<Oid> = rest.into_iter().filter(is_wanted).take(wanted).collect();
        (*brought, *used) = (found.len(), 0);
        found
    }

    /// The directories that come next in the order in which those that were opened last follow each other:
    /// that of the listing, of the names (`ls`), or of the inode numbers (`tar`); `None` if so many last steps do not.
    fn next_in_order(&self, steps_min: usize) -> Option<Vec<Oid>> {
        let entries = self.pages.values().flat_map(|page| &page.entries);
        let mut dirs: Vec<_> = entries.filter(|e| e.kind == FileKind::Directory).collect();
        let listed: Vec<Oid> = dirs.iter().map(|entry| entry.oid).collect();
        dirs.sort_by(|one, other| one.name.cmp(&other.name));
        let by_name: Vec<Oid> = dirs.iter().map(|entry| entry.oid).collect();
        let mut by_number = listed.clone();
        by_number.sort_by_key(|oid| oid.inode_number());
        // Of several orders that fit equally well the first.
        let orders = [by_number, by_name, listed].into_iter();
        let (steps, at, order) = orders
            .filter_map(|order| {
                let (steps, at) = self.steps_along(&order)?;
                Some((steps, at, order))
            })
            .max_by_key(|(steps, ..)| *steps)?;
        (steps >= steps_min).then(|| order[at + 1..].to_vec())
    }

    /// How many of the last steps from directory to directory went along an order, and to which place.
    fn steps_along(&self, order: &[Oid]) -> Option<(usize, usize)> {
        let last = *self.last_entered.back()?;
        let end = order.iter().position(|oid| *oid == last)?;
        let before = self.last_entered.iter().rev().skip(1);
        let behind = order[..end].iter().rev();
        Some((before.zip(behind).take_while(|(one, other)| one == other).count(), end))
    }
}
