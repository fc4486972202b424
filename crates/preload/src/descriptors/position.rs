//! Where an open file description stands, and its status flags. Owns the memory that they lie in:
//! the process's own at first, a page shared with children from the first fork or exec on, since
//! POSIX has one position for all of them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, test_kill_process};

/// Looks at a lock before its holder is asked after.
const SPINS: u32 = 200;
/// Pause between looks after that.
const PAUSE: Duration = Duration::from_micros(50);
/// Looks with a pause before the lock of a process that is gone is taken over.
const LOOKS: u32 = 2000;

/// The shared part of an open file description.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Cell {
    /// The process that is moving the position; 0 for none.
    holder: AtomicU32,
    /// `O_APPEND` and other flags that `fcntl` can change.
    flags: AtomicI32,
    offset: AtomicU64,
}

#[derive(Debug)]
enum Place {
    Own(Box<Cell>),
    /// In a mapping that is the position's own.
    Shared(NonNull<Cell>),
}

// SAFETY: a cell is atomics only; the mapping is there as long as the position.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// The position of an open file description.
#[derive(Debug)]
pub(crate) struct Position {
    place: RwLock<Place>,
}

/// The right to move the position; given back on drop.
pub(crate) struct Moving<'a> {
    cell: &'a Cell,
}

impl Moving<'_> {
    /// The offset in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.cell.offset.load(Ordering::Relaxed)
    }

    /// Moves to another offset.
    pub(crate) fn set(&self, offset: u64) {
        self.cell.offset.store(offset, Ordering::Relaxed);
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.cell.holder.store(0, Ordering::Release);
    }
}

/// Whether a process has ended, also if its parent has not yet asked how.
fn is_gone(process: u32) -> bool {
    let Some(process) = rustix::process::Pid::from_raw(process as i32) else { return true };
    match pidfd_open(process, PidfdFlags::empty()) {
        // It can be read from as soon as the process has ended.
        Ok(ended) => {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&at_once)) == Ok(1)
        }
        Err(Errno::SRCH) => true,
        Err(_) => test_kill_process(process) == Err(Errno::SRCH),
    }
}

impl Cell {
    fn lock(&self) -> Moving<'_> {
        let me = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let mut looks = 0;
        loop {
            let free =
                self.holder.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed);
            let Err(holder) = free else { return Moving { cell: self } };
            looks += 1;
            if looks < SPINS {
                std::hint::spin_loop();
                continue;
            }
            std::thread::sleep(PAUSE);
            if looks % LOOKS == 0
                && holder != 0
                && is_gone(holder)
                && self
                    .holder
                    .compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Moving { cell: self };
            }
        }
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if let Place::Shared(cell) = self.place.get_mut() {
            // SAFETY: the mapping is the position's own, and nobody else has the position.
            unsafe { super::inherit::unmap(*cell) };
        }
    }
}

impl Position {
    /// At the start, with these flags.
    pub(crate) fn new(flags: i32) -> Self {
        let cell = Cell { flags: AtomicI32::new(flags), ..Cell::default() };
        Self { place: RwLock::new(Place::Own(Box::new(cell))) }
    }

    /// A position that another process may share.
    ///
    /// # Safety
    /// The pointer leads to a cell in a mapping from `inherit`, which goes with the position.
    pub(crate) unsafe fn shared(cell: NonNull<Cell>) -> Self {
        Self { place: RwLock::new(Place::Shared(cell)) }
    }

    /// Whether other processes share it.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(&*self.place.read(), Place::Shared(_))
    }

    /// Moves it to shared memory.
    ///
    /// # Safety
    /// As [`Position::shared`]; and no other thread uses the position meanwhile.
    pub(crate) unsafe fn share(&self, cell: NonNull<Cell>) {
        let mut place = self.place.write();
        if let Place::Own(own) = &*place {
            // SAFETY: the caller says that it is valid.
            let shared = unsafe { cell.as_ref() };
            shared.holder.store(0, Ordering::Relaxed);
            shared.flags.store(own.flags.load(Ordering::Relaxed), Ordering::Relaxed);
            shared.offset.store(own.offset.load(Ordering::Relaxed), Ordering::Relaxed);
            *place = Place::Shared(cell);
        }
    }

    fn with<T>(&self, body: impl FnOnce(&Cell) -> T) -> T {
        match &*self.place.read() {
            Place::Own(cell) => body(cell),
            // SAFETY: shared cells stay valid for the life of the position.
            Place::Shared(cell) => body(unsafe { cell.as_ref() }),
        }
    }

    /// Does something while nobody else moves the position.
    pub(crate) fn locked<T>(&self, body: impl FnOnce(&Moving<'_>) -> T) -> T {
        self.with(|cell| body(&cell.lock()))
    }

    /// The status flags.
    pub(crate) fn flags(&self) -> i32 {
        self.with(|cell| cell.flags.load(Ordering::Relaxed))
    }

    /// Changes the status flags.
    pub(crate) fn set_flags(&self, flags: i32) {
        self.with(|cell| cell.flags.store(flags, Ordering::Relaxed));
    }
}
