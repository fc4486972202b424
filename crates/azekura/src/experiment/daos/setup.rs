//! What stands while points are measured: a pool with the targets wanted, and a crew behind the door
//! wanted. Both stay as long as the next point wants the same.

use anyhow::{Context as _, Result};
use azekura_proto::ObjectClass;

use crate::bench::{Crew, Door};
use crate::experiment::stand::Stand;
use crate::reading::ReadArgs;

/// The chunk size that the paper uses unless it varies it.
pub(super) const CHUNK_BYTES: u32 = 1 << 20;
/// Targets and processes, likewise.
pub(super) const TARGETS: u16 = 4;
pub(super) const PROCESSES: usize = 4;

/// What a point stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ground {
    pub(super) targets: u16,
    pub(super) class: ObjectClass,
    pub(super) chunk_bytes: u32,
    pub(super) door: Door,
    pub(super) processes: usize,
}

impl Default for Ground {
    fn default() -> Self {
        Self {
            targets: TARGETS,
            class: ObjectClass::SX,
            chunk_bytes: CHUNK_BYTES,
            door: Door::Native,
            processes: PROCESSES,
        }
    }
}

/// A pool and a crew.
#[derive(Default)]
pub(super) struct Setup {
    // The crew goes before the pool that it works on.
    crew: Option<(Ground, Crew)>,
    stand: Option<(u16, Stand)>,
    used: u64,
}

impl Setup {
    /// The crew for a point, and a name that no other point has used.
    ///
    /// # Errors
    /// If the pool or the workers cannot be started.
    pub(super) fn crew(&mut self, ground: Ground) -> Result<(&mut Crew, String)> {
        if self.crew.as_ref().is_none_or(|(before, _)| *before != ground) {
            self.crew = None;
            let stand = self.stand(ground.targets)?;
            let container = stand.container(ground.class, ground.chunk_bytes)?;
            let scratch = || stand.scratch();
            let crew = Crew::hire_via(
                ground.door,
                &container,
                &ReadArgs::default(),
                ground.processes,
                scratch,
            )?;
            self.crew = Some((ground, crew));
        }
        self.used += 1;
        let name = format!("point-{}", self.used);
        let (_, crew) = self.crew.as_mut().context("there is no crew")?;
        Ok((crew, name))
    }

    /// After a failure nobody knows what the workers are doing.
    pub(super) fn dismiss(&mut self) {
        self.crew = None;
    }

    fn stand(&mut self, targets: u16) -> Result<&mut Stand> {
        if self.stand.as_ref().is_none_or(|(before, _)| *before != targets) {
            self.stand = None;
            self.stand = Some((targets, Stand::start(targets)?));
        }
        Ok(&mut self.stand.as_mut().context("there is no pool")?.1)
    }
}
