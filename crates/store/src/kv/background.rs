//! What goes on behind the commits: one thread brings pending batches to the database, one seals full
//! memtables. Owns when they do so, and their end. In a simulation neither is started: there
//! `Store::pass` does their work on the caller's thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use azekura_platform::Thread;

use super::KeyValues;
use crate::error::StoreError;

/// Between a look at the pending batches and the next one, while there are some.
const PAUSE: Duration = Duration::from_millis(8);
/// The pause doubles with every look that finds nothing, up to this; then the thread waits for a
/// call. So a commit has to wake it only after some time without any.
const PAUSE_MAX: Duration = Duration::from_millis(128);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Other targets are asked to make durable what commits rely on, each time for all that has come
/// meanwhile. That takes a twentieth of the time, within these bounds: what came in between can be taken
/// back, should they lose it, but a disk has other things to do than to sync.
const SETTLE_SHARE: u32 = 20;
const SETTLE_INTERVAL_MIN: Duration = Duration::from_millis(5);
const SETTLE_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Starts a thread that works for `kv`; none in a simulation.
fn start(
    kv: &Arc<KeyValues>,
    name: &str,
    run: impl FnOnce(&KeyValues) + Send + 'static,
) -> Result<Option<Thread>, StoreError> {
    let platform = kv.platform();
    if platform.is_simulated() {
        return Ok(None);
    }
    let worker = Arc::clone(kv);
    let started = platform.spawn(name, Box::new(move || run(&worker)));
    started
        .map(Some)
        .map_err(|error: io::Error| StoreError::system(kv.dir(), "start a thread for", error))
}

fn join(thread: &mut Option<Thread>) {
    if let Some(thread) = thread.take() {
        // It has no way to panic; and if it did, there is nothing left to do here.
        let _ = thread.join();
    }
}

/// The thread that brings pending batches to the database: soon after a commit, but late enough for
/// a worthwhile group and out of the way of the next request. Ended and joined on drop; then
/// everything is in the database but what waits for other targets, unless that failed.
pub(crate) struct Applier {
    kv: Arc<KeyValues>,
    thread: Option<Thread>,
}

impl Applier {
    pub(crate) fn start(kv: &Arc<KeyValues>) -> Result<Self, StoreError> {
        Ok(Self { thread: start(kv, "azekura-apply", apply)?, kv: Arc::clone(kv) })
    }

    /// Whether the work is done without anybody's doing.
    pub(crate) fn has_thread(&self) -> bool {
        self.thread.is_some()
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.kv.front().call.stop();
        join(&mut self.thread);
        if let Err(error) = self.kv.drain_alone() {
            tracing::error!(%error, "the last commits stay in their journal until the next start");
        }
    }
}

fn apply(kv: &KeyValues) {
    let front = kv.front();
    let mut pause = PAUSE;
    let mut settled_at = kv.platform().now();
    let mut settle_interval = SETTLE_INTERVAL_MIN;
    while !front.call.is_stopping() {
        front.call.pause(pause);
        let idle = !front.has_work();
        if idle && pause == PAUSE_MAX {
            front.call.sleep(|| front.has_work());
            pause = PAUSE;
        } else if idle {
            pause = (pause * 2).min(PAUSE_MAX);
        } else {
            let began = kv.platform().now();
            let is_due = kv.platform().elapsed(settled_at) >= settle_interval;
            pause = PAUSE;
            if kv.apply_pending(is_due || front.wants_haste()).is_err() {
                // Not for the commits that call: they would only fail once more.
                front.call.rest(PAUSE_AFTER_FAILURE);
            }
            if is_due {
                settled_at = kv.platform().now();
                settle_interval = (kv.platform().elapsed(began) * SETTLE_SHARE)
                    .clamp(SETTLE_INTERVAL_MIN, SETTLE_INTERVAL_MAX);
            }
        }
    }
}

/// The thread that seals memtables at their size, ended and joined on drop.
pub(crate) struct Sealer {
    kv: Arc<KeyValues>,
    thread: Option<Thread>,
}

impl Sealer {
    pub(crate) fn start(kv: &Arc<KeyValues>) -> Result<Self, StoreError> {
        let run = |kv: &KeyValues| {
            while kv.rotation().wait() {
                kv.seal_full_trees();
            }
        };
        Ok(Self { thread: start(kv, "azekura-seal", run)?, kv: Arc::clone(kv) })
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.kv.rotation().stop();
        join(&mut self.thread);
    }
}
