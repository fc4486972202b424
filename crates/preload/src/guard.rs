//! The guard around our code, which keeps off four dangers of living in somebody else's process: our own
//! calls of the C library, which come back to the hooks; signal handlers of the host that call in while
//! we hold locks; threads that are cancelled, and forks, in the middle of an operation.

use std::cell::Cell;
use std::ffi::c_int;

use parking_lot::RwLock;
use parking_lot::lock_api::RawRwLock as _;

use crate::handlers::{self, MaskBefore};
use crate::host;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

const CANCEL_DISABLE: c_int = 1;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The signal mask of the thread that is forking.
    static MASK_BEFORE_FORK: Cell<MaskBefore> = const { Cell::new(MaskBefore::NONE) };
    /// Whether that thread could be cancelled.
    static CANCEL_BEFORE_FORK: Cell<c_int> = const { Cell::new(0) };
}

/// Read by every operation, written by a fork: so that the child does not inherit a lock of a thread
/// that it does not have.
static OPERATIONS: RwLock<()> = RwLock::new(());

/// Whether the calling thread is in our code, so that a hook has to pass its call on.
pub(crate) fn is_inside() -> bool {
    // A thread that is being torn down has no variables any more.
    INSIDE.try_with(Cell::get).unwrap_or(true)
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

/// A thread's time in our code. Ends by drop; `errno` is then as it was.
pub(crate) struct Guard {
    errno: c_int,
    mask: MaskBefore,
    cancelling: c_int,
}

impl Guard {
    /// Enters, if the thread is not inside already.
    pub(crate) fn enter() -> Option<Self> {
        if is_inside() {
            return None;
        }
        let errno = host::errno();
        let cancelling = change_cancelling(CANCEL_DISABLE);
        // In this order, here and at the end: a handler that runs before or after finds its thread
        // outside.
        let mask = handlers::block();
        INSIDE.set(true);
        // SAFETY: given back by this value's drop; the thread does not come here twice.
        unsafe { OPERATIONS.raw() }.lock_shared();
        Some(Self { errno, mask, cancelling })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        debug_assert!(is_inside(), "a thread leaves our code that is not in it");
        // SAFETY: taken by `enter`.
        unsafe { OPERATIONS.raw().unlock_shared() };
        host::set_errno(self.errno);
        INSIDE.set(false);
        self.mask.restore();
        change_cancelling(self.cancelling);
    }
}

/// Keeps every other thread out of our code; for a fork. The thread counts as inside meanwhile.
pub(crate) fn close_for_fork() {
    CANCEL_BEFORE_FORK.set(change_cancelling(CANCEL_DISABLE));
    MASK_BEFORE_FORK.set(handlers::block());
    INSIDE.set(true);
    // SAFETY: given back by `open_after_fork` in parent and child.
    unsafe { OPERATIONS.raw() }.lock_exclusive();
}

/// Lets the others in again, in the parent and in the child.
pub(crate) fn open_after_fork() {
    debug_assert!(is_inside(), "a fork ends that was not prepared");
    // SAFETY: taken by `close_for_fork` of the same thread, which the child is a copy of.
    unsafe { OPERATIONS.raw().unlock_exclusive() };
    INSIDE.set(false);
    MASK_BEFORE_FORK.replace(MaskBefore::NONE).restore();
    change_cancelling(CANCEL_BEFORE_FORK.get());
}
