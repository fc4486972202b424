//! Programs that are started. Owns that they get the library and the record file too, whatever environment
//! they are given, and that those in which the library cannot be are counted. Nothing is allocated that
//! stays: the child of a `vfork` comes here with its parent's memory.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use azekura_executable::{Executable, Linking};
use azekura_proto::recording::layout::header;
use rustix::fs::{Mode, OFlags};

use super::area;
use super::{data, ending, kept, process};
use crate::{guard, pointers};

type Array = *const *const c_char;

/// An environment that gets our variables has fewer entries than this.
const ENTRIES_MAX: usize = 1024;

/// What a start has been counted as, to be taken back if it fails.
#[must_use]
pub(crate) struct Started(Option<usize>);

/// What an environment lacks.
enum Lack {
    Nothing,
    /// Both variables.
    Both,
    /// It cannot be helped: there is an `LD_PRELOAD` without this library.
    Other,
}

/// Whether this names a library that records: this one, or the other that is built of its source.
fn is_a_recorder(path: &[u8]) -> bool {
    [&b"libazekura_recorder.so"[..], b"libazekura_preload.so"]
        .iter()
        .any(|name| path.ends_with(name))
}

/// # Safety
/// As for `execve`.
unsafe fn lack(environment: Array, library: &[u8]) -> (Lack, usize) {
    let mut count = 0;
    let (mut has_library, mut has_file) = (false, false);
    if environment.is_null() {
        return (Lack::Both, 0);
    }
    loop {
        // SAFETY: the caller says that the array ends with a null pointer.
        let entry = unsafe { environment.add(count).read() };
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry is a C string.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = text.strip_prefix(b"LD_PRELOAD=") {
            let mut parts = value.split(|byte| matches!(byte, b':' | b' '));
            if text != library && !parts.any(is_a_recorder) {
                return (Lack::Other, count);
            }
            has_library = true;
        }
        has_file |= text.starts_with(b"AZEKURA_PROFILE=");
        count += 1;
    }
    match (has_library, has_file) {
        (true, true) => (Lack::Nothing, count),
        (false, false) => (Lack::Both, count),
        // The program has taken one of them away on purpose.
        _ => (Lack::Other, count),
    }
}

/// Whether the library cannot be in a program: the loader is not asked for it, or does not bring it.
fn is_unseen(dirfd: c_int, path: &CStr) -> bool {
    // SAFETY: a number that is not open fails in the kernel.
    let at = unsafe { BorrowedFd::borrow_raw(if dirfd < 0 { libc::AT_FDCWD } else { dirfd }) };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::openat(at, path, flags, Mode::empty()) else { return false };
    let Ok(found) = rustix::fs::fstat(&file) else { return false };
    if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() {
        return false;
    }
    let rights = rustix::process::geteuid().as_raw();
    if found.st_mode & libc::S_ISUID != 0 && found.st_uid != rights {
        return true;
    }
    let read = |at: u64, into: &mut [u8]| rustix::io::pread(&file, into, at);
    match Executable::read(&read) {
        Ok(Executable::Elf(elf)) => {
            matches!(elf.linking(), Ok(Linking::Static)) || matches!(elf.is_from_go(), Ok(true))
        }
        Ok(Executable::ForeignElf) => true,
        _ => false,
    }
}

fn count(which: usize) -> Started {
    if let Some(header) = area::header() {
        header[which].fetch_add(1, Ordering::Relaxed);
    }
    Started(Some(which))
}

/// Starts a program: `call` gets the environment to start it with. `becomes` says whether this process
/// becomes the program.
///
/// # Safety
/// As for `execve`; a null path stands for a program that is not to be looked at.
pub(crate) unsafe fn starting<R>(
    (dirfd, path): (c_int, *const c_char),
    environment: Array,
    becomes: bool,
    call: impl FnOnce(Array) -> R,
    has_failed: impl FnOnce(&R) -> bool,
) -> R {
    if !process::is_on() {
        return call(environment);
    }
    // The child of a vfork shares its parent's memory, so this holds for the parent's descriptors.
    data::share_all();
    if becomes {
        ending::end(true);
    }
    let mut room = [std::ptr::null::<c_char>(); ENTRIES_MAX];
    let mut given = environment;
    let mut started = Started(None);
    // What the look allocates is freed again; its locks are not those of a thread that is not there.
    let guard = guard::Guard::enter();
    if pointers::is_plausible(path) {
        // SAFETY: the caller says so.
        if is_unseen(dirfd, unsafe { CStr::from_ptr(path) }) {
            started = count(header::UNSEEN_PROGRAMS);
        }
    }
    drop(guard);
    if started.0.is_none()
        && let (Some(library), Some(record)) = (kept::library(), kept::record())
    {
        // SAFETY: the caller says so.
        match unsafe { lack(environment, library.to_bytes()) } {
            (Lack::Nothing, _) => {}
            (Lack::Both, entries) if entries + 2 < ENTRIES_MAX => {
                for (place, entry) in room.iter_mut().take(entries).enumerate() {
                    // SAFETY: so many entries were counted.
                    *entry = unsafe { environment.add(place).read() };
                }
                room[entries] = library.as_ptr();
                room[entries + 1] = record.as_ptr();
                given = room.as_ptr();
            }
            _ => started = count(header::UNSEEN_ENVIRONMENTS),
        }
    }
    let result = call(given);
    if has_failed(&result) {
        failed_to_start(&started);
        if becomes {
            ending::goes_on();
        }
    }
    result
}

/// The program was not started after all.
fn failed_to_start(started: &Started) {
    if let (Some(which), Some(header)) = (started.0, area::header()) {
        header[which].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &[u8] = b"LD_PRELOAD=/lib/libazekura_recorder.so";

    fn lacks(entries: &[&CStr]) -> (Lack, usize) {
        let mut array: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).collect();
        array.push(std::ptr::null());
        // SAFETY: ends with a null pointer.
        unsafe { lack(array.as_ptr(), OWN) }
    }

    #[test]
    fn an_environment_lacks_both_variables_or_was_changed_on_purpose() {
        let (record, other) = (c"AZEKURA_PROFILE=/proc/7/fd/3", c"PATH=/bin");
        let own = c"LD_PRELOAD=/lib/libazekura_recorder.so";
        assert!(matches!(lacks(&[other, own, record]), (Lack::Nothing, 3)));
        assert!(matches!(lacks(&[other]), (Lack::Both, 1)));
        assert!(matches!(lacks(&[]), (Lack::Both, 0)));
        // SAFETY: null stands for an empty environment.
        assert!(matches!(unsafe { lack(std::ptr::null(), OWN) }, (Lack::Both, 0)));
        assert!(matches!(lacks(&[own]), (Lack::Other, 1)));
        assert!(matches!(lacks(&[record, other]), (Lack::Other, 2)));
        assert!(matches!(lacks(&[c"LD_PRELOAD=", record]), (Lack::Other, 0)));
        assert!(matches!(lacks(&[c"LD_PRELOAD=/lib/other.so", record]), (Lack::Other, 0)));
        // Another that records, with others beside it: as `azekura run` gives it to its program.
        for value in [
            c"LD_PRELOAD=/lib/x.so:/usr/lib/libazekura_preload.so",
            c"LD_PRELOAD=/a /b/libazekura_recorder.so",
        ] {
            assert!(matches!(lacks(&[value, record]), (Lack::Nothing, 2)));
        }
    }

    #[test]
    fn programs_that_load_no_library_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let is_unseen = |bytes: &[u8]| {
            let path = dir.path().join("program");
            std::fs::write(&path, bytes).unwrap();
            let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            is_unseen(libc::AT_FDCWD, &path)
        };
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        program.truncate(1 << 16);
        assert!(!is_unseen(&program));
        // Without segments it names no loader.
        program[56..58].fill(0);
        assert!(is_unseen(&program));
        // Of another word size.
        program[4] = 1;
        assert!(is_unseen(&program));
        assert!(!is_unseen(b"#!/bin/sh\n") && !is_unseen(b""));
        assert!(!super::is_unseen(libc::AT_FDCWD, c"/no/such/program"));
    }
}
