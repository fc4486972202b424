//! What a store stands on: a disk, a database, and the clock, threads and chance of its process. All
//! of it comes from the caller, so that a simulation can stand in.

use std::sync::Arc;

use azekura_platform::SharedPlatform;

#[cfg(feature = "simulation")]
use crate::disk::SimulatedDisk;
use crate::disk::{Disk, HostDisk};
use crate::kv::engine::Engine;

/// What a store stands on.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(crate) platform: SharedPlatform,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) engine: Engine,
}

impl Environment {
    /// The disks of this machine, with the clock, threads and random numbers of `platform`.
    pub fn new(platform: SharedPlatform) -> Self {
        Self { platform, disk: Arc::new(HostDisk), engine: Engine::Fjall }
    }

    /// The clock, threads and random numbers.
    pub fn platform(&self) -> &SharedPlatform {
        &self.platform
    }

    /// This machine.
    pub fn system() -> Self {
        Self::new(azekura_platform::system())
    }

    /// A disk in memory, and a database that needs no thread.
    #[cfg(feature = "simulation")]
    pub fn simulated(platform: SharedPlatform, disk: &SimulatedDisk) -> Self {
        Self { platform, disk: Arc::new(disk.clone()), engine: Engine::Log }
    }
}
