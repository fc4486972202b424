//! Streams of the C library (`FILE`), whose system calls no hook sees. Owns how their bytes are known all the
//! same: a call that its buffer cannot serve alone is timed, and the kernel's position is looked at behind it;
//! what other calls have moved shows in the position at the next look, at the latest when the stream is
//! closed. Records are what the program asks of the stream.

use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering;

use azekura_proto::recording::layout::file;

use super::data::{self, Direction, Request};
use super::look::{Look, look};
use super::names;
use super::process::{self, now};
use super::slots::{self, HAS_STREAM};
use crate::stdio::Stream;

/// A line is thought to need the next buffer if less than this is left of the last one, in bytes.
const LINE_BYTES: usize = 1024;

/// A call that reads or writes a record; of `asked` bytes if that is known. `bytes` tells how many it was.
///
/// # Safety
/// The stream is open, or the call is its own concern.
pub(crate) unsafe fn record<R: Copy>(
    direction: Direction,
    stream: Stream,
    asked: Option<usize>,
    call: impl FnOnce() -> R,
    bytes: impl FnOnce(R) -> usize,
) -> R {
    if !process::is_on() || stream.is_null() {
        return call();
    }
    // SAFETY: the caller says so.
    let before = unsafe { look(stream) };
    let Some((slot, entry)) = slots::recorded(before.fd) else { return call() };
    slots::note_stream(slot, stream);
    let served = match direction {
        Direction::Read => before.unread,
        Direction::Write => before.room,
    };
    let is_timed = asked.map_or(served < LINE_BYTES, |asked| asked > served);
    if is_timed && slot.is_shared() {
        slot.position.store(slots::kernel_position(before.fd), Ordering::Relaxed);
    }
    if direction == Direction::Write && before.unread > 0 {
        // Before it writes the C library goes back to where the program is.
        slot.position.fetch_sub(before.unread as u64, Ordering::Relaxed);
    }
    let start = if is_timed { now() } else { 0 };
    let result = call();
    let bytes = bytes(result);
    let mut at = 0;
    if is_timed {
        at = now();
        // SAFETY: the caller says so.
        let after = unsafe { look(stream) };
        entry[file::BUFFER].store(after.buffer as u64, Ordering::Relaxed);
        if !is_served_alone(direction, &before, &after, bytes) {
            data::settle(before.fd, slot, entry, Some(at - start));
        }
    }
    if bytes > 0 {
        let bytes = bytes as u64;
        data::add_record(entry, direction, (bytes, bytes), at);
    }
    result
}

/// Whether the buffer alone has served a call of so many bytes: what it holds has changed by just these. The
/// kernel need not be asked for its position then, which half of all short lines would cost a system call.
fn is_served_alone(direction: Direction, before: &Look, after: &Look, bytes: usize) -> bool {
    bytes > 0
        && match direction {
            // Filled again, it would have given out all that it had, and more.
            Direction::Read => before.unread.checked_sub(after.unread) == Some(bytes),
            // Bytes that were read and not asked for are given back by a seek.
            Direction::Write => {
                before.unread == 0 && after.pending.checked_sub(before.pending) == Some(bytes)
            }
        }
}

/// A call that writes out what waits in a stream, or in all of them.
///
/// # Safety
/// The stream is open, or null.
pub(crate) unsafe fn flushing(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    if !process::is_on() {
        return call();
    }
    if stream.is_null() {
        before_flush();
        let result = call();
        after_flush();
        return result;
    }
    // SAFETY: the caller says so.
    if unsafe { look(stream) }.pending == 0 {
        return call();
    }
    // As a record of no bytes that is sure to move the buffer's.
    // SAFETY: as above.
    unsafe { record(Direction::Write, stream, Some(usize::MAX), call, |_| 0) }
}

/// A call that opens a stream.
pub(crate) fn opening_stream(
    path: *const c_char,
    flags: c_int,
    call: impl FnOnce() -> Stream,
) -> Stream {
    names::opening((libc::AT_FDCWD, path), flags, call, |stream| {
        // SAFETY: it was opened just now.
        unsafe { look(stream) }.fd
    })
}

/// A stream is about to be closed, or to stand for another file.
///
/// # Safety
/// The stream is open.
pub(crate) unsafe fn closing_stream(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    if !process::is_own() || stream.is_null() {
        return call();
    }
    // SAFETY: the caller says so.
    let before = unsafe { look(stream) };
    let Some((slot, entry)) = slots::known(before.fd) else {
        slots::renewed(before.fd);
        return call();
    };
    let kernels = slots::kernel_position(before.fd);
    if slot.is_shared() {
        slot.position.store(kernels, Ordering::Relaxed);
    }
    data::settle_at(slot, entry, kernels, None);
    let pending = before.pending as u64;
    let offset = slot.position.load(Ordering::Relaxed);
    // The number is free again before the call is over.
    slots::closed(before.fd, slot, entry);
    let start = now();
    let result = call();
    let end = now();
    if pending > 0 && offset != slots::NOWHERE {
        let request = Request { count: 1, bytes: pending, asked: pending, nanos: end - start };
        data::add_request((slot, entry), Direction::Write, offset, &request);
    }
    entry[file::CLOSED].store(end, Ordering::Relaxed);
    result
}

/// A call that sets a stream's position.
///
/// # Safety
/// The stream is open.
pub(crate) unsafe fn seeking_stream<R>(stream: Stream, call: impl FnOnce() -> R) -> R {
    if !process::is_on() || stream.is_null() {
        return call();
    }
    // SAFETY: the caller says so.
    let before = unsafe { look(stream) };
    let Some((slot, entry)) = slots::known(before.fd) else { return call() };
    slots::note_stream(slot, stream);
    let kernels = slots::kernel_position(before.fd);
    if slot.is_shared() || kernels == slots::NOWHERE {
        slot.position.store(kernels, Ordering::Relaxed);
        return call();
    }
    data::settle_at(slot, entry, kernels, None);
    if before.pending > 0 {
        // The call writes them first.
        data::settle_at(slot, entry, kernels + before.pending as u64, Some(0));
    }
    let start = now();
    let result = call();
    let end = now();
    // SAFETY: as above.
    let after = unsafe { look(stream) };
    let to = slots::kernel_position(before.fd);
    if to == slots::NOWHERE || to == slot.position.load(Ordering::Relaxed) {
        return result;
    }
    data::note_seek(slot, entry, to);
    // The C library fills the buffer at the new place, to have the page of it.
    let filled = after.filled as u64;
    if filled > 0 && filled <= to {
        let asked = filled.max(after.buffer as u64);
        let request = Request { count: 1, bytes: filled, asked, nanos: end - start };
        data::add_request((slot, entry), Direction::Read, to - filled, &request);
    }
    result
}

/// The C library is about to write out what waits in all streams: those whose positions others share are
/// looked at before and behind.
fn before_flush() {
    if !process::is_own() {
        return;
    }
    for (fd, slot, _) in slots::all() {
        if slot.is_shared() && slot.has(HAS_STREAM) {
            slot.position.store(slots::kernel_position(fd), Ordering::Relaxed);
        }
    }
}

/// It has done so.
fn after_flush() {
    if !process::is_own() {
        return;
    }
    for (fd, slot, entry) in slots::all() {
        if slot.is_shared() && slot.has(HAS_STREAM) {
            data::settle_at(slot, entry, slots::kernel_position(fd), Some(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(unread: usize, pending: usize) -> Look {
        Look { unread, pending, ..Look::default() }
    }

    #[test]
    fn a_buffer_that_has_moved_by_what_was_asked_needed_no_kernel() {
        let read = |before, after, bytes| {
            is_served_alone(Direction::Read, &holding(before, 0), &holding(after, 0), bytes)
        };
        assert!(read(100, 20, 80));
        assert!(!read(100, 4000, 180), "filled again");
        assert!(!read(100, 0, 100 + 4096), "filled again, and all of it given out");
        assert!(!read(0, 0, 0), "the end of the file is found by asking");
        let write = |before, after, bytes| {
            is_served_alone(Direction::Write, &holding(0, before), &holding(0, after), bytes)
        };
        assert!(write(100, 180, 80));
        assert!(!write(4000, 84, 180), "written out");
        assert!(!write(0, 0, 80), "written out at once");
        assert!(!is_served_alone(Direction::Write, &holding(50, 0), &holding(0, 80), 80));
    }
}
