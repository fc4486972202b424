//! Files that are expected to be read, and of which nothing is asked for yet: leases of their shards are on their way from
//! other engines than their home's. Owns which they are. Whoever reads another file meanwhile goes on with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file::FileReader;
use super::whole::BroughtBytes;

/// Such files of a file system.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    are_any: AtomicBool,
    files: Mutex<Vec<(Weak<FileReader>, Arc<BroughtBytes>)>>,
}

impl Expected {
    /// A file is to be gone on with until it is closed, or as much of it is asked for as is worth it.
    pub(crate) fn add(&self, file: &Arc<FileReader>, counts: &Arc<BroughtBytes>) {
        let mut files = self.files.lock();
        files.push((Arc::downgrade(file), Arc::clone(counts)));
        self.are_any.store(true, Ordering::Relaxed);
    }

    /// Asks, without waiting, for what can be asked for by now.
    pub(super) fn go_on(&self) {
        if !self.are_any.load(Ordering::Relaxed) {
            return;
        }
        // Whoever has it is at it; in a forked child that may be a thread that is not there.
        let Some(mut files) = self.files.try_lock() else { return };
        files.retain(|(file, counts)| {
            file.upgrade().is_some_and(|file| file.bring(counts, &mut counts.room()))
        });
        self.are_any.store(!files.is_empty(), Ordering::Relaxed);
    }
}
