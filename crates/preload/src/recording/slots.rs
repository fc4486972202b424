//! What descriptor numbers stand for, as far as recording goes. Owns, for each number, the file's entry and
//! where the kernel's position would be after the calls that hooks have seen: what it is further is what the
//! C library has done by itself. A number is looked at when it is first used, so that inherited ones and
//! those from calls without a hook are learned alike.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use azekura_proto::recording::layout::file;
use rustix::fs::{FileType, OFlags, SeekFrom};

use super::area::Entry;
use super::files::{self, Name};
use crate::stdio::Stream;

/// Numbers from here on are not recorded.
const NUMBERS_MAX: usize = 1 << 14;

/// No position is known.
pub(super) const NOWHERE: u64 = u64::MAX;

const UNKNOWN: *mut AtomicU64 = std::ptr::null_mut();
/// What stands for a descriptor that is none of a regular file, or not to be recorded.
#[unsafe(link_section = ".data.hot")]
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Writes go to the end.
pub(super) const APPENDS: u32 = 1;
/// It was opened to write only.
pub(super) const WRITES: u32 = 2;
/// It was opened to read and write.
pub(super) const BOTH: u32 = 4;
/// Records of a stream on it were seen.
pub(super) const HAS_STREAM: u32 = 8;
/// Other processes may move its position.
const SHARED: u32 = 16;
/// Another number of this process may move its position.
const DUPLICATED: u32 = 32;

/// One number.
pub(super) struct Slot {
    file: AtomicPtr<AtomicU64>,
    /// Where the kernel's position is after all that was seen.
    pub(super) position: AtomicU64,
    /// Where the last request of each direction has ended.
    pub(super) next: [AtomicU64; 2],
    /// The stream on it.
    pub(super) stream: AtomicPtr<std::ffi::c_void>,
    /// What it was opened for.
    pub(super) flags: AtomicU32,
}

/// The numbers of nearly all programs.
#[unsafe(link_section = ".data.hot")]
static FIRST: [Slot; 16] = [const { Slot::new() }; 16];
/// All others; the first ones are not used.
static SLOTS: [Slot; NUMBERS_MAX] = [const { Slot::new() }; NUMBERS_MAX];

/// The highest number that was ever looked at.
#[unsafe(link_section = ".data.hot")]
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            file: AtomicPtr::new(UNKNOWN),
            position: AtomicU64::new(0),
            next: [const { AtomicU64::new(0) }; 2],
            stream: AtomicPtr::new(std::ptr::null_mut()),
            flags: AtomicU32::new(0),
        }
    }

    /// The file's entry, if it is known and recorded.
    pub(super) fn entry(&self) -> Option<Entry> {
        let start = self.file.load(Ordering::Acquire);
        if start == UNKNOWN || std::ptr::eq(start, &raw const IGNORED) {
            return None;
        }
        // SAFETY: anything else is the start of a file's entry in a mapping that stays.
        Some(unsafe { std::slice::from_raw_parts(start, file::WORDS) })
    }

    /// Whether one of the marks was set.
    pub(super) fn has(&self, mark: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & mark != 0
    }

    /// Whether its position may be moved by somebody else.
    pub(super) fn is_shared(&self) -> bool {
        self.has(SHARED | DUPLICATED)
    }

    /// Other processes may move its position from now on.
    pub(super) fn share(&self) {
        self.flags.fetch_or(SHARED, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.file.store(UNKNOWN, Ordering::Relaxed);
        self.stream.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    fn copy(&self, from: &Self) {
        for (to, from) in [
            (&self.position, &from.position),
            (&self.next[0], &from.next[0]),
            (&self.next[1], &from.next[1]),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let flags = from.flags.load(Ordering::Relaxed) & !HAS_STREAM;
        self.flags.store(flags, Ordering::Relaxed);
        self.stream.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.file.store(from.file.load(Ordering::Relaxed), Ordering::Release);
    }
}

fn slot(fd: c_int) -> Option<&'static Slot> {
    let number = usize::try_from(fd).ok()?;
    FIRST.get(number).or_else(|| SLOTS.get(number))
}

/// The kernel's position of a descriptor.
pub(super) fn kernel_position(fd: c_int) -> u64 {
    // SAFETY: a number that is not open fails in the kernel.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::seek(fd, SeekFrom::Current(0)).unwrap_or(NOWHERE)
}

/// The slot of a number that is recorded, and the file's entry; the number is looked at if it was not yet.
pub(super) fn recorded(fd: c_int) -> Option<(&'static Slot, Entry)> {
    let slot = slot(fd)?;
    if slot.file.load(Ordering::Acquire) == UNKNOWN {
        look_at(fd, slot, None, false, None);
    }
    Some((slot, slot.entry()?))
}

/// As [`recorded`], for a number that was looked at before.
pub(super) fn known(fd: c_int) -> Option<(&'static Slot, Entry)> {
    let slot = slot(fd)?;
    Some((slot, slot.entry()?))
}

/// All numbers that are recorded.
pub(super) fn all() -> impl Iterator<Item = (c_int, &'static Slot, Entry)> {
    (0..=HIGHEST.load(Ordering::Relaxed)).filter_map(|fd| {
        let (slot, entry) = known(fd)?;
        Some((fd, slot, entry))
    })
}

/// Whether a file is open that is recorded.
pub(crate) fn has_files() -> bool {
    all().next().is_some()
}

/// A number was opened by a hook just now; gives the file's entry if it is recorded.
pub(super) fn opened(fd: c_int, name: Name<'_>, is_new: bool, flags: c_int) -> Option<Entry> {
    let slot = slot(fd)?;
    look_at(fd, slot, name, is_new, Some(flags));
    slot.entry()
}

fn look_at(fd: c_int, slot: &Slot, name: Name<'_>, is_new: bool, opened: Option<c_int>) {
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    slot.stream.store(std::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: as above.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let found = rustix::fs::fstat(borrowed);
    let regular = found.ok().filter(|found| {
        FileType::from_raw_mode(found.st_mode).is_file()
            && opened.is_none_or(|flags| flags & libc::O_PATH == 0)
    });
    let Some(entry) = regular.as_ref().and_then(|found| files::entry(fd, found, is_new, name))
    else {
        slot.file.store((&raw const IGNORED).cast_mut(), Ordering::Release);
        return;
    };
    let flags = match opened {
        Some(flags) => OFlags::from_bits_retain(flags as u32),
        None => rustix::fs::fcntl_getfl(borrowed).unwrap_or(OFlags::empty()),
    };
    let mut marks = if flags.contains(OFlags::APPEND) { APPENDS } else { 0 };
    let access = flags & OFlags::RWMODE;
    if access == OFlags::WRONLY {
        marks |= WRITES;
    } else if access == OFlags::RDWR {
        marks |= BOTH;
    }
    let position = match (opened, marks & APPENDS) {
        (None, _) => {
            marks |= SHARED;
            kernel_position(fd)
        }
        (Some(_), 0) => 0,
        (Some(_), _) => regular.map_or(0, |found| found.st_size.cast_unsigned()),
    };
    slot.flags.store(marks, Ordering::Relaxed);
    slot.position.store(position, Ordering::Relaxed);
    slot.next[0].store(position, Ordering::Relaxed);
    slot.next[1].store(position, Ordering::Relaxed);
    slot.file.store(entry.as_ptr().cast_mut(), Ordering::Release);
}

/// Looks at the numbers that this program's standard streams have: what is printed on these by the C library
/// alone shows in their positions only.
pub(super) fn adopt_standard() {
    for (fd, slot) in (0..3).zip(&FIRST) {
        look_at(fd, slot, None, false, None);
        if slot.entry().is_some() {
            // Whoever has started the program waits for it more often than not.
            slot.flags.fetch_and(!SHARED, Ordering::Relaxed);
        }
    }
}

/// A number stands for something else from now on, or for nothing.
pub(crate) fn renewed(fd: c_int) {
    if fd <= HIGHEST.load(Ordering::Relaxed)
        && let Some(slot) = slot(fd)
        && super::process::is_own()
    {
        slot.clear();
    }
}

/// A number is a duplicate of another.
pub(super) fn duplicate(from: c_int, to: c_int) {
    let (Some(from), Some(to_slot)) = (slot(from), slot(to)) else { return };
    HIGHEST.fetch_max(to, Ordering::Relaxed);
    from.flags.fetch_or(DUPLICATED, Ordering::Relaxed);
    to_slot.copy(from);
}

/// A number is closed; if it had one duplicate left, that is alone now.
pub(super) fn closed(fd: c_int, was: &Slot, entry: Entry) {
    was.clear();
    if !was.has(DUPLICATED) {
        return;
    }
    let mut left = all().filter(|(other, slot, other_entry)| {
        *other != fd && slot.has(DUPLICATED) && std::ptr::eq(*other_entry, entry)
    });
    if let (Some((other, slot, _)), None) = (left.next(), left.next()) {
        slot.position.store(kernel_position(other), Ordering::Relaxed);
        slot.flags.fetch_and(!DUPLICATED, Ordering::Relaxed);
    }
}

/// Notes the stream on a number.
pub(super) fn note_stream(slot: &Slot, stream: Stream) {
    if slot.stream.load(Ordering::Relaxed) != stream {
        slot.stream.store(stream, Ordering::Relaxed);
        slot.flags.fetch_or(HAS_STREAM, Ordering::Relaxed);
    }
}

/// The entries are another process's.
pub(super) fn forget() {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) {
        if let Some(slot) = slot(fd) {
            slot.clear();
        }
    }
}

/// Numbers in the range that are not recorded stand for nothing any more.
pub(super) fn forget_ignored(first: u32, last: u32) {
    let highest = HIGHEST.load(Ordering::Relaxed);
    for fd in first..=last.min(highest.max(-1) as u32) {
        if fd as c_int > highest {
            break;
        }
        if let Some(slot) = slot(fd as c_int) {
            slot.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no test has open.
    const FREE: c_int = NUMBERS_MAX as c_int - 8;

    #[test]
    fn the_last_duplicate_is_alone_again() {
        let entry: Entry =
            Box::leak((0..file::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into());
        let first = slot(FREE).unwrap();
        first.file.store(entry.as_ptr().cast_mut(), Ordering::Release);
        first.position.store(77, Ordering::Relaxed);
        first.flags.store(WRITES | HAS_STREAM, Ordering::Relaxed);
        assert!(!first.is_shared());
        duplicate(FREE, FREE + 1);
        let (second, its_entry) = known(FREE + 1).unwrap();
        assert!(std::ptr::eq(its_entry, entry));
        assert!(first.is_shared() && second.is_shared() && second.has(WRITES));
        // The stream is that of the number that it was opened on.
        assert!(!second.has(HAS_STREAM));
        assert_eq!(second.position.load(Ordering::Relaxed), 77);
        duplicate(FREE + 1, FREE + 2);
        closed(FREE, first, entry);
        assert!(known(FREE).is_none());
        assert!(second.is_shared(), "there is a third");
        closed(FREE + 2, slot(FREE + 2).unwrap(), entry);
        assert!(!second.is_shared());
        closed(FREE + 1, second, entry);
        assert!(known(FREE + 1).is_none());
    }

    #[test]
    fn numbers_beyond_the_table_are_not_recorded() {
        assert!(slot(NUMBERS_MAX as c_int).is_none() && slot(-1).is_none());
        assert!(recorded(NUMBERS_MAX as c_int).is_none());
    }
}
