//! This process in the record. Owns when recording begins and ends, and that a forked child has an entry of
//! its own.

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use azekura_proto::recording::layout::{self, process};

use super::area::{self, Entry};
use super::{data, files, slots};
use crate::guard;

/// The process whose counters these are; another one finds them only in the child of a `vfork`.
static PID: AtomicI32 = AtomicI32::new(0);
static ENTRY: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid structure. The C library asks the kernel's own page, without a system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether calls of the program are recorded.
pub(crate) fn is_on() -> bool {
    area::is_there() && !guard::is_inside()
}

/// Whether this process is recorded at all.
pub(crate) fn is_recording() -> bool {
    area::is_there()
}

/// Whether a call that changes what descriptors stand for is this process's own.
pub(super) fn is_own() -> bool {
    is_on() && pid() == PID.load(Ordering::Relaxed)
}

fn parent() -> u64 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u64)
}

/// The kernel's name of the program, in two words.
fn name() -> [u64; 2] {
    let mut name = [0_u8; 16];
    // SAFETY: room for the 16 bytes that the kernel writes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| name[at + byte]));
    [word(0), word(8)]
}

/// The entry of this process, made when it is first needed.
pub(super) fn entry() -> Option<Entry> {
    let known = ENTRY.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: an entry in a mapping that stays.
        return Some(unsafe { std::slice::from_raw_parts(known, process::WORDS) });
    }
    let entry = area::take(process::WORDS)?;
    entry[process::PID].store(pid() as u64, Ordering::Relaxed);
    entry[process::PARENT].store(parent(), Ordering::Relaxed);
    entry[process::STARTED].store(now(), Ordering::Relaxed);
    for (place, word) in name().into_iter().enumerate() {
        entry[process::NAME + place].store(word, Ordering::Relaxed);
    }
    let first = entry.as_ptr().cast_mut();
    let other =
        ENTRY.compare_exchange(std::ptr::null_mut(), first, Ordering::AcqRel, Ordering::Acquire);
    // An entry without a head would hide those behind it, and one that lost is the same as the other.
    entry[0].store(layout::head(layout::PROCESS, process::WORDS), Ordering::Release);
    match other {
        Ok(_) => Some(entry),
        // SAFETY: as above.
        Err(other) => Some(unsafe { std::slice::from_raw_parts(other, process::WORDS) }),
    }
}

/// Begins to record if the environment names a record file; gives whether it does.
pub(crate) fn start() -> bool {
    debug_assert_eq!(c"AZEKURA_PROFILE".to_bytes(), azekura_proto::recording::VARIABLE.as_bytes());
    // SAFETY: a C string; the value is copied before anybody can change it.
    let value = unsafe { libc::getenv(c"AZEKURA_PROFILE".as_ptr()) };
    // SAFETY: values of the environment are C strings.
    if value.is_null() || !area::open(unsafe { std::ffi::CStr::from_ptr(value) }) {
        return false;
    }
    super::programs::keep_variables();
    PID.store(pid(), Ordering::Relaxed);
    entry();
    slots::adopt_standard();
    true
}

/// The process is about to be forked.
pub(crate) fn before_fork() {
    if area::is_there() {
        data::share_all();
    }
}

/// A fork is over, in the child: its counters are to be its own.
pub(crate) fn after_fork_in_child() {
    if !area::is_there() {
        return;
    }
    PID.store(pid(), Ordering::Relaxed);
    ENTRY.store(std::ptr::null_mut(), Ordering::Relaxed);
    area::forget_chunks();
    files::forget();
    slots::forget();
}

/// The process is about to end, or to become another program.
pub(crate) fn end(becomes_program: bool) {
    if !is_own() {
        return;
    }
    // A child that was forked and did nothing is no process of its own to anybody.
    if ENTRY.load(Ordering::Relaxed).is_null() && !becomes_program {
        return;
    }
    data::settle_all();
    let Some(entry) = entry() else { return };
    let end = if becomes_program { process::EXEC } else { process::EXIT };
    entry[process::END].store(end, Ordering::Relaxed);
    entry[process::ENDED].store(now(), Ordering::Relaxed);
}

/// The process has not become another program.
pub(super) fn goes_on() {
    if is_own()
        && let Some(entry) = entry()
    {
        entry[process::END].store(0, Ordering::Relaxed);
        entry[process::ENDED].store(0, Ordering::Relaxed);
    }
}
