//! Memory that a forked child does not get. Owns the one mapping of its kind.

#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Whole pages, whatever their size is.
const PAGE_BYTES: usize = 64 * 1024;

/// A number that is 0, and 0 again in each forked child (`MADV_WIPEONFORK`, Linux 4.14). None where the kernel has
/// no such memory.
pub(crate) fn wiped_on_fork() -> Option<&'static AtomicU32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: A new mapping where the kernel wants it takes the place of none.
    let page =
        unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: The mapping is this function's, and nothing is in it yet.
    if unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: As above; nothing points into it.
        let _ = unsafe { munmap(page, PAGE_BYTES) };
        return None;
    }
    // SAFETY: The mapping is aligned, is never given back, holds 0, and is reached by this reference alone.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}
