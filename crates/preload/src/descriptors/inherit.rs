//! Descriptors across fork and exec. Before the first of these an open file description gets a page of
//! memory of its own in a file that has no name: it holds the position, which parent and child share
//! from then on, and what a program needs that finds the descriptor open when it starts. The reserved
//! numbers then stand for that file, opened for reading with its position at the end.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use azekura_posix::{FileKind, OFlags, Oid, Result};
use rustix::fs::{MemfdFlags, Mode, SeekFrom};
use rustix::mm::{MapFlags, ProtFlags};

use super::position::Cell;
use super::{Backing, CHANGEABLE, Description, Position, table};

const PAGE_BYTES: usize = 8192;
const PATH_BYTES: usize = 4096;
/// Also the version of the page's form.
const MAGIC: u64 = 0x617a_6b66_6400_0001;
/// What the kernel shows as the target of a reserved number.
const SHOWN: &[u8] = b"/memfd:azekura";

#[repr(C)]
struct Page {
    magic: u64,
    cell: Cell,
    oid: [u8; 16],
    open_flags: u32,
    mode: u32,
    path_bytes: u32,
    path: [u8; PATH_BYTES],
}

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES);

fn map(file: impl AsFd) -> Result<NonNull<Page>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let address = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, file, 0)
    }?;
    NonNull::new(address.cast()).ok_or(azekura_posix::Errno::NOMEM)
}

/// Gives a page back.
///
/// # Safety
/// The cell is that of a page mapped here, and nobody uses the page any more.
pub(super) unsafe fn unmap(cell: NonNull<Cell>) {
    // SAFETY: the cell lies in the page.
    let page = unsafe { cell.byte_sub(std::mem::offset_of!(Page, cell)) };
    // SAFETY: the caller says so. It cannot fail but for a mapping that is not there.
    let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), PAGE_BYTES) };
}

fn again(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Moves one description to a page of its own, and its numbers to that page's file.
fn share(description: &Description, numbers: &[c_int]) -> Result<()> {
    let file = rustix::fs::memfd_create(c"azekura", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, PAGE_BYTES as u64)?;
    let page = map(&file)?;
    let path = description.path();
    let path = if path.len() <= PATH_BYTES { path } else { b"" };
    // SAFETY: the page is mapped, zeroed, large enough, and nobody else has it yet.
    unsafe {
        let page = page.as_ptr();
        (&raw mut (*page).oid).write(description.oid().to_bytes());
        (&raw mut (*page).open_flags).write(description.open_flags().bits());
        (&raw mut (*page).mode).write(description.kind().mode_bits());
        (&raw mut (*page).path_bytes).write(path.len() as u32);
        (&raw mut (*page).path).cast::<u8>().copy_from(path.as_ptr(), path.len());
        description.position().share(NonNull::from(&(*page).cell));
        (&raw mut (*page).magic).write(MAGIC);
    }
    let shown = again(&file, OFlags::RDONLY)?;
    rustix::fs::seek(&shown, SeekFrom::End(0))?;
    for number in numbers {
        // SAFETY: the number is reserved by us and open.
        let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(*number) })?;
        let close_on_exec =
            if flags.contains(rustix::io::FdFlags::CLOEXEC) { libc::O_CLOEXEC } else { 0 };
        // SAFETY: replaces a number that is ours by another reservation.
        unsafe { crate::host::dup3(shown.as_raw_fd(), *number, close_on_exec) };
    }
    Ok(())
}

/// Makes every open file description ready for another process. Only while no other thread is in our
/// code. One that fails keeps its position to itself.
pub(crate) fn share_all() {
    let mut numbers: HashMap<*const Description, (Arc<Description>, Vec<c_int>)> = HashMap::new();
    for (fd, description) in table::all() {
        if description.backing() == Backing::Reserved && !description.position().is_shared() {
            let place = Arc::as_ptr(&description);
            numbers.entry(place).or_insert_with(|| (description, Vec::new())).1.push(fd);
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
    let mapped = map(again(fd, OFlags::RDWR)?)?;
    // SAFETY: a mapping of the page's size; its fields but the cell do not change after the first
    // process has written them, and any bytes are valid values of them.
    let page = unsafe { mapped.as_ref() };
    let path_bytes = page.path_bytes as usize;
    let (MAGIC, Some(kind), Some(path), Some(oid)) = (
        page.magic,
        FileKind::from_mode(page.mode),
        page.path.get(..path_bytes),
        Oid::from_bytes(&page.oid),
    ) else {
        return Ok(None);
    };
    // SAFETY: the mapping is the position's from here on.
    let position = unsafe { Position::shared(NonNull::from(&page.cell)) };
    let flags = OFlags::from_bits_retain(page.open_flags) & !CHANGEABLE;
    Ok(Some(Description::unopened(oid, kind, flags, position, path.to_vec())))
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
