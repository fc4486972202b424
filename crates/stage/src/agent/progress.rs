//! What the front hears of how far contents have come, so that it can tell a supplier that stalls from one that
//! waits itself. Owns how often that is said: a moment after something came, and nothing while nothing comes.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::doors::spawn;
use crate::message::{ContentId, ToFront};
use crate::outbox::Outbox;

/// Between two messages.
const PAUSE: Duration = Duration::from_millis(500);
/// The thread looks this often whether it is still needed.
const LOOK: Duration = Duration::from_secs(5);
/// All of it has come, and been checked.
pub(crate) const WHOLE: u32 = u32::MAX;

/// How far contents have come that the front has not been told of.
pub(crate) struct Progress {
    /// No more than come within a pause.
    came: Mutex<HashMap<ContentId, u32>>,
    changed: Condvar,
    outbox: Outbox<ToFront>,
}

impl Progress {
    /// Starts the thread that tells the front.
    pub(crate) fn start(outbox: Outbox<ToFront>) -> io::Result<Arc<Self>> {
        let progress = Arc::new(Self { came: Mutex::default(), changed: Condvar::new(), outbox });
        let told = Arc::downgrade(&progress);
        spawn("progress", move || while Self::tell(&told).is_some() {})?;
        Ok(progress)
    }

    /// So many pieces of a content are here.
    pub(crate) fn came(&self, content: ContentId, pieces: u32) {
        if self.came.lock().insert(content, pieces).is_none() {
            self.changed.notify_one();
        }
    }

    fn tell(progress: &Weak<Self>) -> Option<()> {
        let this = progress.upgrade()?;
        let mut came = this.came.lock();
        if came.is_empty() {
            this.changed.wait_for(&mut came, LOOK);
        }
        let pieces: Vec<_> = came.drain().collect();
        drop(came);
        if !pieces.is_empty() {
            // If it is not taken the front is lost, or thinks the node slower than it is.
            this.outbox.say(ToFront::Progress { pieces });
        }
        drop(this);
        std::thread::sleep(PAUSE);
        Some(())
    }
}
