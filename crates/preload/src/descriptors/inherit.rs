//! Descriptors across fork and exec. Before the first of these an open file description gets a page of
//! memory of its own in a file that has no name; the reserved numbers then stand for that file, opened for
//! reading with its position at the end. A program that is started with such a number open finds the page.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use azekura_posix::{OFlags, Result};
use rustix::fs::{Mode, SeekFrom};

use super::description::{Backing, CHANGEABLE, Description};
use super::page::{Identity, MappedPage, PAGE_BYTES};
use super::position::Position;
use super::table;
use crate::host;

/// What the kernel shows as the target of a reserved number.
const SHOWN: &[u8] = b"/memfd:azekura";

fn again(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Moves one description to a page of its own, and its numbers to that page's file.
fn share(description: &Description, numbers: &[c_int]) -> Result<()> {
    let (page, file) = MappedPage::create(&Identity {
        oid: description.oid(),
        kind: description.kind(),
        open_flags: description.open_flags(),
        path: description.path().to_vec(),
    })?;
    description.position().share(page);
    let shown = again(&file, OFlags::RDONLY)?;
    rustix::fs::seek(&shown, SeekFrom::End(0))?;
    for number in numbers {
        // SAFETY: the number is reserved by us and open.
        let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(*number) })?;
        let close_on_exec =
            if flags.contains(rustix::io::FdFlags::CLOEXEC) { libc::O_CLOEXEC } else { 0 };
        // SAFETY: replaces a number that is ours by another reservation.
        unsafe { host::dup3(shown.as_raw_fd(), *number, close_on_exec) };
    }
    Ok(())
}

/// Makes every open file description ready for another process. Only while no other thread is in our
/// code. One that fails keeps its position to itself.
pub(crate) fn share_all() {
    let mut numbers: HashMap<*const Description, (Arc<Description>, Vec<c_int>)> = HashMap::new();
    for (fd, description) in table::all() {
        if description.backing() == Backing::Reserved && !description.position().is_shared() {
            let entry = numbers.entry(Arc::as_ptr(&description));
            entry.or_insert_with(|| (description, Vec::new())).1.push(fd);
        }
    }
    for (description, numbers) in numbers.values() {
        // Out of descriptors or memory: the child begins with a copy of the position.
        let _ = share(description, numbers);
    }
}

/// What a program that was started with the descriptor `fd` open has to know of it.
fn adopt_one(fd: BorrowedFd<'_>) -> Result<Option<Arc<Description>>> {
    if rustix::fs::fstat(fd)?.st_size != PAGE_BYTES as i64 {
        return Ok(None);
    }
    let page = MappedPage::map(again(fd, OFlags::RDWR)?)?;
    let Some(Identity { oid, kind, open_flags, path }) = page.identity() else { return Ok(None) };
    let position = Position::shared(page);
    Ok(Some(Description::unopened(oid, kind, open_flags & !CHANGEABLE, position, path)))
}

/// Finds the descriptors that this program was started with.
pub(crate) fn adopt_all() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<c_int> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let mut known: HashMap<(u64, u64), Arc<Description>> = HashMap::new();
    for number in numbers {
        let shown = rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new());
        if !shown.is_ok_and(|text| text.as_bytes().starts_with(SHOWN)) {
            continue;
        }
        // SAFETY: it was open a moment ago, and the host has not begun to run.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(stat) = rustix::fs::fstat(fd) else { continue };
        let key = (stat.st_dev, stat.st_ino);
        let description = match known.get(&key) {
            Some(description) => Some(Arc::clone(description)),
            None => adopt_one(fd).ok().flatten(),
        };
        if let Some(description) = description {
            // Opened at once, so that a file without a name lives on when the parent is gone. A pool
            // that does not answer now is met by the first call that needs it.
            let _ = description.file();
            table::set(number, Arc::clone(&description));
            known.insert(key, description);
        }
    }
}
