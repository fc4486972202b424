//! A file that the kernel has open.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura_posix::OpenFile;
use parking_lot::Mutex;

/// An open file, and what the kernel has left to the server to remember about it.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) open: OpenFile,
    /// The set-user or set-group bit was set after the file was opened.
    has_new_bits: AtomicBool,
    /// Who has locked ranges through this handle and has not closed a descriptor of it since: at its
    /// end only the open file itself (`F_OFD_SETLK`), of whose end the kernel says nothing else.
    range_owners: Mutex<Vec<u64>>,
}

impl FileHandle {
    pub(crate) fn new(open: OpenFile) -> Self {
        Self { open, has_new_bits: AtomicBool::new(false), range_owners: Mutex::default() }
    }

    /// This owner is about to lock a range.
    pub(crate) fn add_range_owner(&self, owner: u64) {
        let mut owners = self.range_owners.lock();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// This owner has no locked range any more.
    pub(crate) fn remove_range_owner(&self, owner: u64) {
        self.range_owners.lock().retain(|other| *other != owner);
    }

    /// Whose ranges have to be free when the handle goes.
    pub(crate) fn take_range_owners(&self) -> Vec<u64> {
        std::mem::take(&mut *self.range_owners.lock())
    }

    /// The next write has to look at the mode.
    pub(crate) fn watch_bits(&self) {
        self.has_new_bits.store(true, Ordering::Relaxed);
    }

    /// Whether this write has to look at the mode; the next one has not.
    pub(crate) fn take_watch(&self) -> bool {
        self.has_new_bits.load(Ordering::Relaxed)
            && self.has_new_bits.swap(false, Ordering::Relaxed)
    }
}
