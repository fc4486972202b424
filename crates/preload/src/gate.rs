//! Going in and out of our code. Owns five dangers of living in somebody else's process: our own
//! calls of the C library, which come back to the hooks; signal handlers of the host that call in
//! while we hold locks; threads that are cancelled and forks in the middle of an operation; and
//! panics, which must not get out.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_posix::{Errno, Result};
use parking_lot::RwLock;
use parking_lot::lock_api::RawRwLock as _;

use crate::host::{self, Failing};
use crate::report::{self, Counter};

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

const CANCEL_DISABLE: c_int = 1;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The signal mask of the thread that is forking.
    static MASK_BEFORE_FORK: Cell<Option<u64>> = const { Cell::new(None) };
    /// Whether that thread could be cancelled.
    static CANCEL_BEFORE_FORK: Cell<c_int> = const { Cell::new(0) };
}

/// The signals that the host has handlers for: bit `n - 1` for signal `n`. While a thread is in our
/// code these wait, so that no handler finds our locks held. Signals without a handler take their
/// default action at once, and a program without handlers pays nothing.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Read by every operation, written by a fork: so that the child does not inherit a lock of a thread
/// that it does not have.
static OPERATIONS: RwLock<()> = RwLock::new(());

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
pub(crate) fn note_handler(signal: c_int, has_handler: bool) {
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
pub(crate) fn handlers_interrupt() -> bool {
    let handled = HANDLED.load(Ordering::Relaxed);
    (1..=64).filter(|signal| handled & bit(*signal) != 0).any(|signal| {
        // SAFETY: a structure of numbers and an optional pointer, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks only, into a valid structure.
        let told = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        told == 0 && action.sa_flags & libc::SA_RESTART == 0
    })
}

/// Whether the calling thread is in our code, so that a hook has to pass its call on.
pub(crate) fn is_inside() -> bool {
    // A thread that is being torn down has no variables any more.
    INSIDE.try_with(Cell::get).unwrap_or(true)
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

/// Lets the signals that the host handles wait; gives the mask before, if there are any.
fn block_handled() -> Option<u64> {
    let handled = HANDLED.load(Ordering::Relaxed);
    (handled != 0).then(|| change_mask(libc::SIG_BLOCK, handled))
}

/// Changes whether the calling thread can be cancelled; gives what was. A thread that ends in our code
/// would never give back what it holds.
fn change_cancelling(state: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: a plain call that takes the two states only.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

/// Ends the thread if somebody has cancelled it (`pthread_cancel`), as the C library's function would;
/// called before the thread enters. The host's frames and ours are unwound then.
pub(crate) fn cancellation_point() {
    if !is_inside() {
        // SAFETY: the thread is outside, so it holds nothing of ours.
        unsafe { pthread_testcancel() };
    }
}

/// A thread's stay in our code. Ends by drop; `errno` is then as it was.
pub(crate) struct Stay {
    errno: c_int,
    mask: Option<u64>,
    cancelling: c_int,
}

impl Stay {
    /// Enters, if the thread is not inside already.
    pub(crate) fn begin() -> Option<Self> {
        if is_inside() {
            return None;
        }
        let errno = host::errno();
        let cancelling = change_cancelling(CANCEL_DISABLE);
        // In this order, here and at the end: a handler that runs before or after finds its thread
        // outside.
        let mask = block_handled();
        INSIDE.set(true);
        // SAFETY: given back by this value's drop; the thread does not come here twice.
        unsafe { OPERATIONS.raw() }.lock_shared();
        Some(Self { errno, mask, cancelling })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // SAFETY: taken by `begin`.
        unsafe { OPERATIONS.raw().unlock_shared() };
        host::set_errno(self.errno);
        INSIDE.set(false);
        if let Some(mask) = self.mask {
            change_mask(libc::SIG_SETMASK, mask);
        }
        change_cancelling(self.cancelling);
    }
}

/// Does something in our code, and nothing (`None`) if the thread is there already. A panic becomes
/// `EIO`.
pub(crate) fn visit<T>(body: impl FnOnce() -> Result<T>) -> Option<Result<T>> {
    let stay = Stay::begin()?;
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        report::trouble("a defect of the preload library: an operation was given up with EIO");
        Err(Errno::IO)
    });
    drop(stay);
    Some(result)
}

/// What the C caller gets: the value, or the failed one with `errno`.
pub(crate) fn conclude<R: Failing>(counter: &'static Counter, result: Result<R>) -> R {
    counter.served();
    match result {
        Ok(value) => value,
        Err(errno) => {
            if errno == Errno::IO {
                report::failed(counter);
            }
            host::set_errno(errno.raw_os_error());
            R::FAILED
        }
    }
}

/// Keeps every other thread out of our code; for a fork. The thread counts as inside meanwhile.
pub(crate) fn close_for_fork() {
    CANCEL_BEFORE_FORK.set(change_cancelling(CANCEL_DISABLE));
    MASK_BEFORE_FORK.set(block_handled());
    INSIDE.set(true);
    // SAFETY: given back by `open_after_fork` in parent and child.
    unsafe { OPERATIONS.raw() }.lock_exclusive();
}

/// Lets the others in again, in the parent and in the child.
pub(crate) fn open_after_fork() {
    // SAFETY: taken by `close_for_fork` of the same thread, which the child is a copy of.
    unsafe { OPERATIONS.raw().unlock_exclusive() };
    INSIDE.set(false);
    if let Some(mask) = MASK_BEFORE_FORK.take() {
        change_mask(libc::SIG_SETMASK, mask);
    }
    change_cancelling(CANCEL_BEFORE_FORK.get());
}
