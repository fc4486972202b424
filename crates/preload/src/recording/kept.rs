//! What the environment said at the start: our two variables, for programs that are given an environment without
//! them, since the program may change its own. Owns the copies, one behind the other in static memory: to begin
//! with an allocator would cost more than all else that is done at the start of a process, and each further
//! page of memory a good part of it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Room for both, in bytes, which is nearly always enough.
#[unsafe(link_section = ".data.hot")]
static SHORT: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
/// Room where it is not. What does not fit is not kept, and such programs are counted as unseen.
static LONG: [AtomicU8; 16 << 10] = [const { AtomicU8::new(0) }; 16 << 10];
#[unsafe(link_section = ".data.hot")]
static IS_LONG: AtomicBool = AtomicBool::new(false);
/// Where each ends, with its zero byte: `AZEKURA_PROFILE=...`, and behind it `LD_PRELOAD=...`.
#[unsafe(link_section = ".data.hot")]
static ENDS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Appends `NAME=value` at a place; gives where it ends, which is there if there is nothing to append, and none
/// if it does not fit.
fn append(into: &[AtomicU8], start: usize, name: &CStr) -> Option<usize> {
    // SAFETY: a C string; the value is copied at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return Some(start);
    }
    // SAFETY: values of the environment are C strings.
    let value = unsafe { CStr::from_ptr(value) }.to_bytes_with_nul();
    let parts = [name.to_bytes(), b"=", value];
    let end = start + parts.iter().map(|part| part.len()).sum::<usize>();
    let room = into.get(start..end)?;
    for (place, byte) in room.iter().zip(parts.into_iter().flatten()) {
        place.store(*byte, Ordering::Relaxed);
    }
    Some(end)
}

/// Keeps both; once, at the start.
pub(super) fn keep() {
    let add = |room: &[AtomicU8]| {
        let record = append(room, 0, c"AZEKURA_PROFILE");
        [record, append(room, record.unwrap_or(0), c"LD_PRELOAD")]
    };
    let mut ends = add(&SHORT);
    if ends.contains(&None) {
        IS_LONG.store(true, Ordering::Relaxed);
        ends = add(&LONG);
    }
    let record = ends[0].unwrap_or(0);
    ENDS[0].store(record, Ordering::Release);
    ENDS[1].store(ends[1].unwrap_or(record), Ordering::Release);
}

fn text(start: usize, end: usize) -> Option<&'static CStr> {
    let room = if IS_LONG.load(Ordering::Relaxed) { &LONG[..] } else { &SHORT };
    let text = room.get(start..end)?;
    // SAFETY: written once before the ends; stays for the life of the process.
    let text = unsafe { std::slice::from_raw_parts(text.as_ptr().cast(), text.len()) };
    CStr::from_bytes_with_nul(text).ok()
}

/// `AZEKURA_PROFILE=...`, if it was there.
pub(super) fn record() -> Option<&'static CStr> {
    text(0, ENDS[0].load(Ordering::Acquire))
}

/// `LD_PRELOAD=...`, if it was there.
pub(super) fn library() -> Option<&'static CStr> {
    text(ENDS[0].load(Ordering::Acquire), ENDS[1].load(Ordering::Acquire))
}

/// The path of the record file.
pub(super) fn record_path() -> Option<&'static CStr> {
    let path = record()?.to_bytes_with_nul().strip_prefix(b"AZEKURA_PROFILE=")?;
    CStr::from_bytes_with_nul(path).ok()
}
