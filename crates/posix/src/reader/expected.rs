//! Files that are expected to be read, and of which nothing is asked for yet: leases of their shards are on their way from
//! other engines than their home's. Owns which they are. Whoever reads another file meanwhile goes on with them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::brought_bytes::{BroughtBytes, BroughtRoom};

/// What can be asked for ahead.
pub(crate) trait Bring: Debug + Send + Sync {
    /// Asks for what can be asked for by now, without waiting, as far as there is room. Whether leases have to come
    /// before all that is worth it is asked for; then it is to be called again.
    fn bring(&self, counts: &Arc<BroughtBytes>, room: &mut BroughtRoom) -> bool;
}

/// Such files of a file system.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    are_any: AtomicBool,
    files: Mutex<Vec<Waiting>>,
}

/// One of them.
#[derive(Debug)]
struct Waiting {
    file: Weak<dyn Bring>,
    counts: Arc<BroughtBytes>,
}

impl Expected {
    /// Asks for a file as far as there is room, and goes on with it until it is closed, or all that is worth it is asked
    /// for.
    pub(crate) fn bring(
        &self,
        file: &Arc<impl Bring + 'static>,
        counts: &Arc<BroughtBytes>,
        room: &mut BroughtRoom,
    ) {
        if file.bring(counts, room) {
            let file = Arc::downgrade(file);
            let mut files = self.files.lock();
            files.push(Waiting { file, counts: Arc::clone(counts) });
            self.are_any.store(true, Ordering::Relaxed);
        }
    }

    /// Asks, without waiting, for what can be asked for by now.
    pub(super) fn go_on(&self) {
        if !self.are_any.load(Ordering::Relaxed) {
            return;
        }
        // Whoever has it is at it; in a forked child that may be a thread that is not there.
        let Some(mut files) = self.files.try_lock() else { return };
        files.retain(|Waiting { file, counts }| {
            file.upgrade().is_some_and(|file| file.bring(counts, &mut counts.room()))
        });
        self.are_any.store(!files.is_empty(), Ordering::Relaxed);
    }
}
