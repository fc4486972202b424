//! What happens around `fork`. Owns what keeps other threads out of short critical sections while a
//! process forks: a lock that is held at that moment would stay held in the child
//! for ever. What becomes of sessions and connections in the child is the business of `client`.
//!
//! A fork waits until no call is under way, but not for long: a call that takes longer than
//! [`PATIENCE`] waits for an engine, and while it does that it holds nothing that a child needs.

use std::sync::Once;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use azekura_posix::Errno;

use crate::failure::{Failure, Outcome};

/// How long a fork waits for calls under way.
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// Calls under way. In a child it may fall below 0: calls that began in the parent end there too.
static INSIDE: AtomicI64 = AtomicI64::new(0);
/// Threads that are forking.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// A call under way, until dropped.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Release);
    }
}

/// Begins a call; waits while another thread forks.
pub(crate) fn enter() -> Inside {
    loop {
        // Both sides write first and look second, so that at least one sees the other.
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(());
        if FORKING.load(Ordering::SeqCst) == 0 {
            return inside;
        }
        drop(inside);
        std::thread::sleep(PAUSE);
    }
}

extern "C" fn before() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let mut since = None;
    while INSIDE.load(Ordering::SeqCst) > 0 {
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

extern "C" fn in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    // The child has neither the other threads nor the calls that they were in.
    INSIDE.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}

/// Has the three of them called at every fork from now on.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn watch() -> Outcome<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicU32 = AtomicU32::new(0);
    ONCE.call_once(|| {
        // SAFETY: the three functions take nothing, give nothing, and never unwind; the C library
        // forgets them if this library is unloaded.
        let code = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        FAILED.store(u32::from(code != 0), Ordering::Relaxed);
    });
    match FAILED.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Failure::with(Errno::NOMEM, "no memory to register for forks")),
    }
}
