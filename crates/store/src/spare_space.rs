//! Space of a disk that is taken so that programs whose writes are not counted here leave it: they may write past
//! this store until the disk is full. Owns the file that takes it, and that it is given back bit by bit to what must
//! go on then, above all removals. Where the disk cannot take space beforehand there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::disk::{Access, Allocation, Directory, File};

/// The file, in the directory of the target.
const NAME: &str = "spare";
/// How much is taken.
const FULL_BYTES: u64 = 16 * 1024 * 1024;
/// How much is given back at a time.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// The spare space of one target.
pub(crate) struct SpareSpace {
    dir: Arc<dyn Directory>,
    file: Mutex<Option<Box<dyn File>>>,
    /// How much is taken now.
    bytes: AtomicU64,
}

impl SpareSpace {
    /// With what an earlier run has left: somebody may write past this one, too.
    pub(crate) fn find(dir: Arc<dyn Directory>) -> Self {
        let file = dir.open(NAME, Access::Existing).ok();
        let found = file.as_ref().and_then(|file| file.stat().ok());
        let bytes = AtomicU64::new(found.map_or(0, |stat| stat.bytes));
        Self { dir, file: Mutex::new(file), bytes }
    }

    /// How much is taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether some was taken once and there is less of it now.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes() < FULL_BYTES && self.file.lock().is_some()
    }

    /// Takes all of it, unless it is taken.
    ///
    /// # Errors
    /// What the disk says; one that takes no space beforehand says nothing.
    pub(crate) fn take(&self) -> Result<(), Errno> {
        if self.bytes() >= FULL_BYTES {
            return Ok(());
        }
        let mut file = self.file.lock();
        if file.is_none() {
            *file = Some(self.dir.open(NAME, Access::Create)?);
        }
        let Some(file) = file.as_ref() else { return Ok(()) };
        match file.allocate(Allocation::Extend, 0, FULL_BYTES) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            done => done?,
        }
        self.bytes.store(FULL_BYTES, Ordering::Relaxed);
        Ok(())
    }

    /// Gives some back to the disk; tells whether there was any.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn give_back(&self) -> Result<bool, Errno> {
        let file = self.file.lock();
        let (Some(file), bytes @ 1..) = (file.as_ref(), self.bytes()) else { return Ok(false) };
        let left = bytes.saturating_sub(STEP_BYTES);
        file.truncate(left)?;
        self.bytes.store(left, Ordering::Relaxed);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn what_is_taken_is_given_back_in_steps_and_known_to_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Environment::system().disk.open_dir(dir.path()).unwrap();
        let spare = SpareSpace::find(open());
        assert!(!spare.give_back().unwrap() && spare.bytes() == 0 && !spare.is_short());
        spare.take().unwrap();
        if spare.bytes() == 0 {
            return; // A file system that takes no space beforehand.
        }
        assert!(!spare.is_short());
        assert!(spare.give_back().unwrap() && spare.is_short());
        assert_eq!(SpareSpace::find(open()).bytes(), FULL_BYTES - STEP_BYTES);
        spare.take().unwrap();
        let steps = std::iter::from_fn(|| spare.give_back().unwrap().then_some(())).count() as u64;
        assert_eq!(steps, FULL_BYTES / STEP_BYTES);
    }
}
