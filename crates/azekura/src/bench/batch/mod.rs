//! `azekura bench batch`: the batch I/O program of the grid-batch forecasting paper, whole runs of it in
//! seconds, on one machine or on many nodes. Owns the command line; `load` has the program itself.

mod case;
mod crew;
mod results;

use std::path::PathBuf;

use anyhow::Result;
use azekura_forecast::job::{Caches, Order, Pattern};
use clap::{Args, ValueEnum};

pub(crate) use case::Case;
pub(crate) use crew::{Crew, Measurement};
pub(crate) use results::{now, run_of, runs_of, software, this_machine};

use super::site::PlaceArgs;
use crate::connect;
use crate::host::interrupt::Interrupt;
use crate::host::places;
use crate::load::{Backend, CachesDropped};
use crate::names::ContainerName;
use crate::outcome::{Verdict, usage};
use crate::reading::{ReadArgs, WriteArgs};
use crate::report::{self, Progress, parse_bytes};
use crate::stage::{Launcher, find_hosts};

/// Most processes of a node.
pub(crate) const PROCESSES_MAX: u32 = 1024;

/// What is done with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PatternName {
    /// One file in, one out
    Simple,
    /// One file in, many out
    Split,
    /// Many files in, one out
    Merge,
}

/// How a process goes through many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderName {
    /// One after the other
    Sequential,
    /// To the next with each record
    RoundRobin,
}

/// Where the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CachesName {
    /// On the storage
    Cold,
    /// In memory, as far as it fits
    Warm,
}

/// `azekura bench batch`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura bench batch --path ./data --pattern split --files 500 --size 2GiB\n  \
    azekura bench batch --pool default --pattern merge --files 64 --processes 4 --json > run.json\n  \
    azekura bench batch --path /shared --hosts n[1-4] --processes 8 --ratio 0.5\n\n\
    Each process reads the same share of --size, and writes --ratio times as much. The time is from the \
    start of all processes to the end of the last; it ends with closing the files, and has making them \
    durable in it only with --fsync. 'azekura forecast --check' reads what --json prints.")]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// What is done with files
    #[arg(long, value_enum, default_value = "simple")]
    pattern: PatternName,
    /// How a process goes through many files
    #[arg(long, value_enum, default_value = "sequential")]
    order: OrderName,
    /// Files of each process, split into or merged from
    #[arg(long, default_value_t = 1, value_name = "N")]
    files: u64,
    /// Bytes written for each byte read
    #[arg(long, default_value_t = 1.0, value_name = "RATIO")]
    ratio: f64,
    /// Bytes read by all processes of a node together
    #[arg(long, value_parser = parse_bytes, default_value = "2GiB", value_name = "SIZE")]
    size: u64,
    /// Length of a record
    #[arg(long, value_parser = parse_bytes, default_value = "1KiB", value_name = "SIZE")]
    record: u64,
    /// Length of the buffer of each file
    #[arg(long, value_parser = parse_bytes, default_value = "2MiB", value_name = "SIZE")]
    buffer: u64,
    /// Processes of each node
    #[arg(long, short = 'p', default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PROCESSES_MAX)))]
    processes: u32,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Whether the input is in memory
    #[arg(long, value_enum, default_value = "cold")]
    caches: CachesName,
    /// Make each file durable before it is closed, within the time
    #[arg(long)]
    fsync: bool,
    /// Runs of which the mean is taken
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Runs before these, which do not count
    #[arg(long, default_value_t = 1, value_name = "N")]
    warm_up: u32,
    /// Leave the files of the last run, and say where they are
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// Write a row for each run to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The nodes of a batch.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Nodes: H1,H2,n[01-16] [default: this one]
    #[arg(long, value_name = "HOSTS")]
    hosts: Option<String>,
    /// How a command is started on a node [default: srun within SLURM, else ssh; this host needs neither]
    #[arg(long, value_name = "'CMD {host} {command}'", requires = "hosts")]
    launch: Option<String>,
}

impl NodeArgs {
    /// Starts so many workers on each.
    ///
    /// # Errors
    /// As [`Crew::start`], or if the options cannot mean anything.
    pub(crate) fn start(
        &self,
        backend: &Backend,
        processes: u32,
        interrupt: &Interrupt,
    ) -> Result<Crew> {
        let hosts = match &self.hosts {
            Some(hosts) => find_hosts(Some(hosts), None)?,
            None => Vec::new(),
        };
        let launcher = Launcher::choose(self.launch.as_deref())?;
        Crew::start(backend, &hosts, &launcher, processes, interrupt)
    }

    /// How many there are.
    ///
    /// # Errors
    /// If the list is not one.
    fn count(&self) -> Result<u32> {
        let Some(hosts) = &self.hosts else { return Ok(1) };
        Ok(u32::try_from(find_hosts(Some(hosts), None)?.len())?)
    }
}

/// Where batches have their files.
pub(crate) enum Place {
    /// A directory of each node.
    Dir(PathBuf),
    /// A container of a pool, natively.
    Pool(ContainerName),
}

impl Place {
    /// What a person means by a word: a directory, if it is one or is written as one, else a pool.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn of(text: &str) -> Result<Self> {
        let path = PathBuf::from(text);
        let is_pool_file = text.contains(".toml");
        let is_path = path.is_absolute() || text.starts_with('.');
        if path.is_dir() || is_path && !is_pool_file {
            return Ok(Self::Dir(path));
        }
        text.parse().map(Self::Pool).map_err(|why| {
            usage(format!("{text} is neither a directory nor the name of a pool: {why}"))
        })
    }

    /// The same for workers, and what it is called.
    ///
    /// # Errors
    /// If there is no such place.
    pub(crate) fn backend(&self, reading: &ReadArgs) -> Result<(Backend, String)> {
        match self {
            Self::Pool(name) => {
                // Says what is wrong with the name before any worker does.
                connect::pool(&name.pool)?;
                let (pool, container) = (name.pool.clone(), name.container().to_owned());
                Ok((Backend::Pool { pool, container, reading: reading.clone() }, name.to_string()))
            }
            Self::Dir(dir) => {
                let dir = places::absolute(dir)?.to_string_lossy().into_owned();
                Ok((Backend::Path(dir.clone()), dir))
            }
        }
    }
}

impl BatchArgs {
    fn case(&self, nodes: u32) -> Result<Case> {
        let case = Case {
            pattern: match self.pattern {
                PatternName::Simple => Pattern::Simple,
                PatternName::Split => Pattern::Split,
                PatternName::Merge => Pattern::Merge,
            },
            order: match self.order {
                OrderName::Sequential => Order::Sequential,
                OrderName::RoundRobin => Order::RoundRobin,
            },
            files: self.files,
            ratio: self.ratio,
            bytes_in: self.size.saturating_mul(u64::from(nodes)),
            record_bytes: self.record,
            buffer_bytes: self.buffer,
            processes: self.processes,
            nodes,
            caches: match self.caches {
                CachesName::Cold => Caches::Cold,
                CachesName::Warm => Caches::Warm,
            },
            fsync: self.fsync,
        };
        case.check()?;
        Ok(case)
    }
}

/// Runs the batch and prints what it came to.
///
/// # Errors
/// If the place cannot be reached, there is no room, or an operation fails.
pub(super) fn run(args: &BatchArgs) -> Result<Verdict> {
    let case = args.case(args.nodes.count()?)?;
    let place = match (&args.place.pool, &args.place.path) {
        (Some(name), _) => Place::Pool(name.clone()),
        (None, Some(dir)) => Place::Dir(dir.clone()),
        (None, None) => return Err(usage("name where to work: --pool or --path")),
    };
    let (backend, target) = place.backend(&args.reading.writing(&args.write))?;
    args.csv.as_deref().map_or(Ok(()), report::check_result_file)?;
    let interrupt = Interrupt::watch()?;
    let measured = measure(args, &case, &backend, &interrupt);
    if let Some(code) = interrupt.exit_code() {
        report::note("azekura: interrupted; the files of the batch are removed");
        return Ok(Verdict::Ended(code));
    }
    let (measurements, dropped, dir) = measured?;
    let run = run_of(&case, &measurements, dropped);
    if let Some(file) = &args.csv {
        results::write_csv(file, &case, &run)?;
    }
    if args.json {
        report::say_json(&runs_of(&target, vec![run]))?;
    } else {
        results::print(&case, &run, &target, dropped);
    }
    if args.keep {
        report::note(format_args!("azekura: the files are in {dir} below {target}"));
    }
    Ok(Verdict::Good)
}

type Measured = (Vec<Measurement>, Option<CachesDropped>, String);

fn measure(
    args: &BatchArgs,
    case: &Case,
    backend: &Backend,
    interrupt: &Interrupt,
) -> Result<Measured> {
    let mut crew = args.nodes.start(backend, case.processes, interrupt)?;
    let measured = measure_with(&mut crew, args, case);
    crew.end("the batch", measured)
}

fn measure_with(crew: &mut Crew, args: &BatchArgs, case: &Case) -> Result<Measured> {
    let all = args.warm_up.saturating_add(args.runs);
    let mut progress = Progress::count("running", u64::from(all) + 1);
    crew.make_input(case)?;
    progress.advance(1);
    let mut measurements = Vec::new();
    let mut dropped = None;
    for run in 1..=all {
        dropped = crew.prepare(case)?;
        let keep = args.keep && run == all;
        let measurement = if keep { crew.measure_and_keep(case)? } else { crew.measure(case)? };
        if run > args.warm_up {
            measurements.push(measurement);
        }
        progress.advance(1);
    }
    if args.keep {
        crew.let_go(case)?;
    } else {
        crew.clear(case)?;
    }
    Ok((measurements, dropped, crew.dir().to_owned()))
}
