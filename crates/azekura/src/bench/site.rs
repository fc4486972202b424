//! Where a bench runs and how: its options, and what they come to once looked at.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::sheet::Facts;
use crate::connect;
use crate::host::{places, programs};
use crate::load::{AccessPath, Backend, Order, ScratchDir, WorkerPool};
use crate::names::ContainerName;
use crate::outcome::usage;
use crate::reading::{ReadArgs, WriteArgs};

/// What is measured: one of the two.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PlaceArgs {
    /// Pool (or POOL/CONTAINER) to measure through the native path
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<ContainerName>,
    /// Directory to measure, on any file system
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
}

/// Where a bench runs and how.
#[derive(Debug, Args)]
pub(super) struct WhereArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Ways to reach the pool that are held against the native one
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "native",
        conflicts_with = "path",
        value_name = "ACCESS,..."
    )]
    via: Vec<AccessPath>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// Worker processes
    #[arg(long, short = 'p', default_value_t = 1, value_name = "N")]
    processes: usize,
    /// Rounds of which medians are taken
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Little data and one round: shows that it works, not how fast
    #[arg(long)]
    pub(super) quick: bool,
    /// Also count the processor time of an operation, of who asks and of the engines
    #[arg(long)]
    pub(super) cpu: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Most worker processes; more than that tells nothing about one machine.
const PROCESSES_MAX: usize = 256;

/// Where a bench runs, once looked at.
pub(super) struct Site {
    pub(super) backend: Backend,
    // Of a pool: the container, for access paths beside the native one.
    container: Option<ContainerName>,
    reading: ReadArgs,
    paths: Vec<AccessPath>,
    pub(super) facts: Facts,
    pub(super) rounds: usize,
    pub(super) processes: usize,
}

impl WhereArgs {
    pub(super) fn look(&self) -> Result<Site> {
        if self.processes == 0 || self.processes > PROCESSES_MAX {
            bail!(usage(format!("--processes must be 1 to {PROCESSES_MAX}")));
        }
        let rounds = if self.quick { 1 } else { self.rounds.max(1) };
        let (backend, facts) = match (&self.place.pool, &self.place.path) {
            (Some(name), _) => {
                let pool = connect::pool(&name.pool)?;
                let map = pool.map();
                let mut facts = Facts::of_run(name.to_string(), self.processes, rounds);
                facts.targets = map.target_count();
                facts.engines = map.engines.len();
                let (pool, container) = (name.pool.clone(), name.container().to_owned());
                (
                    Backend::Pool { pool, container, reading: self.reading.writing(&self.write) },
                    facts,
                )
            }
            (None, Some(dir)) => {
                let dir = places::absolute(dir)?.to_string_lossy().into_owned();
                let facts = Facts::of_run(dir.clone(), self.processes, rounds);
                (Backend::Path(dir), facts)
            }
            (None, None) => bail!(usage("name what to measure: --pool or --path")),
        };
        // The native path is measured anyway: the others are held against it.
        let wanted = |path: &AccessPath| *path != AccessPath::Native && self.via.contains(path);
        Ok(Site {
            backend,
            container: self.place.pool.clone(),
            reading: self.reading.writing(&self.write),
            paths: AccessPath::ALL.into_iter().filter(wanted).collect(),
            facts,
            rounds,
            processes: self.processes,
        })
    }
}

impl Site {
    /// Workers on the native path.
    pub(super) fn start_native(&self) -> Result<WorkerPool> {
        let mut workers = WorkerPool::start(&programs::own()?, self.processes)?;
        workers.run_all(&Order::Open(self.backend.clone()))?;
        Ok(workers)
    }

    /// Workers on each of the other paths.
    pub(super) fn start_beside(&self) -> Result<Vec<(AccessPath, WorkerPool)>> {
        let Some(container) = &self.container else { return Ok(Vec::new()) };
        let azekura = programs::own()?;
        let scratch = || ScratchDir::make("mount");
        let (reading, processes) = (&self.reading, self.processes);
        let start = |path: &AccessPath| {
            let workers =
                WorkerPool::start_via(&azekura, *path, container, reading, processes, scratch)?;
            Ok((*path, workers))
        };
        self.paths.iter().map(start).collect()
    }
}

/// The directory, below the backend, that a bench works in.
pub(super) fn work_dir() -> String {
    format!("azekura-bench-{}", std::process::id())
}
