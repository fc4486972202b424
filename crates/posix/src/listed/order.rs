//! The order in which a program opens the files of a directory, and which come next in it. Owns what counts as
//! an order: that of the listing, of the names (`cat *`), of the numbers in them (`part9`, `part10`), or of the
//! inode numbers (`tar`).

use std::cmp::Ordering;
use std::collections::VecDeque;

use azekura_proto::Oid;
use azekura_proto::attr::FileKind;

use super::entry::Entry;

/// Files that were opened last. One of them that is opened again, as a header between sources is, says nothing of
/// the order.
const AGAIN_MAX: usize = 8;
/// So many files that were expected may be left out without an end to the order.
const LEFT_OUT_MAX: usize = 3;
/// The ways in which files can follow each other.
const ORDERS: [Order; 4] = [Order::Number, Order::Name, Order::NumberInName, Order::Listing];

/// A file of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedFile {
    pub(crate) name: Box<[u8]>,
    pub(crate) oid: Oid,
    /// Its length as the listing told it, in bytes; 0 if it did not.
    pub(crate) bytes: u64,
    cookie: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Number,
    Name,
    NumberInName,
    Listing,
}

/// How many opens up to the last one follow each other in each of the orders.
pub(super) type Runs = [u32; ORDERS.len()];

/// How files of a directory have been opened.
#[derive(Debug, Default)]
pub(super) struct FileOrder {
    last: Option<ListedFile>,
    /// The last ones, the latest at the end.
    recent: VecDeque<Oid>,
    runs: Runs,
    /// Those that come next, as far as they were asked for.
    expected: VecDeque<Oid>,
}

impl ListedFile {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            name: entry.name.clone(),
            oid: entry.oid,
            bytes: entry.seen.as_ref().map_or(0, |seen| seen.attr.size),
            cookie: entry.cookie,
        }
    }
}

impl Order {
    /// The files of these entries.
    fn sort<'e>(self, entries: impl Iterator<Item = &'e Entry>) -> Vec<ListedFile> {
        let files = entries.filter(|entry| entry.kind == FileKind::Regular).map(ListedFile::of);
        let mut files: Vec<ListedFile> = files.collect();
        files.sort_by(|one, other| self.compare_files(one, other));
        files
    }

    fn compare(self, entry: &Entry, file: &ListedFile) -> Ordering {
        match self {
            Self::Number => entry.oid.inode_number().cmp(&file.oid.inode_number()),
            Self::Name => entry.name.cmp(&file.name),
            Self::NumberInName => compare_by_numbers(&entry.name, &file.name),
            Self::Listing => entry.cookie.cmp(&file.cookie),
        }
    }

    fn compare_files(self, one: &ListedFile, other: &ListedFile) -> Ordering {
        match self {
            Self::Number => one.oid.inode_number().cmp(&other.oid.inode_number()),
            Self::Name => one.name.cmp(&other.name),
            Self::NumberInName => compare_by_numbers(&one.name, &other.name),
            Self::Listing => one.cookie.cmp(&other.cookie),
        }
    }
}

/// Names in the order of the numbers in them: `part9` before `part10`.
fn compare_by_numbers(one: &[u8], other: &[u8]) -> Ordering {
    let digits = |name: &[u8]| name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (mut left, mut right) = (one, other);
    loop {
        let (a, b) = (digits(left), digits(right));
        let order = if a > 0 && b > 0 {
            let value = |number: &[u8]| number.iter().position(|digit| *digit != b'0');
            let (x, y) = (&left[..a], &right[..b]);
            let x = &x[value(x).unwrap_or(a)..];
            let y = &y[value(y).unwrap_or(b)..];
            (left, right) = (&left[a..], &right[b..]);
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            let (Some(x), Some(y)) = (left.first(), right.first()) else { break };
            let order = x.cmp(y);
            (left, right) = (&left[1..], &right[1..]);
            order
        };
        if order.is_ne() {
            return order;
        }
    }
    // Of equal numbers the names themselves: `part1` and `part01` are two.
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Whether an entry is a file with contents: programs leave empty ones out (`tar`).
fn has_contents(entry: &Entry) -> bool {
    entry.kind == FileKind::Regular && entry.seen.as_ref().is_none_or(|seen| seen.attr.size > 0)
}

impl FileOrder {
    /// Somebody goes through the directory anew.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Files have been opened by name, up to this one.
    pub(super) fn begin_after(&mut self, last: ListedFile) {
        let recent = VecDeque::from([last.oid]);
        *self =
            Self { last: Some(last), recent, runs: [1; ORDERS.len()], expected: VecDeque::new() };
    }

    /// A file is opened, one of these entries. Tells how many opens now follow each other.
    pub(super) fn note<'e>(
        &mut self,
        entries: &(impl Iterator<Item = &'e Entry> + Clone),
        file: ListedFile,
    ) -> u32 {
        let again = self.recent.iter().position(|oid| *oid == file.oid);
        let is_again = again.and_then(|place| self.recent.remove(place)).is_some();
        if self.recent.len() == AGAIN_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(file.oid);
        if is_again {
            return self.run();
        }
        let place = self.expected.iter().take(LEFT_OUT_MAX + 1).position(|oid| *oid == file.oid);
        if let Some(place) = place {
            self.expected.drain(..=place);
            let best = self.best();
            self.runs[best] = self.runs[best].saturating_add(1);
        } else {
            self.expected.clear();
            for (order, run) in ORDERS.into_iter().zip(&mut self.runs) {
                let follows = follows(entries.clone(), order, self.last.as_ref(), &file);
                *run = if follows { run.saturating_add(1) } else { 0 };
            }
        }
        self.last = Some(file);
        self.run()
    }

    fn run(&self) -> u32 {
        self.runs[self.best()]
    }

    /// Of several orders that fit equally well the first.
    fn best(&self) -> usize {
        let longest = self.runs.iter().max();
        self.runs.iter().position(|run| Some(run) == longest).unwrap_or(0)
    }

    /// The next files in the order that fits best, without those that are wanted no more.
    pub(super) fn next<'e>(
        &self,
        entries: impl Iterator<Item = &'e Entry>,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<ListedFile> {
        let Some(last) = &self.last else { return Vec::new() };
        let order = ORDERS[self.best()];
        order.sort(entries.filter(|entry| order.compare(entry, last).is_gt() && is_wanted(entry)))
    }

    /// All files of another directory, if they are opened in the order of these, without those that are not wanted.
    pub(super) fn continued<'e>(
        &self,
        entries: impl Iterator<Item = &'e Entry>,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<ListedFile> {
        ORDERS[self.best()].sort(entries.filter(|entry| is_wanted(entry)))
    }

    /// This directory comes after another one: it is taken to be read in the order of that, unless it has one.
    pub(super) fn follow(&mut self, runs: Runs) {
        if self.last.is_none() {
            self.runs = runs;
        }
    }

    pub(super) fn runs(&self) -> Runs {
        self.runs
    }

    /// These come next, and have been asked for.
    pub(super) fn expect(&mut self, files: &[ListedFile]) {
        self.expected.extend(files.iter().map(|file| file.oid));
    }
}

/// Whether a file is the next one after the last, or the first of all where there is none.
fn follows<'e>(
    mut entries: impl Iterator<Item = &'e Entry>,
    order: Order,
    last: Option<&ListedFile>,
    file: &ListedFile,
) -> bool {
    let is_before = |entry: &Entry| order.compare(entry, file).is_lt();
    match last {
        None => !entries.any(|entry| has_contents(entry) && is_before(entry)),
        Some(last) => {
            let is_behind = |entry: &Entry| order.compare(entry, last).is_gt();
            let is_between = |entry: &Entry| is_behind(entry) && is_before(entry);
            order.compare_files(last, file).is_lt()
                && !entries.any(|entry| has_contents(entry) && is_between(entry))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let names = ["", "10", "a", "part", "part01", "part1", "part9", "part10", "part10a", "q1"];
        for (place, one) in names.iter().enumerate() {
            for (other_place, other) in names.iter().enumerate() {
                let order = compare_by_numbers(one.as_bytes(), other.as_bytes());
                assert_eq!(order, place.cmp(&other_place), "{one} and {other}");
            }
        }
        let long = [b'7'; 100];
        assert_eq!(compare_by_numbers(&long[1..], &long), Ordering::Less);
    }
}
