//! The cell of memory that an open file description's position and status flags lie in. Owns the lock in
//! it, which works between processes and outlives one that dies while it holds it.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use azekura_client::this_process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, test_kill_process};

/// Looks at a lock before its holder is asked after.
const SPINS: u32 = 200;
/// Pause between looks after that.
const PAUSE: Duration = Duration::from_micros(50);
/// Looks with a pause before the lock of a process that is gone is taken over.
const LOOKS: u32 = 2000;

/// Position and status flags. Processes share it as it is, so its form is fixed.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Cell {
    /// The process that is moving the position; 0 for none.
    holder: AtomicU32,
    /// `O_APPEND` and other flags that `fcntl` can change.
    flags: AtomicI32,
    offset: AtomicU64,
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
    /// At the start of the file.
    pub(super) fn new(flags: i32) -> Self {
        Self { flags: AtomicI32::new(flags), ..Self::default() }
    }

    /// Takes over what another one says; nobody may hold either.
    pub(super) fn copy_from(&self, other: &Self) {
        debug_assert_eq!(other.holder.load(Ordering::Relaxed), 0, "a held position is copied");
        self.holder.store(0, Ordering::Relaxed);
        self.set_flags(other.flags());
        self.offset.store(other.offset.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn flags(&self) -> i32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(super) fn set_flags(&self, flags: i32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(super) fn lock(&self) -> Moving<'_> {
        let me = this_process();
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
