//! Files that are opened, leased and read before the program asks for them. Owns how many are worth that, by
//! what became of earlier ones, and how many bytes of them are kept. It asks nobody; for how long a file is
//! good is known to its leases.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::OpenReference;
use azekura_proto::{Attr, Oid};

use super::entry::{Entry, Stamp};
use super::order::ListedFile;
use super::paths::NameIn;
use crate::reader::{BROUGHT_BYTES_MAX, BroughtBytes, FILE_BYTES_MAX, FileReader, HELD_BYTES_MAX};

/// Files that are brought at first, and at most: as many as one exchange has room for beside the leases of
/// names at 16 targets.
pub(super) const FILES_FIRST: usize = 4;
const FILES_MAX: usize = 112;
/// Contents that are brought at a time, for each of the files, in bytes.
const BYTES_EACH: u64 = 1 << 20;
/// So many opens that follow each other make an order; where one was followed before, so many.
const RUN_FIRST: u32 = 2;
const RUN_TRUSTED: u32 = 1;
/// So many names that were opened one after the other make a directory worth being listed.
const UNLISTED_RUN: u32 = 3;
/// So often files may be brought in vain, and for how long none are brought then.
const IN_VAIN_MAX: u32 = 2;
const PAUSE: Duration = Duration::from_secs(5);
/// By so many opens it is known how fast the program goes on.
const PACE_OPENS: usize = 64;
/// For this part of the time at least a program is taken to have worked.
const WORKED_PART: u32 = 4;
/// No more files are brought than it opens in this time: while their leases hold.
const AHEAD: Duration = Duration::from_millis(700);

/// What became of files that were opened and read before the program asked for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Foreseen {
    /// Files that were brought.
    pub files: u64,
    /// Files of these that the program has opened.
    pub opened_files: u64,
    /// Bytes of contents that are kept now.
    pub held_bytes: u64,
    /// Bytes that the program has read.
    pub read_bytes: u64,
    /// Bytes that were thrown away unread.
    pub wasted_bytes: u64,
}

/// What bounds the files that are brought when one is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Their contents come to this at most, but for the first, in bytes.
    pub(crate) bytes_max: u64,
    /// For how long the program has waited so far: it could have gone on by so much faster.
    pub(crate) waited: Duration,
}

/// A file that nobody has asked for yet.
#[derive(Debug)]
pub(crate) struct BroughtFile {
    pub(crate) dir: Oid,
    pub(crate) name: Box<[u8]>,
    /// Until then the name stays, by the lease of the directory's shard.
    pub(crate) named_until: Instant,
    pub(crate) reference: OpenReference,
    /// Has the lease of the file's home.
    pub(crate) reader: Arc<FileReader>,
}

/// What is worth being asked for when a file is opened.
#[derive(Debug)]
pub(crate) enum Wanted {
    Nothing,
    /// The directory's listing, since files of it were opened by name, this one before.
    Listing(Box<[u8]>),
    /// These files of a directory; the one that is opened in front, unless it is here.
    Files {
        dir: Oid,
        files: Vec<ListedFile>,
    },
}

/// How many files are brought at a time.
#[derive(Debug, Default)]
struct Growth {
    /// As many as the last time; 0 at first.
    files: usize,
    /// What became of them since.
    used: usize,
    unused: usize,
    /// Of these, those whose time was over.
    late: usize,
    read_bytes: u64,
    wasted_bytes: u64,
    in_vain: u32,
    paused_until: Option<Instant>,
    /// Files that the last time were worth it, when there was room for them.
    chosen: usize,
}

/// How fast a program opens files: when it has, and for how long it had waited by then.
#[derive(Debug, Default)]
struct Pace(VecDeque<(Instant, Duration)>);

/// Names opened in a directory of which no listing is known.
#[derive(Debug, Default)]
struct Unlisted {
    dir: Option<Oid>,
    last: Box<[u8]>,
    run: u32,
    /// It is not listed again.
    is_tried: bool,
}

/// The files that were brought.
#[derive(Debug, Default)]
pub(super) struct BroughtFiles {
    files: Vec<(Stamp, BroughtFile)>,
    /// Files that somebody is asking for just now, beside the program.
    coming: Vec<NameIn>,
    pub(super) bytes: Arc<BroughtBytes>,
    growth: Growth,
    pace: Pace,
    unlisted: Unlisted,
    brought: u64,
    opened: u64,
}

impl Growth {
    fn is_trusted(&self) -> bool {
        self.files > FILES_FIRST
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// How many to bring now: twice as many as the last time if all of these were of use, as many as were
    /// if not all, and few if most were not. Those that came too late for their leases say nothing of the order.
    fn next(&mut self, now: Instant, bytes: &BroughtBytes) -> usize {
        let (read, wasted) = (bytes.read() - self.read_bytes, bytes.wasted() - self.wasted_bytes);
        let (used, unused, late) = (self.used, self.unused, self.late);
        let are_late = used > 0 && 2 * late > unused;
        if are_late {
            self.files = used;
        } else if unused > used || wasted > read {
            self.files = FILES_FIRST;
            self.in_vain += 1;
        } else if used > 0 {
            // Whether the contents are read may not have shown yet.
            let is_open = read == 0 && bytes.held() > 0;
            self.files = match unused {
                0 if is_open => self.files,
                0 => self.files * 2,
                _ => used,
            };
            self.in_vain = 0;
        }
        self.files = self.files.clamp(FILES_FIRST, FILES_MAX);
        (self.used, self.unused, self.late) = (0, 0, 0);
        (self.read_bytes, self.wasted_bytes) = (bytes.read(), bytes.wasted());
        if self.in_vain >= IN_VAIN_MAX {
            *self = Self { paused_until: Some(now + PAUSE), ..Self::begun_at(bytes) };
            return 0;
        }
        self.files
    }

    fn begun_at(bytes: &BroughtBytes) -> Self {
        Self { read_bytes: bytes.read(), wasted_bytes: bytes.wasted(), ..Self::default() }
    }
}

impl Pace {
    fn note(&mut self, now: Instant, waited: Duration) {
        if self.0.len() == PACE_OPENS {
            self.0.pop_front();
        }
        self.0.push_back((now, waited));
    }

    /// How many files it opens in a time, if it has to wait for none.
    fn files_in(&self, time: Duration) -> usize {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return 0 };
        let took = last.0.saturating_duration_since(first.0);
        // Of several programs each may have waited for all of the time.
        let worked = took.saturating_sub(last.1.saturating_sub(first.1)).max(took / WORKED_PART);
        let took = worked.max(Duration::from_micros(1));
        (time.as_secs_f64() * (self.0.len() - 1) as f64 / took.as_secs_f64()) as usize
    }
}

impl BroughtFiles {
    /// Takes those away that are good no more; dropping one may speak to an engine.
    pub(super) fn remove_old(
        &mut self,
        believes: impl Fn(Oid, Stamp) -> bool,
        now: Instant,
    ) -> Vec<BroughtFile> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let files = std::mem::take(&mut self.files);
        let is_good = |(stamp, file): &(Stamp, BroughtFile)| {
            believes(file.dir, *stamp) && now < file.named_until
        };
        let (kept, old): (Vec<_>, Vec<_>) = files.into_iter().partition(is_good);
        self.files = kept;
        self.growth.unused += old.len();
        self.growth.late += old.iter().filter(|(_, file)| now >= file.named_until).count();
        old.into_iter().map(|(_, file)| file).collect()
    }

    /// A file is opened by its name: takes it, if it was brought.
    pub(super) fn take(
        &mut self,
        dir: Oid,
        name: &[u8],
        (now, waited): (Instant, Duration),
    ) -> Option<BroughtFile> {
        self.pace.note(now, waited);
        let is_it = |(_, file): &(Stamp, BroughtFile)| file.dir == dir && *file.name == *name;
        let place = self.files.iter().position(is_it)?;
        self.growth.used += 1;
        self.opened += 1;
        Some(self.files.remove(place).1)
    }

    /// The attributes of a file that was brought, as its leases keep them.
    pub(super) fn attr(&self, dir: Oid, name: &[u8], now: Instant) -> Option<Attr> {
        let is_it = |(_, file): &&(Stamp, BroughtFile)| file.dir == dir && *file.name == *name;
        let (_, file) = self.files.iter().find(is_it)?;
        file.reader.attr().filter(|_| now < file.named_until)
    }

    /// Somebody begins to ask for these files, beside the program.
    pub(super) fn begin_bringing(&mut self, coming: Vec<NameIn>) {
        self.coming = coming;
    }

    /// That is over.
    pub(super) fn end_bringing(&mut self) {
        self.coming.clear();
    }

    /// Whether somebody asks for a file just now.
    pub(super) fn is_coming(&self, dir: Oid, name: &[u8]) -> bool {
        self.coming.iter().any(|(of, coming)| *of == dir && **coming == *name)
    }

    fn is_here(&self, oid: Oid) -> bool {
        self.files.iter().any(|(_, file)| file.reference.oid() == oid)
    }

    /// Whether a file may be brought, and neither was nor is open.
    pub(super) fn is_wanted(&self, entry: &Entry, is_open: impl Fn(Oid) -> bool) -> bool {
        !self.is_here(entry.oid) && !is_open(entry.oid)
    }

    /// Keeps files that have come, of so many that were asked for.
    pub(super) fn keep(&mut self, stamp: Stamp, asked: usize, files: Vec<BroughtFile>) {
        self.growth.unused += asked.saturating_sub(files.len());
        self.brought += files.len() as u64;
        self.files.extend(files.into_iter().map(|file| (stamp, file)));
    }

    /// Whether more files are worth being brought, after so many opens that follow each other.
    pub(super) fn are_worth_more(&self, run: u32, now: Instant) -> bool {
        let enough = if self.growth.is_trusted() { RUN_TRUSTED } else { RUN_FIRST };
        run >= enough && !self.growth.is_paused(now) && self.coming.is_empty()
    }

    /// Whether so few of these directories are left that it is time to ask for further ones: contents of those that are here
    /// keep the link busy meanwhile.
    pub(super) fn are_few(&self, dirs: &[Oid]) -> bool {
        let left = self.files.iter().filter(|(_, file)| dirs.contains(&file.dir)).count();
        left <= self.growth.chosen
    }

    /// Of files that could be brought next those that are. Their contents come to `bytes_max` at most, but
    /// for the first.
    pub(super) fn choose(
        &mut self,
        mut next: Vec<ListedFile>,
        bytes_max: u64,
        now: Instant,
    ) -> Vec<ListedFile> {
        let count = self.growth.next(now, &self.bytes);
        let pace = self.pace.files_in(AHEAD);
        // Of a slow program the next one at least, unless that is a long one.
        let count = count.min(pace.max(1));
        if pace == 0 && next.first().is_some_and(|file| file.bytes > FILE_BYTES_MAX) {
            next.clear();
        }
        let held_max = HELD_BYTES_MAX.saturating_sub(self.bytes.held());
        let at_once_max = (count as u64 * BYTES_EACH).min(BROUGHT_BYTES_MAX);
        let mut room = bytes_max.min(held_max).min(at_once_max);
        next.truncate(count);
        let fitting = next.iter().take_while(|file| {
            let fits = file.bytes <= room;
            room = room.saturating_sub(file.bytes);
            fits
        });
        let fitting = fitting.count().max(usize::from(held_max > 0));
        next.truncate(fitting);
        self.growth.chosen = next.len();
        next
    }

    /// A file of a directory is opened that no listing is known of.
    pub(super) fn note_unlisted(&mut self, dir: Oid, name: &[u8]) -> Wanted {
        let known = &mut self.unlisted;
        if known.dir != Some(dir) {
            *known = Unlisted { dir: Some(dir), ..Unlisted::default() };
        }
        if *name == *known.last {
            // A linker opens each file twice.
            return Wanted::Nothing;
        }
        known.run = if *name > *known.last { known.run + 1 } else { 1 };
        let last = std::mem::replace(&mut known.last, name.into());
        if known.run < UNLISTED_RUN || known.is_tried {
            return Wanted::Nothing;
        }
        known.is_tried = true;
        Wanted::Listing(last)
    }

    pub(super) fn counts(&self) -> Foreseen {
        Foreseen {
            files: self.brought,
            opened_files: self.opened,
            held_bytes: self.bytes.held(),
            read_bytes: self.bytes.read(),
            wasted_bytes: self.bytes.wasted(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_come_too_late_are_fewer_the_next_time_and_not_in_vain() {
        let (now, bytes) = (Instant::now(), BroughtBytes::default());
        let mut growth = Growth { files: 64, ..Growth::default() };
        for _ in 0..4 {
            (growth.used, growth.unused, growth.late) = (10, 54, 54);
            assert_eq!(growth.next(now, &bytes), 10);
        }
        for expected in [FILES_FIRST, 0] {
            (growth.used, growth.unused, growth.late) = (10, 54, 0);
            assert_eq!(growth.next(now, &bytes), expected, "others were opened than these");
        }
        assert!(growth.is_paused(now));
    }

    #[test]
    fn a_programs_pace_is_that_at_which_it_goes_on_by_itself() {
        let (begun, mut waits) = (Instant::now(), Pace::default());
        let (ms, at) = (Duration::from_millis, |count: u64| Duration::from_millis(100 * count));
        for open in 0..11 {
            waits.note(begun + at(open), at(open) / 2);
        }
        assert_eq!(waits.files_in(ms(1000)), 20, "half of the time it has waited");
        let (mut several, mut works) = (Pace::default(), Pace::default());
        for open in 0..11 {
            several.note(begun + at(open), at(open) * 3);
            works.note(begun + at(open), Duration::ZERO);
        }
        assert_eq!(works.files_in(ms(1000)), 10);
        assert_eq!(several.files_in(ms(1000)), 40, "three that wait are no faster than that");
    }
}
