//! The thread that looks after writes in flight while the program does something else: it takes in their
//! answers, sends again what was lost, and gives back leases that are not used. Nothing waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Writing;
use super::object::Object;

/// How often it looks: well within a lease, also that of a restarted engine.
const EVERY: Duration = Duration::from_millis(250);
/// Leases that have not been used for this long are given back.
const IDLE: Duration = Duration::from_millis(500);

/// Starts the thread if there is none. It ends with the file system. In somebody else's process no
/// threads are started: there leases run out by themselves.
pub(super) fn start_keeper(writing: &Arc<Writing>) {
    if writing.pool().is_guest() || writing.has_keeper.swap(true, Ordering::Relaxed) {
        return;
    }
    let weak = Arc::downgrade(writing);
    let thread = std::thread::Builder::new().name("azekura-writes".to_owned());
    let started = thread.spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            let Some(writing) = weak.upgrade() else { return };
            let objects: Vec<Arc<Object>> = writing.objects.lock().values().cloned().collect();
            for object in objects {
                writing.look_after(&object);
            }
        }
    });
    if let Err(error) = started {
        tracing::warn!("nobody looks after writes in flight: {error}");
    }
}

impl Writing {
    fn look_after(&self, object: &Object) {
        // Whoever has it looks after it.
        let Some(mut state) = object.try_lock() else { return };
        if !self.take_in(&mut state) && self.finish(object, &mut state).is_err() {
            // Tried again at the next look.
            return;
        }
        self.make_way(object, &mut state);
        if state.is_idle(IDLE) {
            self.release(object, &mut state, false);
        }
    }
}
