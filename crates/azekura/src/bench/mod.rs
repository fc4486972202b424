//! `azekura bench`: how fast a pool or a directory is, held against references measured in the same
//! run. Work is done by worker processes that start together; figures and references alternate,
//! and medians are taken.

mod crew;
mod io;
mod load;
mod md;
mod order;
mod reference;
mod sheet;
mod space;
mod space_path;
mod space_pool;
mod stream;
mod worker;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

pub(crate) use crew::WORKER_COMMAND;
pub(crate) use worker::work;

use crate::host::places;
use crate::reach::{self, ContainerName};
use order::Place;
use sheet::Facts;

/// `azekura bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Reading and writing: MiB/s and operations per second
    Io(io::IoArgs),
    /// Many small files: create, stat, open+close and remove per second
    Md(md::MdArgs),
}

/// What is measured: one of the two.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct PlaceArgs {
    /// Pool (or POOL/CONTAINER) to measure through the native path
    #[arg(long, value_name = "POOL")]
    pool: Option<ContainerName>,
    /// Directory to measure, on any file system
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

/// Where a bench runs and how.
#[derive(Debug, Args)]
pub(crate) struct WhereArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Worker processes
    #[arg(long, short = 'p', default_value_t = 1, value_name = "N")]
    processes: usize,
    /// Rounds of which medians are taken
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Little data and one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Most worker processes; more than that tells nothing about one machine.
const PROCESSES_MAX: usize = 256;

/// Where a bench runs, once looked at.
struct Site {
    place: Place,
    facts: Facts,
    rounds: usize,
    processes: usize,
}

impl WhereArgs {
    fn look(&self) -> Result<Site> {
        if self.processes == 0 || self.processes > PROCESSES_MAX {
            bail!(crate::cli::usage(format!("--processes must be 1 to {PROCESSES_MAX}")));
        }
        let rounds = if self.quick { 1 } else { self.rounds.max(1) };
        let (place, facts) = match (&self.place.pool, &self.place.path) {
            (Some(name), _) => {
                let pool = reach::connect(&name.pool)?;
                let map = pool.map();
                let mut facts = Facts::of_machine(name.to_string(), self.processes, rounds);
                facts.targets = map.target_count();
                facts.engines = map.engines.len();
                let (pool, container) = (name.pool.clone(), name.container().to_owned());
                (Place::Pool { pool, container }, facts)
            }
            (None, Some(dir)) => {
                let dir = places::absolute(dir)?.to_string_lossy().into_owned();
                let facts = Facts::of_machine(dir.clone(), self.processes, rounds);
                (Place::Path(dir), facts)
            }
            (None, None) => bail!(crate::cli::usage("name what to measure: --pool or --path")),
        };
        Ok(Site { place, facts, rounds, processes: self.processes })
    }
}

/// The directory, below the place, that a bench works in.
fn work_dir() -> String {
    format!("azekura-bench-{}", std::process::id())
}

/// Runs a bench.
///
/// # Errors
/// If the place cannot be reached or an operation fails.
pub(crate) fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Io(args) => io::run(args),
        BenchCommand::Md(args) => md::run(args),
    }
}
