//! The library's own memory. The host's allocator may be in any state when a signal handler of the host
//! calls us, so ours is a separate one. Owns that no thread is in it while the process forks, wherever in
//! our code the allocation comes from: its locks would stay taken in the child. Owns also that a program which
//! hardly uses the pool pays for no more memory than it touches.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;

use mimalloc::MiMalloc;

use crate::guard::Guard;

/// What is set apart, in bytes of address space.
const RESERVED_BYTES: usize = 256 << 20;

unsafe extern "C" {
    /// Sets memory apart to allocate from, with huge pages or without; not 0 if there is none.
    /// (mimalloc.h; the crate declares it only with a feature that brings a dependency.)
    safe fn mi_reserve_os_memory(bytes: usize, commit: bool, allow_large: bool) -> c_int;
}

/// An allocator that is entered under the guard.
pub(crate) struct Guarded;

/// Sets apart what most programs get by with, before anything else is allocated for them. By itself the allocator
/// asks for a GiB of huge pages, the first of which the kernel fills with zeros as soon as a byte of it is needed: a
/// part of the time of a program like `cat` of a small file that shows. Programs with much in flight still come to
/// it, behind this.
pub(crate) fn reserve() {
    let _guard = Guard::enter();
    // Where it cannot be had, it goes as it would without.
    mi_reserve_os_memory(RESERVED_BYTES, true, false);
}

// SAFETY: hands everything on to an allocator.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _guard = Guard::enter();
        // SAFETY: the caller's conditions.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _guard = Guard::enter();
        // SAFETY: the caller's conditions.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _guard = Guard::enter();
        // SAFETY: the caller's conditions.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let _guard = Guard::enter();
        // SAFETY: the caller's conditions.
        unsafe { MiMalloc.realloc(block, layout, bytes) }
    }
}
