//! The library's own memory. The host's allocator may be in any state when a signal handler of the host
//! calls us, so ours is a separate one. Owns that no thread is in it while the process forks, wherever in
//! our code the allocation comes from: its locks would stay taken in the child.

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;

use crate::guard::Guard;

/// An allocator that is entered under the guard.
pub(crate) struct Guarded;

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
