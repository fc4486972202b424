//! Requests that move data, and positions. Owns what each of them adds to a file's counters, and how those of
//! the C library itself are found that no hook sees: its streams and whatever else it does move the kernel's
//! position further than the hooks' calls did.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::recording::layout::{file, process as words, transfers};
use libc::{off_t, size_t, ssize_t};

use super::area::Entry;
use super::look::look;
use super::process::{self, now};
use super::slots::{self, APPENDS, BOTH, HAS_STREAM, NOWHERE, Slot, WRITES};

/// What the C library gives a stream for want of anything better, in bytes.
const BUFFER_BYTES: u64 = 4096;

/// What the kernel moves at most in one call.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Out of the file.
    Read = 0,
    /// Into it.
    Write = 1,
}

/// So often a place for a size is looked for while other threads take one.
const LOOKS_MAX: usize = 100;

/// One request to the kernel, or several alike.
pub(super) struct Request {
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// What each asked for.
    pub(super) asked: u64,
    pub(super) nanos: u64,
}

fn add(word: &AtomicU64, by: u64) {
    word.fetch_add(by, Ordering::Relaxed);
}

/// Counts a size among the commonest: a new one takes the place of the rarest (space-saving). Of threads that bring a new
/// one at the same time one takes a place, and the others look again.
fn add_size(entry: Entry, at: usize, size: u64, by: u64) {
    let (sizes, counts) = entry[at..at + 2 * transfers::SIZES_MAX].split_at(transfers::SIZES_MAX);
    for _ in 0..LOOKS_MAX {
        let (mut rarest, mut its_size, mut least) = (0, 0, u64::MAX);
        for (place, known) in sizes.iter().enumerate() {
            let (known, count) =
                (known.load(Ordering::Relaxed), counts[place].load(Ordering::Relaxed));
            // A place that was taken just now has no count yet.
            if known == size && (count > 0 || size > 0) {
                return add(&counts[place], by);
            }
            if count < least {
                (rarest, its_size, least) = (place, known, count);
            }
        }
        let taken =
            sizes[rarest].compare_exchange(its_size, size, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            return add(&counts[rarest], by);
        }
    }
}

/// Adds requests that moved data at the offset.
pub(super) fn add_request(
    (slot, entry): (&Slot, Entry),
    direction: Direction,
    offset: u64,
    request: &Request,
) {
    let base = file::TRANSFERS + direction as usize * transfers::WORDS;
    let next = &slot.next[direction as usize];
    let goes_on = next.load(Ordering::Relaxed) == offset
        || direction == Direction::Write && slot.has(APPENDS);
    let end = offset + request.bytes;
    next.store(end, Ordering::Relaxed);
    add(&entry[base + transfers::REQUESTS], request.count);
    add(&entry[base + transfers::BYTES], request.bytes);
    add(&entry[base + transfers::SEQUENTIAL], request.count - u64::from(!goes_on));
    add(&entry[base + transfers::NANOS], request.nanos);
    add_size(entry, base + transfers::SIZES, request.asked, request.count);
    if direction == Direction::Write {
        entry[file::END].fetch_max(end, Ordering::Relaxed);
    }
}

/// Adds a record that the program has moved itself, of `size`, of which `bytes` were there.
pub(super) fn add_record(entry: Entry, direction: Direction, (size, bytes): (u64, u64), at: u64) {
    let base = file::TRANSFERS + direction as usize * transfers::WORDS;
    add(&entry[base + transfers::RECORDS], 1);
    add(&entry[base + transfers::RECORD_BYTES], bytes);
    add_size(entry, base + transfers::RECORD_SIZES, size, 1);
    let Some(own) = process::entry() else { return };
    add(&own[words::RECORDS + direction as usize], 1);
    let last = &own[words::LAST_FILE + direction as usize];
    let this = entry.as_ptr().addr() as u64;
    if last.load(Ordering::Relaxed) != this && last.swap(this, Ordering::Relaxed) != 0 {
        add(&own[words::SWITCHES + direction as usize], 1);
    }
    own[words::LAST].store(at, Ordering::Relaxed);
}

/// A call that reads or writes; `at` is its offset if not the position, `asked` its bytes, or 0 if they are
/// not known before.
pub(crate) fn moved(
    direction: Direction,
    fd: c_int,
    at: Option<off_t>,
    asked: size_t,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !process::is_on() {
        return call();
    }
    let Some((slot, entry)) = slots::recorded(fd) else { return call() };
    let at = at.filter(|at| *at >= 0);
    if at.is_none() && slot.is_shared() {
        slot.position.store(slots::kernel_position(fd), Ordering::Relaxed);
    }
    let start = now();
    let result = call();
    if let Ok(bytes @ 1..) = u64::try_from(result) {
        let end = now();
        let asked = if asked == 0 { bytes } else { asked as u64 };
        let request = Request { count: 1, bytes, asked, nanos: end - start };
        advance((slot, entry), direction, at, &request);
        let size = if direction == Direction::Read { asked } else { bytes };
        add_record(entry, direction, (size, bytes), end);
    }
    result
}

fn advance(
    (slot, entry): (&Slot, Entry),
    direction: Direction,
    at: Option<off_t>,
    request: &Request,
) {
    let offset = at.map_or_else(|| slot.position.load(Ordering::Relaxed), off_t::cast_unsigned);
    if offset == NOWHERE {
        return;
    }
    add_request((slot, entry), direction, offset, request);
    if at.is_none() {
        slot.position.store(offset + request.bytes, Ordering::Relaxed);
    }
}

/// A call that copies between two descriptors within the kernel; with the offsets that it was given.
pub(crate) fn copied(
    from: (c_int, *const off_t),
    to: (c_int, *const off_t),
    asked: size_t,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !process::is_on() {
        return call();
    }
    let ends = [(Direction::Read, from), (Direction::Write, to)].map(|(direction, (fd, at))| {
        // SAFETY: null or the caller's offset, which the kernel is about to read.
        let at = crate::pointers::is_plausible(at).then(|| unsafe { at.read() });
        let found = slots::recorded(fd);
        if let Some((slot, _)) = found
            && at.is_none()
            && slot.is_shared()
        {
            slot.position.store(slots::kernel_position(fd), Ordering::Relaxed);
        }
        (direction, found, at)
    });
    let start = now();
    let result = call();
    let Ok(bytes @ 1..) = u64::try_from(result) else { return result };
    let end = now();
    // Programs ask for all that there is by asking for more than the kernel moves at once.
    let asked = if asked > CALL_BYTES_MAX { bytes } else { asked as u64 };
    for (direction, found, at) in ends {
        let Some((slot, entry)) = found else { continue };
        // The time is that of both together.
        let request = Request { count: 1, bytes, asked, nanos: (end - start) / 2 };
        advance((slot, entry), direction, at, &request);
        add_record(entry, direction, (bytes, bytes), end);
    }
    result
}

/// A file was mapped to memory.
pub(crate) fn mapped(fd: c_int, offset: off_t, bytes: size_t) {
    if !process::is_on() {
        return;
    }
    if let Some((_, entry)) = slots::recorded(fd) {
        let size = entry[file::SIZE_BEFORE].load(Ordering::Relaxed);
        let size = size.max(entry[file::END].load(Ordering::Relaxed));
        let there = size.saturating_sub(offset.cast_unsigned()).min(bytes as u64);
        add(&entry[file::MAPS], 1);
        add(&entry[file::MAPPED], there);
    }
}

/// A call that sets the position.
pub(crate) fn seeking(fd: c_int, call: impl FnOnce() -> off_t) -> off_t {
    if !process::is_on() {
        return call();
    }
    let Some((slot, entry)) = slots::known(fd) else { return call() };
    if slot.has(HAS_STREAM) {
        settle(fd, slot, entry, None);
    }
    let result = call();
    if result >= 0 {
        note_seek(slot, entry, result.cast_unsigned());
    }
    result
}

/// The position is another one.
pub(super) fn note_seek(slot: &Slot, entry: Entry, to: u64) {
    if slot.position.swap(to, Ordering::Relaxed) != to {
        add(&entry[file::SEEKS], 1);
    }
}

/// Adds what the C library has moved by itself on this descriptor; `nanos` if it was in one call just now.
pub(super) fn settle(fd: c_int, slot: &Slot, entry: Entry, nanos: Option<u64>) {
    if nanos.is_none() && slot.is_shared() {
        return;
    }
    settle_at(slot, entry, slots::kernel_position(fd), nanos);
}

/// As [`settle`], where the kernel's position is going to be `position`.
pub(super) fn settle_at(slot: &Slot, entry: Entry, position: u64, nanos: Option<u64>) {
    let before = slot.position.load(Ordering::Relaxed);
    if position == NOWHERE || before == NOWHERE || position == before {
        return;
    }
    slot.position.store(position, Ordering::Relaxed);
    // Behind it: the C library gives back what it has read too much.
    let Some(bytes) = position.checked_sub(before) else { return };
    let writes = slot.has(WRITES) || slot.has(BOTH) && is_writing(slot);
    let direction = if writes { Direction::Write } else { Direction::Read };
    let buffer = match entry[file::BUFFER].load(Ordering::Relaxed) {
        0 => BUFFER_BYTES,
        bytes => bytes,
    };
    let base = file::TRANSFERS + direction as usize * transfers::WORDS;
    let (count, asked) = match nanos {
        Some(_) if direction == Direction::Read => (1, buffer.max(bytes)),
        Some(_) => (1, bytes),
        None => {
            add(&entry[base + transfers::DERIVED], bytes);
            (bytes.div_ceil(buffer), buffer.min(bytes))
        }
    };
    let request = Request { count, bytes, asked, nanos: nanos.unwrap_or(0) };
    add_request((slot, entry), direction, before, &request);
}

/// Whether the stream on a descriptor is writing.
fn is_writing(slot: &Slot) -> bool {
    let stream = slot.stream.load(Ordering::Relaxed);
    // SAFETY: the slot forgets a stream before it is closed.
    !stream.is_null() && unsafe { look(stream) }.is_writing != 0
}

/// Settles all descriptors: nothing more will be seen of them, or others may move them from now on.
pub(super) fn settle_all() {
    for (fd, slot, entry) in slots::all() {
        settle(fd, slot, entry, None);
    }
}

/// The positions of descriptors are shared with another process from now on.
pub(super) fn share_all() {
    for (fd, slot, entry) in slots::all() {
        settle(fd, slot, entry, None);
        slot.share();
    }
}

/// A number is about to be closed.
pub(crate) fn closing(fd: c_int) {
    if !process::is_own() {
        return;
    }
    if let Some((slot, entry)) = slots::known(fd) {
        settle(fd, slot, entry, None);
        entry[file::CLOSED].store(now(), Ordering::Relaxed);
        slots::closed(fd, slot, entry);
    } else {
        slots::renewed(fd);
    }
}

/// Numbers are about to be closed.
pub(crate) fn closing_range(first: u32, last: u32) {
    if !process::is_own() {
        return;
    }
    for (fd, _, _) in slots::all() {
        if (first..=last).contains(&(fd as u32)) {
            closing(fd);
        }
    }
    slots::forget_ignored(first, last);
}

/// A call that makes `to` a duplicate of `from`; its result is the new number.
pub(crate) fn duplicated(from: c_int, to: Option<c_int>, call: impl FnOnce() -> c_int) -> c_int {
    if !process::is_own() || to == Some(from) {
        return call();
    }
    if let Some((slot, entry)) = to.and_then(slots::known) {
        let position = slots::kernel_position(to.unwrap_or(-1));
        let result = call();
        if result >= 0 {
            if !slot.is_shared() {
                settle_at(slot, entry, position, None);
            }
            entry[file::CLOSED].store(now(), Ordering::Relaxed);
            slots::closed(result, slot, entry);
            slots::duplicate(from, result);
        }
        return result;
    }
    let result = call();
    if result >= 0 {
        slots::duplicate(from, result);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: usize = file::TRANSFERS;
    const WRITTEN: usize = file::TRANSFERS + transfers::WORDS;

    fn entry() -> Entry {
        Box::leak((0..file::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into())
    }

    fn slot(flags: u32) -> Slot {
        let slot = Slot::new();
        slot.flags.store(flags, Ordering::Relaxed);
        slot
    }

    fn value(entry: Entry, at: usize) -> u64 {
        entry[at].load(Ordering::Relaxed)
    }

    fn sizes(entry: Entry, at: usize) -> Vec<(u64, u64)> {
        let one = |n| (value(entry, at + n), value(entry, at + transfers::SIZES_MAX + n));
        (0..transfers::SIZES_MAX).map(one).filter(|(_, count)| *count > 0).collect()
    }

    fn request(bytes: u64) -> Request {
        Request { count: 1, bytes, asked: bytes, nanos: 10 }
    }

    #[test]
    fn a_fifth_size_takes_the_place_of_the_rarest() {
        let entry = entry();
        let at = READ + transfers::SIZES;
        for (size, times) in [(4096, 5), (512, 2), (100, 3), (7, 4)] {
            for _ in 0..times {
                add_size(entry, at, size, 1);
            }
        }
        assert_eq!(sizes(entry, at), [(4096, 5), (512, 2), (100, 3), (7, 4)]);
        add_size(entry, at, 9, 1);
        // Its count is what it can have been at most (space-saving).
        assert_eq!(sizes(entry, at), [(4096, 5), (9, 3), (100, 3), (7, 4)]);
        add_size(entry, at, 4096, 10);
        assert_eq!(sizes(entry, at)[0], (4096, 15));
    }

    #[test]
    fn threads_that_begin_with_the_same_size_count_it_in_one_place() {
        for _ in 0..200 {
            let (entry, at) = (entry(), READ + transfers::SIZES);
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        (0..10).for_each(|_| add_size(entry, at, 512, 1));
                    });
                }
            });
            assert_eq!(sizes(entry, at), [(512, 40)]);
        }
    }

    #[test]
    fn a_request_goes_on_where_the_last_of_its_direction_has_ended() {
        let (entry, slot) = (entry(), slot(BOTH));
        for offset in [0, 4096, 8192, 0, 4096, 40_960] {
            add_request((&slot, entry), Direction::Read, offset, &request(4096));
        }
        assert_eq!(value(entry, READ + transfers::REQUESTS), 6);
        assert_eq!(value(entry, READ + transfers::BYTES), 6 * 4096);
        assert_eq!(value(entry, READ + transfers::SEQUENTIAL), 4);
        assert_eq!(value(entry, READ + transfers::NANOS), 60);
        assert_eq!(value(entry, file::END), 0, "reading makes no file longer");
        add_request((&slot, entry), Direction::Write, 45_056, &request(100));
        assert_eq!(value(entry, WRITTEN + transfers::SEQUENTIAL), 0);
        add_request((&slot, entry), Direction::Write, 45_156, &request(100));
        assert_eq!(value(entry, WRITTEN + transfers::SEQUENTIAL), 1);
        assert_eq!(value(entry, file::END), 45_256);
    }

    #[test]
    fn what_is_appended_goes_on_wherever_the_end_is() {
        let (entry, slot) = (entry(), slot(WRITES | APPENDS));
        for offset in [500, 9000, 100] {
            add_request((&slot, entry), Direction::Write, offset, &request(10));
        }
        assert_eq!(value(entry, WRITTEN + transfers::SEQUENTIAL), 3);
        assert_eq!(value(entry, file::END), 9010);
    }

    #[test]
    fn a_position_that_moved_by_itself_is_requests_of_the_buffer() {
        let (entry, slot) = (entry(), slot(WRITES));
        entry[file::BUFFER].store(1000, Ordering::Relaxed);
        settle_at(&slot, entry, 2500, None);
        assert_eq!(value(entry, WRITTEN + transfers::BYTES), 2500);
        assert_eq!(value(entry, WRITTEN + transfers::REQUESTS), 3);
        assert_eq!(value(entry, WRITTEN + transfers::DERIVED), 2500);
        assert_eq!(sizes(entry, WRITTEN + transfers::SIZES), [(1000, 3)]);
        // In a call that was seen it is one request, and nothing is derived.
        settle_at(&slot, entry, 4000, Some(5));
        assert_eq!(value(entry, WRITTEN + transfers::REQUESTS), 4);
        assert_eq!(value(entry, WRITTEN + transfers::DERIVED), 2500);
        // Back, or to where nobody knows: nothing was moved.
        settle_at(&slot, entry, 100, None);
        settle_at(&slot, entry, NOWHERE, None);
        assert_eq!(value(entry, WRITTEN + transfers::BYTES), 4000);
        assert_eq!(slot.position.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn what_a_buffer_reads_ahead_asked_for_all_of_it() {
        let (entry, slot) = (entry(), slot(0));
        entry[file::BUFFER].store(4096, Ordering::Relaxed);
        settle_at(&slot, entry, 10, Some(1));
        assert_eq!(value(entry, READ + transfers::BYTES), 10);
        assert_eq!(sizes(entry, READ + transfers::SIZES), [(4096, 1)]);
    }
}
