//! Directories for what is needed while a load runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

/// A directory of its own in memory-backed storage, gone when dropped.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes it.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn make(what: &str) -> Result<Self> {
        let shared = PathBuf::from("/dev/shm");
        let base = if shared.is_dir() { shared } else { std::env::temp_dir() };
        Self::make_in(&base, what)
    }

    /// Makes it in another directory.
    ///
    /// # Errors
    /// As for [`Self::make`].
    pub fn make_in(base: &Path, what: &str) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("azekura-bench-{what}-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// The directory itself.
    pub fn dir(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Nothing more can be done about what does not let itself be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
