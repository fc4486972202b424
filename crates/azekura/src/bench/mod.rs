//! `azekura bench`: how fast a pool or a directory is, held against references measured in the same
//! run. Work is done by worker processes that start together; figures and references alternate,
//! and medians are taken.

mod crew;
mod door;
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

pub(crate) use crew::{Crew, FOREMAN_COMMAND, ForemanArgs, WORKER_COMMAND, lead};
pub(crate) use door::{Door, last_line, own_program};
pub(crate) use md::drop_cached_entries;
pub(crate) use order::{IoOrder, MdKind, MdOrder, Motion, Order, Speed, Tally};
pub(crate) use reference::ScratchDir;
pub(crate) use sheet::Facts;
pub(crate) use worker::work;

use crate::host::places;
use crate::reach::{self, ContainerName};
use crate::reading::{ReadArgs, WriteArgs};
use order::Place;
use sheet::Series;

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
    /// Ways to reach the pool that are held against the native one
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "native",
        conflicts_with = "path",
        value_name = "DOOR,..."
    )]
    via: Vec<Door>,
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
    // Where `place` is a pool: the container, for doors beside the native one.
    container: Option<ContainerName>,
    reading: ReadArgs,
    doors: Vec<Door>,
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
                (Place::Pool { pool, container, reading: self.reading.writing(&self.write) }, facts)
            }
            (None, Some(dir)) => {
                let dir = places::absolute(dir)?.to_string_lossy().into_owned();
                let facts = Facts::of_machine(dir.clone(), self.processes, rounds);
                (Place::Path(dir), facts)
            }
            (None, None) => bail!(crate::cli::usage("name what to measure: --pool or --path")),
        };
        // The native door is measured anyway: the others are held against it.
        let wanted = |door: &Door| *door != Door::Native && self.via.contains(door);
        Ok(Site {
            place,
            container: self.place.pool.clone(),
            reading: self.reading.writing(&self.write),
            doors: Door::ALL.into_iter().filter(wanted).collect(),
            facts,
            rounds,
            processes: self.processes,
        })
    }
}

impl Site {
    /// A crew behind each of the doors other than the native one.
    fn hire_beside(&self) -> Result<Vec<(Door, Crew)>> {
        let Some(container) = &self.container else { return Ok(Vec::new()) };
        let scratch = || ScratchDir::make("door");
        let hire = |door: &Door| {
            let crew = Crew::hire_via(*door, container, &self.reading, self.processes, scratch)?;
            Ok((*door, crew))
        };
        self.doors.iter().map(hire).collect()
    }
}

/// The row of a door, held against the native row of the same run.
fn series_beside(door: Door, native: &Series) -> Series {
    Series {
        name: format!("{door}:{}", native.name),
        unit: native.unit,
        reference_name: native.name.clone(),
        reference_unit: native.unit,
        values: Vec::new(),
        references: Vec::new(),
    }
}

/// The directory, below the place, that a bench works in.
fn work_dir(door: Door) -> String {
    match door {
        Door::Native => format!("azekura-bench-{}", std::process::id()),
        other => format!("azekura-bench-{}-{other}", std::process::id()),
    }
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
