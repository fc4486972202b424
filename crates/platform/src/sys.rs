//! Mappings: memory that a forked child does not get, of which there is one, and memory that two processes
//! share.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Whole pages, whatever their size is.
const PAGE_BYTES: usize = 64 * 1024;

/// A number that is 0, and 0 again in each forked child (`MADV_WIPEONFORK`, Linux 4.14). None where the kernel has
/// no such memory. Without a lock: a child could find it held for ever.
pub(crate) fn wiped_on_fork() -> Option<&'static AtomicU32> {
    /// Stands for a mapping that could not be made.
    static MISSING: AtomicU32 = AtomicU32::new(0);
    static MAPPED: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
    let missing = ptr::from_ref(&MISSING).cast_mut();
    let mut mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() {
        let made = map();
        mapped = made.unwrap_or(missing);
        let taken =
            MAPPED.compare_exchange(ptr::null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire);
        if let Err(first) = taken {
            // SAFETY: The mapping was made just now, and nobody else knows of it.
            made.map(|page| unsafe { munmap(page.cast(), PAGE_BYTES) });
            mapped = first;
        }
    }
    // SAFETY: Whatever is there is aligned, holds a number, and is never given back.
    (mapped != missing).then(|| unsafe { &*mapped })
}

fn map() -> Option<*mut AtomicU32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: A new mapping where the kernel wants it takes the place of none.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: The mapping is this function's, and nothing is in it yet.
    if unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: As above; nothing points into it.
        let _ = unsafe { munmap(page, PAGE_BYTES) };
        return None;
    }
    Some(page.cast())
}

/// A file in memory as words that other processes may change at any time.
#[derive(Debug)]
pub(crate) struct MappedWords {
    first: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: The mapping belongs to the process, and its words are atomic.
unsafe impl Send for MappedWords {}
// SAFETY: As above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps the first `count` words of a file that is as long as that and never becomes shorter.
    pub(crate) fn map(file: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = count * size_of::<AtomicU64>();
        // SAFETY: A new mapping where the kernel wants it takes the place of none.
        let page = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        let first = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, count })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: So many words are mapped, page-aligned, as long as `self` is there; the file does not become shorter,
        // so that all of them exist, and whoever else writes to them finds nothing but atomic reads here.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<AtomicU64>();
        // SAFETY: Mapped by `map`, and nobody has a word of it any more. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), bytes) };
    }
}
