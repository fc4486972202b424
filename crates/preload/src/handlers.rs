//! The signals that the host has handlers for. Owns which they are: while a thread is in our code they
//! wait, so that no handler finds our locks held. Signals without a handler take their default action at
//! once, and a program without handlers pays nothing.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bit `n - 1` for signal `n`.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Signals that a handler gets at once also in our code, since they are faults of the very
/// instruction.
const FAULTS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP);

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The host has installed a handler, or has gone back to the default.
pub(crate) fn note(signal: c_int, has_handler: bool) {
    if !(1..=64).contains(&signal) || bit(signal) & FAULTS != 0 {
        return;
    }
    if has_handler {
        HANDLED.fetch_or(bit(signal), Ordering::Relaxed);
    } else {
        HANDLED.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// Whether a handler can have been installed so that it ends a call that waits: one without
/// `SA_RESTART`.
pub(crate) fn can_interrupt() -> bool {
    let handled = HANDLED.load(Ordering::Relaxed);
    (1..=64).filter(|signal| handled & bit(*signal) != 0).any(|signal| {
        // SAFETY: a structure of numbers and an optional pointer, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks only, into a valid structure.
        let told = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        told == 0 && action.sa_flags & libc::SA_RESTART == 0
    })
}

fn change_mask(how: c_int, set: u64) -> u64 {
    let mut old = 0_u64;
    // SAFETY: the kernel's signal set is 8 bytes on all 64-bit machines; both pointers are valid.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            &raw mut old,
            size_of::<u64>(),
        );
    }
    old
}

/// The calling thread's signal mask from before its handlers were made to wait; `None` if there are no
/// handlers, and the mask was left alone.
#[derive(Clone, Copy)]
pub(crate) struct MaskBefore(Option<u64>);

impl MaskBefore {
    /// Nothing to restore.
    pub(crate) const NONE: Self = Self(None);

    /// Gives the mask back.
    pub(crate) fn restore(self) {
        if let Some(mask) = self.0 {
            change_mask(libc::SIG_SETMASK, mask);
        }
    }
}

/// Makes the signals that the host handles wait, for the calling thread.
pub(crate) fn block() -> MaskBefore {
    let handled = HANDLED.load(Ordering::Relaxed);
    MaskBefore((handled != 0).then(|| change_mask(libc::SIG_BLOCK, handled)))
}
