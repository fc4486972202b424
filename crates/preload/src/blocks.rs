//! The memory of the library that records and does nothing else. It takes some now and then, to look at a
//! program that is started, and gives it back at once; so there are a few blocks of a page each, and pages of
//! the kernel for all else. No lock, and nothing to begin with: a signal handler of the host may come in
//! anywhere, and a program that starts none pays nothing.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A block, in bytes.
const BLOCK_BYTES: usize = 4096;
/// What a block is aligned to.
const BLOCK_ALIGN: usize = 16;
/// What a mapping is aligned to at least.
const PAGE_ALIGN: usize = 4096;
/// Blocks; a bit for each.
const BLOCKS: usize = 4;

#[repr(align(16))]
struct Memory(UnsafeCell<[[u8; BLOCK_BYTES]; BLOCKS]>);

/// The allocator.
pub(crate) struct Blocks {
    /// Bit `n` for block `n`.
    taken: AtomicU32,
    memory: Memory,
}

// SAFETY: a block belongs to whoever has set its bit.
unsafe impl Sync for Blocks {}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            memory: Memory(UnsafeCell::new([[0; BLOCK_BYTES]; BLOCKS])),
        }
    }

    fn start(&self) -> *mut u8 {
        self.memory.0.get().cast()
    }

    fn take(&self) -> Option<*mut u8> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let free = taken.trailing_ones();
            if free as usize >= BLOCKS {
                return None;
            }
            let with = taken | 1 << free;
            match self.taken.compare_exchange_weak(
                taken,
                with,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(self.start().wrapping_add(free as usize * BLOCK_BYTES)),
                Err(now) => taken = now,
            }
        }
    }

    fn place(&self, block: *mut u8) -> Option<usize> {
        let place = block.addr().checked_sub(self.start().addr())? / BLOCK_BYTES;
        (place < BLOCKS).then_some(place)
    }
}

// SAFETY: blocks and mappings are as large as is asked, and are nobody else's.
unsafe impl GlobalAlloc for Blocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE_ALIGN {
            return std::ptr::null_mut();
        }
        if layout.size() <= BLOCK_BYTES
            && layout.align() <= BLOCK_ALIGN
            && let Some(block) = self.take()
        {
            return block;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let pages = unsafe {
            mmap_anonymous(std::ptr::null_mut(), layout.size(), protection, MapFlags::PRIVATE)
        };
        pages.map_or(std::ptr::null_mut(), <*mut _>::cast)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.place(block) {
            Some(place) => drop(self.taken.fetch_and(!(1 << place), Ordering::Release)),
            // SAFETY: a mapping of that size from above.
            None => drop(unsafe { munmap(block.cast(), layout.size()) }),
        }
    }
}
