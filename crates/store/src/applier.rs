//! The thread that brings pending batches to the database. Owns when it does so: soon after a
//! commit, but late enough for a worthwhile group and out of the way of the next request; never
//! when nothing is pending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::StoreError;
use crate::kv::KeyValues;

/// Between a look at the pending batches and the next one, while there are some.
const PAUSE: Duration = Duration::from_millis(2);
/// The pause doubles with every look that finds nothing, up to this; then the thread waits for a
/// call. So a commit has to wake it only after some time without any.
const PAUSE_MAX: Duration = Duration::from_millis(128);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

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

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.call();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets `pause` pass, unless there is a call for haste.
    fn pause(&self, pause: Duration) {
        let mut held = self.lock.lock();
        if self.state.load(Ordering::Acquire) != CALLED && !self.is_stopping() {
            self.wake.wait_for(&mut held, pause);
        }
        self.state.store(WATCHING, Ordering::Release);
    }

    /// Sleeps until there is a call, unless there is something pending.
    fn sleep(&self, has_pending: impl Fn() -> bool) {
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

/// The thread, ended and joined on drop; then everything is in the database, unless that failed.
pub(crate) struct ApplierThread {
    kv: Arc<KeyValues>,
    thread: Option<JoinHandle<()>>,
}

impl ApplierThread {
    pub(crate) fn start(kv: &Arc<KeyValues>) -> Result<Self, StoreError> {
        let worker = Arc::clone(kv);
        let thread = std::thread::Builder::new()
            .name("azekura-apply".to_owned())
            .spawn(move || run(&worker))
            .map_err(|error| StoreError::system(kv.dir(), "start a thread for", error))?;
        Ok(Self { kv: Arc::clone(kv), thread: Some(thread) })
    }
}

impl Drop for ApplierThread {
    fn drop(&mut self) {
        self.kv.front().call.stop();
        if let Some(thread) = self.thread.take() {
            // It has no way to panic; and if it did, there is nothing left to do here.
            let _ = thread.join();
        }
        if let Err(error) = self.kv.drain() {
            tracing::error!(%error, "the last commits stay in their journal until the next start");
        }
    }
}

fn run(kv: &KeyValues) {
    let front = kv.front();
    let mut pause = PAUSE;
    while !front.call.is_stopping() {
        front.call.pause(pause);
        let idle = !front.has_pending();
        if idle && pause == PAUSE_MAX {
            front.call.sleep(|| front.has_pending());
            pause = PAUSE;
        } else if idle {
            pause = (pause * 2).min(PAUSE_MAX);
        } else {
            pause = match kv.apply_pending() {
                Ok(()) => PAUSE,
                Err(_) => PAUSE_AFTER_FAILURE,
            };
        }
    }
}
