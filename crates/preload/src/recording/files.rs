//! The files of this process in the record. Owns which files are recorded, and that each has one entry,
//! however often it is opened: they are found by device and number.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use azekura_proto::recording::layout::{self, PATH_BYTES_MAX, file};
use rustix::fs::{CWD, Stat, readlinkat_raw};

use super::area::{self, Entry};
use super::process::{self, now};
use super::{paths, true_names};

/// The path that a file was opened by, if it was by one that is absolute or counts from the working directory.
pub(super) type Name<'a> = Option<&'a CStr>;

/// Slots of a bucket: neighbours in memory.
const BUCKET: usize = 8;
/// Files are looked up here first, and then in the larger ones, which small programs never touch.
#[unsafe(link_section = ".data.hot")]
static SMALL: [AtomicPtr<AtomicU64>; 256] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 256];
static LARGE: [AtomicPtr<AtomicU64>; 1 << 13] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << 13];
static HUGE: [AtomicPtr<AtomicU64>; 1 << 18] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << 18];
/// Entries in the tables.
#[unsafe(link_section = ".data.hot")]
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn tables() -> [&'static [AtomicPtr<AtomicU64>]; 3] {
    [&SMALL, &LARGE, &HUGE]
}

/// Which bucket of a table a key belongs to; there are 2 or any higher power of it.
fn bucket_number(buckets: usize, key: u64) -> usize {
    (key >> (u64::BITS - buckets.trailing_zeros())) as usize
}

fn bucket(table: &'static [AtomicPtr<AtomicU64>], key: u64) -> &'static [AtomicPtr<AtomicU64>] {
    let start = bucket_number(table.len() / BUCKET, key) * BUCKET;
    &table[start..start + BUCKET]
}

/// A number whose high bits are spread evenly, also for files that were made one after the other (Fibonacci
/// hashing: the lower bits are not).
fn key(found: &Stat) -> u64 {
    (found.st_ino ^ found.st_dev << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn is_of(entry: Entry, found: &Stat) -> bool {
    entry[file::INODE].load(Ordering::Relaxed) == found.st_ino
        && entry[file::DEVICE].load(Ordering::Relaxed) == found.st_dev
}

/// The entry of an open file, made if there is none; none if it is not to be recorded. A file that was made
/// just now can have the number of one that is gone, so it gets an entry of its own.
pub(super) fn entry(fd: c_int, found: &Stat, is_new: bool, name: Name<'_>) -> Option<Entry> {
    let key = key(found);
    let mut free = None;
    'tables: for table in tables() {
        for place in bucket(table, key) {
            let start = place.load(Ordering::Acquire);
            if start.is_null() {
                free = Some(place);
                break 'tables;
            }
            // SAFETY: the start of a file's entry in a mapping that stays.
            let entry: Entry = unsafe { std::slice::from_raw_parts(start, file::WORDS) };
            if is_of(entry, found) {
                if !is_new {
                    return Some(entry);
                }
                free = Some(place);
                break 'tables;
            }
        }
    }
    let Some(place) = free else {
        area::lost();
        return None;
    };
    let entry = new_entry(fd, found, name)?;
    // A file that two threads open for the first time at once has two entries.
    place.store(entry.as_ptr().cast_mut(), Ordering::Release);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Some(entry)
}

/// Room for a path of the kernel's.
type Room = [u8; PATH_BYTES_MAX];

/// The own path of an open file.
fn own_path<'a>(fd: c_int, found: &Stat, name: Name<'_>, room: &'a mut Room) -> Option<&'a [u8]> {
    if let Some(length) = name.and_then(|name| true_names::own(name, found, room)) {
        return Some(&room[..length]);
    }
    let length = paths::link_of(fd, |link| readlinkat_raw(CWD, link, &mut room[..]))?.ok()?;
    Some(&room[..length])
}

fn new_entry(fd: c_int, found: &Stat, name: Name<'_>) -> Option<Entry> {
    let mut room = [0; PATH_BYTES_MAX];
    let path = own_path(fd, found, name, &mut room)?;
    if !paths::is_recorded(path) {
        return None;
    }
    // That of the process comes first.
    process::entry()?;
    let words = file::WORDS + path.len().div_ceil(8);
    let entry = area::take(words)?;
    for (place, part) in path.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        entry[file::WORDS + place].store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
    let size = found.st_size.cast_unsigned();
    for (index, value) in [
        (file::PATH_BYTES, path.len() as u64),
        (file::DEVICE, found.st_dev),
        (file::INODE, found.st_ino),
        (file::OPENED, now()),
        (file::SIZE_BEFORE, size),
    ] {
        entry[index].store(value, Ordering::Relaxed);
    }
    entry[0].store(layout::head(layout::FILE, words), Ordering::Release);
    Some(entry)
}

/// The entries are another process's.
pub(super) fn forget() {
    if COUNT.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    for table in tables() {
        // What was never touched is not there, and reading it costs a page each.
        if table.len() > LARGE.len() && is_untouched() {
            break;
        }
        for place in table {
            if !place.load(Ordering::Relaxed).is_null() {
                place.store(std::ptr::null_mut(), Ordering::Relaxed);
            }
        }
    }
}

/// Whether no file has come as far as the largest table: that takes a full bucket in the one before.
fn is_untouched() -> bool {
    !LARGE.chunks(BUCKET).any(|bucket| !bucket[BUCKET - 1].load(Ordering::Relaxed).is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_made_one_after_the_other_find_room() {
        // As `entry` does it, with what takes room only.
        let mut taken = tables().map(|table| vec![0_usize; table.len() / BUCKET]);
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut found: Stat = unsafe { std::mem::zeroed() };
        found.st_dev = 0xfe01;
        for number in 0..100_000 {
            found.st_ino = 1_000_000 + number;
            let key = key(&found);
            let free = taken.iter_mut().find_map(|counts| {
                let number = bucket_number(counts.len(), key);
                let count = &mut counts[number];
                (*count < BUCKET).then_some(count)
            });
            *free.expect("there is room for it") += 1;
        }
        assert!(taken[2].iter().any(|count| *count > 0), "so many need the largest table");
    }
}
