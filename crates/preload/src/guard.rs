//! The guard around our code, which keeps off four dangers of living in somebody else's process: our own
//! calls of the C library, which come back to the hooks; signal handlers of the host that call in while
//! we hold locks; threads that are cancelled, and forks, in the middle of an operation.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::handlers::{self, MaskBefore};
use crate::host;
use crate::scope::RECORDS_ONLY;

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
    /// What the thread that is forking holds.
    static FORKING: Cell<Option<ManuallyDrop<RwLockWriteGuard<'static, ()>>>> =
        const { Cell::new(None) };
}

/// Read by every operation, written by a fork: so that the child does not inherit a lock of a thread
/// that it does not have. Of the standard library, whose lock is a number in memory: one that allocates
/// for those that wait would have them in the allocator, outside of it, while the process forks.
static OPERATIONS: RwLock<()> = RwLock::new(());

fn enter_operations() -> RwLockReadGuard<'static, ()> {
    OPERATIONS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the calling thread is in our code, so that a hook has to pass its call on.
pub(crate) fn is_inside() -> bool {
    // A thread that is being torn down has no variables any more.
    !RECORDS_ONLY && INSIDE.try_with(Cell::get).unwrap_or(true)
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
    operation: ManuallyDrop<RwLockReadGuard<'static, ()>>,
}

impl Guard {
    /// Enters, if the thread is not inside already.
    pub(crate) fn enter() -> Option<Self> {
        // What only records takes no lock, and calls nothing that is hooked.
        if RECORDS_ONLY || is_inside() {
            return None;
        }
        let errno = host::errno();
        let cancelling = change_cancelling(CANCEL_DISABLE);
        // In this order, here and at the end: a handler that runs before or after finds its thread
        // outside.
        let mask = handlers::block();
        INSIDE.set(true);
        let operation = ManuallyDrop::new(enter_operations());
        Some(Self { errno, mask, cancelling, operation })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        debug_assert!(is_inside(), "a thread leaves our code that is not in it");
        // SAFETY: the value is being dropped, so it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.operation) };
        host::set_errno(self.errno);
        INSIDE.set(false);
        self.mask.restore();
        change_cancelling(self.cancelling);
    }
}

/// Keeps every other thread out of our code; for a fork. The thread counts as inside meanwhile.
pub(crate) fn close_for_fork() {
    if RECORDS_ONLY {
        return;
    }
    CANCEL_BEFORE_FORK.set(change_cancelling(CANCEL_DISABLE));
    MASK_BEFORE_FORK.set(handlers::block());
    INSIDE.set(true);
    let alone = OPERATIONS.write().unwrap_or_else(PoisonError::into_inner);
    // Given back by `open_after_fork` in parent and child.
    FORKING.set(Some(ManuallyDrop::new(alone)));
}

/// Lets the others in again, in the parent and in the child.
pub(crate) fn open_after_fork() {
    if RECORDS_ONLY {
        return;
    }
    debug_assert!(is_inside(), "a fork ends that was not prepared");
    // Those that wait in the parent are not there in the child, which is no harm to this lock.
    drop(FORKING.take().map(ManuallyDrop::into_inner));
    INSIDE.set(false);
    MASK_BEFORE_FORK.replace(MaskBefore::NONE).restore();
    change_cancelling(CANCEL_BEFORE_FORK.get());
}
