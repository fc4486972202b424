//! Which database keeps the key-values of a target. Owns the name of its directory and the choice.

use super::database::Database;
use super::database::fjall::FjallDatabase;
#[cfg(feature = "simulation")]
use super::database::log::LogDatabase;
use crate::disk::Directory;
use crate::error::StoreError;

/// The name of the database's directory in a target's.
pub(crate) const KV_NAME: &str = "kv";

/// A key-value engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// fjall, which opens files of its own in a directory of this machine and has a thread.
    Fjall,
    /// A log on the store's disk and a table in memory, without any thread; for simulations.
    #[cfg(feature = "simulation")]
    Log,
}

impl Engine {
    /// Makes an empty database in a target's directory.
    pub(crate) fn create(self, target: &dyn Directory) -> Result<(), StoreError> {
        match self {
            Self::Fjall => FjallDatabase::create(&target.path().join(KV_NAME)),
            #[cfg(feature = "simulation")]
            Self::Log => LogDatabase::create(target, KV_NAME),
        }
    }

    /// Opens the database of a target, with a cache of blocks of that size.
    pub(crate) fn open(
        self,
        target: &dyn Directory,
        cache_bytes: u64,
    ) -> Result<Box<dyn Database>, StoreError> {
        Ok(match self {
            Self::Fjall => {
                Box::new(FjallDatabase::open(&target.path().join(KV_NAME), cache_bytes)?)
            }
            #[cfg(feature = "simulation")]
            Self::Log => Box::new(LogDatabase::open(target, KV_NAME)?),
        })
    }
}
