//! How commits call the thread that brings them to the database. Owns the rule that a commit wakes the
//! thread only if that would sleep on, or if there is much to do.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The thread sleeps until it is called.
const ASLEEP: u8 = 0;
/// The thread will look by itself.
const WATCHING: u8 = 1;
/// The thread was called and has not looked yet.
const CALLED: u8 = 2;

/// How commits call the thread.
pub(crate) struct Call {
    state: AtomicU8,
    stopping: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Call {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(WATCHING),
            stopping: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Says that something is pending; `many` asks for haste.
    pub(crate) fn pending(&self, many: bool) {
        match self.state.load(Ordering::Acquire) {
            ASLEEP => self.call(),
            WATCHING if many => self.call(),
            _ => {}
        }
    }

    #[cold]
    fn call(&self) {
        let _held = self.lock.lock();
        self.state.store(CALLED, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.call();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets `pause` pass, unless there is a call for haste.
    pub(crate) fn pause(&self, pause: Duration) {
        let mut held = self.lock.lock();
        if self.state.load(Ordering::Acquire) != CALLED && !self.is_stopping() {
            self.wake.wait_for(&mut held, pause);
        }
        self.state.store(WATCHING, Ordering::Release);
    }

    /// Lets `pause` pass, whoever calls, unless the thread is to end.
    pub(crate) fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut held = self.lock.lock();
        while !self.is_stopping() && !self.wake.wait_until(&mut held, until).timed_out() {}
    }

    /// Sleeps until there is a call, unless there is something pending.
    pub(crate) fn sleep(&self, has_pending: impl Fn() -> bool) {
        let mut held = self.lock.lock();
        // Before the look: a commit that the look misses sees this.
        self.state.store(ASLEEP, Ordering::Release);
        if !has_pending() {
            while self.state.load(Ordering::Acquire) == ASLEEP && !self.is_stopping() {
                self.wake.wait(&mut held);
            }
        }
        // What called needs no haste.
        self.state.store(WATCHING, Ordering::Release);
    }
}
