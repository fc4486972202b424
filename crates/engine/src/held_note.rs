//! A note in the engine's directory that clients hold something, so that the next run of the engine gives
//! them time to claim it. Owns the order: the note is there before the first of them has an answer, and
//! goes only while nobody holds anything. It survives the end of the process, not a loss of power.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura_proto::Status;
use parking_lot::Mutex;

use crate::engine_dir::{EngineDir, Held};

/// Whether clients hold anything of a kind, on disk.
#[derive(Debug)]
pub(crate) struct HeldNote {
    /// `None`: it is not written down, in a test.
    dir: Option<EngineDir>,
    held: Held,
    is_there: AtomicBool,
    /// One at a time changes the file.
    changing: Mutex<()>,
}

impl HeldNote {
    /// The note as an earlier run has left it.
    pub(crate) fn of(dir: &EngineDir, held: Held) -> Self {
        let is_there = AtomicBool::new(dir.is_noted(held));
        Self { dir: Some(dir.clone()), held, is_there, changing: Mutex::new(()) }
    }

    #[cfg(test)]
    pub(crate) fn unwritten(held: Held) -> Self {
        let (is_there, changing) = (AtomicBool::new(false), Mutex::new(()));
        Self { dir: None, held, is_there, changing }
    }

    /// Whether it is there.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// To be called when something has been entered among what is held, before that is answered.
    pub(crate) fn make(&self) -> Result<(), Status> {
        if self.is_there() {
            return Ok(());
        }
        let _alone = self.changing.lock();
        if !self.is_there() {
            self.write(true)?;
            self.is_there.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Takes the note away if nothing is held. Whoever enters something after `is_empty` has looked
    /// finds that the note is not there.
    pub(crate) fn clear(&self, is_empty: impl FnOnce() -> bool) {
        let _alone = self.changing.lock();
        if !self.is_there.swap(false, Ordering::SeqCst) {
            return;
        }
        if !is_empty() || self.write(false).is_err() {
            self.is_there.store(true, Ordering::Release);
        }
    }

    fn write(&self, held: bool) -> Result<(), Status> {
        let Some(dir) = &self.dir else { return Ok(()) };
        dir.note(self.held, held).map_err(|error| {
            tracing::error!("{error}");
            Status::Io
        })
    }
}
