//! This process in the record. Owns its entry, and whether a call is one of its own.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use azekura_proto::recording::layout::{self, process};

use super::area::{self, Entry};
use crate::guard;

/// The process whose counters these are; another one finds them only in the child of a `vfork`.
#[unsafe(link_section = ".data.hot")]
static PID: AtomicI32 = AtomicI32::new(0);
/// Whether the program has ever called `vfork`. A child that shares its parent's memory and came to be by a bare
/// system call is taken for its parent.
#[unsafe(link_section = ".data.hot")]
pub(crate) static HAS_VFORKED: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".data.hot")]
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

/// Whether a call that changes what descriptors stand for is this process's own. Before the first `vfork` the
/// kernel is not asked.
pub(super) fn is_own() -> bool {
    is_on() && (!HAS_VFORKED.load(Ordering::Relaxed) || pid() == PID.load(Ordering::Relaxed))
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
    entry[process::PID].store(PID.load(Ordering::Relaxed) as u64, Ordering::Relaxed);
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

/// This process is another from now on, without an entry yet.
pub(super) fn renew() {
    PID.store(pid(), Ordering::Relaxed);
    ENTRY.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Whether it has an entry yet.
pub(super) fn has_entry() -> bool {
    !ENTRY.load(Ordering::Relaxed).is_null()
}
