//! Memory that a forked child does not get. Owns the one mapping of its kind.

#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

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
