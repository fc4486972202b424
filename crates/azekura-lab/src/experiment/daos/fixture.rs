//! What stands while points are measured: a pool with the targets wanted, and workers on the access path
//! wanted. Both stay as long as the next point wants the same.

use anyhow::{Context as _, Result};
use azekura::host::programs;
use azekura::load::{AccessPath, WorkerPool};
use azekura::reading::ReadArgs;
use azekura_proto::ObjectClass;

use crate::experiment::scratch_pool::ScratchPool;

/// The chunk size that the paper uses unless it varies it.
pub(super) const CHUNK_BYTES: u32 = 1 << 20;
/// Targets and processes, likewise.
pub(super) const TARGETS: u16 = 4;
pub(super) const PROCESSES: usize = 4;

/// What a point is measured under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    pub(super) targets: u16,
    pub(super) class: ObjectClass,
    pub(super) chunk_bytes: u32,
    pub(super) access: AccessPath,
    pub(super) processes: usize,
    pub(super) reads: Reads,
}

/// How files of an engine on the same host are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// As a client on another host reads them: what is measured is the engine.
    ByRequests,
    /// As they are on this host: by descriptors, past the engine, where the path has those.
    AsUsual,
}

/// The same as a sentence for a page.
pub(super) const BY_REQUESTS: &str =
    "Files are read by requests (`--descriptors off`), as from another host.";

impl Default for Conditions {
    fn default() -> Self {
        Self {
            targets: TARGETS,
            class: ObjectClass::SX,
            chunk_bytes: CHUNK_BYTES,
            access: AccessPath::Native,
            processes: PROCESSES,
            reads: Reads::ByRequests,
        }
    }
}

/// A pool and workers.
#[derive(Default)]
pub(super) struct Fixture {
    // The workers go before the pool that they work on.
    workers: Option<(Conditions, WorkerPool)>,
    pool: Option<(u16, ScratchPool)>,
    used: u64,
}

impl Fixture {
    /// Has `measure` work with the workers for a point, and with a name that no other point has used.
    /// After a failure they are let go, since nobody knows what they are doing.
    ///
    /// # Errors
    /// If the pool or the workers cannot be started, or as `measure` says.
    pub(super) fn with_workers<T>(
        &mut self,
        conditions: Conditions,
        measure: impl FnOnce(&mut WorkerPool, String) -> Result<T>,
    ) -> Result<T> {
        if self.workers.as_ref().is_none_or(|(before, _)| *before != conditions) {
            self.workers = None;
            let workers = self.start_workers(conditions)?;
            self.workers = Some((conditions, workers));
        }
        self.used += 1;
        let name = format!("point-{}", self.used);
        let (_, workers) = self.workers.as_mut().context("there are no workers")?;
        let measured = measure(workers, name);
        if measured.is_err() {
            self.workers = None;
        }
        measured
    }

    /// The process id of the engine, if one is there.
    pub(super) fn engine_pid(&self) -> Option<u32> {
        self.pool.as_ref().map(|(_, pool)| pool.engine_pid())
    }

    fn start_workers(&mut self, conditions: Conditions) -> Result<WorkerPool> {
        let pool = self.pool(conditions.targets)?;
        let container = pool.container(conditions.class, conditions.chunk_bytes)?;
        let azekura = programs::beside("azekura")?;
        let reading = match conditions.reads {
            Reads::ByRequests => ReadArgs::by_requests(),
            Reads::AsUsual => ReadArgs::default(),
        };
        let (access, processes) = (conditions.access, conditions.processes);
        WorkerPool::start_via(&azekura, access, &container, &reading, processes, || pool.scratch())
    }

    fn pool(&mut self, targets: u16) -> Result<&mut ScratchPool> {
        if self.pool.as_ref().is_none_or(|(before, _)| *before != targets) {
            self.pool = None;
            self.pool = Some((targets, ScratchPool::start(targets)?));
        }
        Ok(&mut self.pool.as_mut().context("there is no pool")?.1)
    }
}
