//! `azekura bench io`: bytes. Decides which pieces each worker moves and what each figure is held
//! against; `load` has the loops.

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::beside::{Beside, best_of_modes};
use super::cpu::{CpuMeter, measure_round};
use super::reference::{Bare, Baseline};
use super::sheet::{Series, Sheet, Unit, rows_of};
use super::site::{Site, WhereArgs, work_dir};
use crate::load::{IoOrder, Motion, Order, WorkerPool};
use crate::report::{Progress, format_bytes, parse_bytes};

/// Transfers of at least this size are counted in MiB/s, smaller ones in operations.
const STREAM_BYTES: u64 = 64 << 10;

/// How data are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Write a new file from front to back
    SeqWrite,
    /// Read it from front to back
    SeqRead,
    /// Read every fourth piece
    StrideRead,
    /// Read pieces in random order
    RandRead,
    /// Write pieces in random order into the file
    RandWrite,
}

impl Pattern {
    const ALL: [Self; 5] =
        [Self::SeqWrite, Self::SeqRead, Self::StrideRead, Self::RandRead, Self::RandWrite];

    fn name(self) -> &'static str {
        match self {
            Self::SeqWrite => "seq_write",
            Self::SeqRead => "seq_read",
            Self::StrideRead => "stride_read",
            Self::RandRead => "rand_read",
            Self::RandWrite => "rand_write",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::SeqWrite | Self::RandWrite)
    }

    fn motion(self) -> Motion {
        match self {
            Self::SeqWrite | Self::SeqRead => Motion::Sequential,
            Self::StrideRead => Motion::Stride,
            Self::RandRead | Self::RandWrite => Motion::Random,
        }
    }

    fn usual_transfer_bytes(self) -> u64 {
        match self {
            Self::SeqWrite | Self::SeqRead => 1 << 20,
            Self::StrideRead => 64 << 10,
            Self::RandRead | Self::RandWrite => 4 << 10,
        }
    }
}

/// `azekura bench io`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura bench io --pool default\n  \
    azekura bench io --pool default --via native,fuse,preload\n  \
    azekura bench io --path ./mnt --pattern seq-read,rand-read --size 4GiB --processes 2\n\n\
    With --path, the best of libfuse's example passthrough_ll over memory stands beside, where it\n\
    is on the PATH or AZEKURA_PASSTHROUGH_LL names its file.")]
pub(crate) struct IoArgs {
    #[command(flatten)]
    at: WhereArgs,
    /// What to do [default: all]
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PATTERN,...")]
    pattern: Vec<Pattern>,
    /// Bytes per operation [default: 1MiB sequential, 64KiB stride, 4KiB random]
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    transfer: Option<u64>,
    /// Data in all, shared out to the processes
    #[arg(long, value_parser = parse_bytes, default_value = "1GiB", value_name = "SIZE")]
    size: u64,
    /// Longest time of a random pattern, and the time of a ping-pong reference, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    seconds: f64,
    /// All processes work on one file, each on its own part [default]
    #[arg(long, conflicts_with = "file_per_process")]
    shared: bool,
    /// Each process has its own file
    #[arg(long)]
    file_per_process: bool,
    /// Make writes durable within the time that counts
    #[arg(long)]
    fsync: bool,
}

/// What all orders of a run have in common.
#[derive(Clone)]
struct Workload<'a> {
    args: &'a IoArgs,
    processes: usize,
    part_bytes: u64,
    limit_ms: u64,
    dir: String,
}

impl Workload<'_> {
    fn file(&self, process: usize) -> String {
        if self.args.file_per_process {
            format!("{}/data.{process}", self.dir)
        } else {
            format!("{}/data", self.dir)
        }
    }

    fn files(&self) -> Vec<String> {
        let mut files: Vec<String> =
            (0..self.processes).map(|process| self.file(process)).collect();
        files.dedup();
        files
    }

    fn clean_up(&self) -> Order {
        Order::CleanUp { files: self.files(), dirs: vec![self.dir.clone()] }
    }

    fn transfer_bytes(&self, pattern: Pattern) -> u64 {
        self.args.transfer.unwrap_or(pattern.usual_transfer_bytes()).max(1)
    }

    fn series(&self, pattern: Pattern, baseline: &Baseline) -> Series {
        let transfer_bytes = self.transfer_bytes(pattern);
        let unit = if transfer_bytes >= STREAM_BYTES { Unit::Mib } else { Unit::Operations };
        let label = format_bytes(transfer_bytes).replace(' ', "");
        baseline.series(format!("{}_{label}", pattern.name()), unit, bare_of(pattern, unit))
    }

    fn orders(&self, pattern: Pattern, round: usize) -> Vec<Order> {
        let order = |process: usize| {
            let part = if self.args.file_per_process { 0 } else { process as u64 };
            let random = pattern.motion() == Motion::Random;
            Order::Io(IoOrder {
                file: self.file(process),
                write: pattern.writes(),
                motion: pattern.motion(),
                // The first worker of a shared file empties it before the others open it.
                fresh: pattern == Pattern::SeqWrite && part == 0,
                offset: part * self.part_bytes,
                bytes: self.part_bytes,
                transfer_bytes: self.transfer_bytes(pattern),
                limit_ms: if random { self.limit_ms } else { u64::MAX },
                fsync: self.args.fsync,
                seed: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul((round * 997 + process + 1) as u64),
            })
        };
        (0..self.processes).map(order).collect()
    }
}

fn bare_of(pattern: Pattern, unit: Unit) -> Bare {
    match (unit, pattern.writes()) {
        (Unit::Mib, true) => Bare::SocketToFileStream,
        (Unit::Mib, false) => Bare::SendfileStream,
        (Unit::Operations | Unit::RoundTrips, _) => Bare::PingPong,
    }
}

/// Runs the bench and prints its result.
///
/// # Errors
/// If the place cannot be reached or an operation fails.
pub(super) fn run(args: &IoArgs) -> Result<()> {
    let site = args.at.look()?;
    let total_bytes = if args.at.quick { args.size.min(16 << 20) } else { args.size };
    let seconds = if args.at.quick { 0.1 } else { args.seconds.clamp(0.01, 3600.0) };
    let workload = Workload {
        args,
        processes: site.processes,
        part_bytes: total_bytes / site.processes as u64,
        limit_ms: (seconds * 1000.0) as u64,
        dir: work_dir(),
    };
    let mut workers = site.start_native()?;
    let mut beside: Vec<Held<'_>> = Beside::start_all(&site, site.processes as u64)?
        .into_iter()
        .map(|with| {
            let workload = Workload { dir: with.work_dir(), ..workload.clone() };
            Held { with, workload, series: Vec::new() }
        })
        .collect();
    workers.run(&[Order::MakeDirectories(vec![workload.dir.clone()])])?;
    let measured = measure(&workload, &site, &mut workers, &mut beside);
    let mut cleaned = workers.run(&[workload.clean_up()]);
    for other in &mut beside {
        cleaned = cleaned.and(other.with.workers.run(&[other.workload.clean_up()]));
    }
    let mut all = measured?;
    all.extend(best_of_modes(beside.into_iter().flat_map(|other| other.series).collect()));
    let rows = rows_of(&all);
    cleaned?;
    Sheet { rows, facts: site.facts }.print(args.at.json)
}

/// What is held against the native path.
struct Held<'a> {
    with: Beside,
    workload: Workload<'a>,
    series: Vec<Series>,
}

fn measure(
    workload: &Workload<'_>,
    site: &Site,
    workers: &mut WorkerPool,
    beside: &mut [Held<'_>],
) -> Result<Vec<Series>> {
    let meter = if workload.args.at.cpu { Some(CpuMeter::of(site)?) } else { None };
    let wanted = |pattern: &Pattern| {
        workload.args.pattern.is_empty() || workload.args.pattern.contains(pattern)
    };
    let patterns: Vec<Pattern> = Pattern::ALL.into_iter().filter(wanted).collect();
    let mut baseline = Baseline::start(
        &site.backend,
        workload.processes,
        vec![workload.dir.clone()],
        workload.part_bytes * workload.processes as u64,
        workload.limit_ms,
    )?;
    let mut progress =
        Progress::count("measuring", (site.rounds * patterns.len() * (1 + beside.len())) as u64);
    for other in &mut *beside {
        other.with.workers.run(&[Order::MakeDirectories(vec![other.workload.dir.clone()])])?;
    }
    if patterns.first() != Some(&Pattern::SeqWrite) {
        let orders = workload.orders(Pattern::SeqWrite, 0);
        workers.run(&orders)?;
        baseline.prepare(&orders)?;
        for other in &mut *beside {
            other.with.workers.run(&other.workload.orders(Pattern::SeqWrite, 0))?;
        }
    }
    let mut all: Vec<Series> =
        patterns.iter().map(|pattern| workload.series(*pattern, &baseline)).collect();
    for other in &mut *beside {
        other.series = other.with.series(&all);
    }
    for round in 0..site.rounds {
        for (index, (pattern, series)) in patterns.iter().zip(&mut all).enumerate() {
            let orders = workload.orders(*pattern, round);
            let bare = bare_of(*pattern, series.unit);
            baseline.measure(bare, &orders, meter.is_some(), series)?;
            let native = measure_round(series, meter.as_ref(), workers, &orders)?;
            progress.advance(1);
            for other in &mut *beside {
                let orders = other.workload.orders(*pattern, round);
                let meter = other.with.meter(meter.as_ref());
                let beside = &mut other.series[index];
                beside.references.push(native);
                measure_round(beside, meter.as_ref(), &mut other.with.workers, &orders)?;
                progress.advance(1);
            }
        }
    }
    Ok(all)
}
