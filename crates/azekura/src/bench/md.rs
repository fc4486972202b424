//! `azekura bench md`: many small files. Each round makes them, asks for them, opens them and
//! removes them; `load` has the loops.

use anyhow::Result;
use clap::Args;

use super::beside::{Beside, best_of_modes};
use super::cpu::{CpuMeter, measure_round};
use super::reference::{Bare, Baseline};
use super::sheet::{Series, Sheet, Unit, rows_of};
use super::site::{Site, WhereArgs, work_dir};
use crate::load::{Backend, MdKind, MdOrder, Order, WorkerPool, drop_cached_entries};
use crate::report::Progress;

const PING_PONG_MS: u64 = 500;

/// `azekura bench md`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura bench md --pool default\n  \
    azekura bench md --pool default --via native,fuse,preload\n  \
    azekura bench md --pool default --cpu --processes 2\n  \
    azekura bench md --path ./mnt --files 20000 --processes 2 --own\n\n\
    With --path, the best of libfuse's example passthrough_ll over memory stands beside, where it\n\
    is on the PATH or AZEKURA_PASSTHROUGH_LL names its file.")]
pub(crate) struct MdArgs {
    #[command(flatten)]
    at: WhereArgs,
    /// Files per process
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    files: u64,
    /// All processes work in one directory
    #[arg(long, conflicts_with = "own")]
    shared: bool,
    /// Each process works in its own directory [default]
    #[arg(long)]
    own: bool,
}

const STEPS: [(MdKind, &str); 4] = [
    (MdKind::Create, "create"),
    (MdKind::Stat, "stat"),
    (MdKind::OpenClose, "open_close"),
    (MdKind::Remove, "remove"),
];

#[derive(Clone)]
struct Workload {
    processes: usize,
    files: u64,
    shared: bool,
    dir: String,
}

impl Workload {
    fn dir_of(&self, process: usize) -> String {
        if self.shared { format!("{}/all", self.dir) } else { format!("{}/{process}", self.dir) }
    }

    fn dirs(&self) -> Vec<String> {
        let mut dirs = vec![self.dir.clone()];
        dirs.extend((0..self.processes).map(|process| self.dir_of(process)));
        dirs.dedup();
        dirs
    }

    fn prefix(process: usize) -> String {
        format!("file.{process}.")
    }

    fn orders(&self, kind: MdKind) -> Vec<Order> {
        let order = |process| {
            Order::Md(MdOrder {
                kind,
                dir: self.dir_of(process),
                prefix: Self::prefix(process),
                files: self.files,
                limit_ms: u64::MAX,
            })
        };
        (0..self.processes).map(order).collect()
    }

    fn clean_up(&self, with_files: bool) -> Order {
        let files = (0..if with_files { self.processes } else { 0 }).flat_map(|process| {
            let dir = self.dir_of(process);
            (0..self.files).map(move |number| format!("{dir}/{}{number}", Self::prefix(process)))
        });
        let dirs = self.dirs().into_iter().rev().collect();
        Order::CleanUp { files: files.collect(), dirs }
    }
}

/// Runs the bench and prints its result.
///
/// # Errors
/// If the place cannot be reached or an operation fails.
pub(super) fn run(args: &MdArgs) -> Result<()> {
    let mut site = args.at.look()?;
    let workload = Workload {
        processes: site.processes,
        files: if args.at.quick { args.files.min(200) } else { args.files.max(1) },
        shared: args.shared,
        dir: work_dir(),
    };
    let meter = if args.at.cpu { Some(CpuMeter::of(&site)?) } else { None };
    let mut workers = site.start_native()?;
    let files = workload.files * workload.processes as u64;
    let mut beside: Vec<Held> = Beside::start_all(&site, files)?
        .into_iter()
        .map(|with| {
            let workload = Workload { dir: with.work_dir(), ..workload.clone() };
            Held { with, workload, series: Vec::new() }
        })
        .collect();
    workers.run(&[Order::MakeDirectories(workload.dirs())])?;
    let measured =
        measure(&workload, &mut site, meter.as_ref(), &mut workers, &mut beside, args.at.quick);
    // After a failure, files may be left.
    let mut cleaned = workers.run(&[workload.clean_up(measured.is_err())]);
    for other in &mut beside {
        cleaned =
            cleaned.and(other.with.workers.run(&[other.workload.clean_up(measured.is_err())]));
    }
    let mut all = measured?;
    all.extend(best_of_modes(beside.into_iter().flat_map(|other| other.series).collect()));
    let rows = rows_of(&all);
    cleaned?;
    Sheet { rows, facts: site.facts }.print(args.at.json)
}

/// What is held against the native path.
struct Held {
    with: Beside,
    workload: Workload,
    series: Vec<Series>,
}

fn measure(
    workload: &Workload,
    site: &mut Site,
    meter: Option<&CpuMeter>,
    workers: &mut WorkerPool,
    beside: &mut [Held],
    quick: bool,
) -> Result<Vec<Series>> {
    let limit_ms = if quick { 50 } else { PING_PONG_MS };
    let mut baseline =
        Baseline::start(&site.backend, workload.processes, workload.dirs(), 0, limit_ms)?;
    let row = |(_, name): &(MdKind, &str)| {
        baseline.series((*name).to_owned(), Unit::Operations, Bare::PingPong)
    };
    let mut all: Vec<Series> = STEPS.iter().map(row).collect();
    for other in &mut *beside {
        other.series = other.with.series(&all);
        other.with.workers.run(&[Order::MakeDirectories(other.workload.dirs())])?;
    }
    let total = site.rounds * STEPS.len() * (1 + beside.len());
    let mut progress = Progress::count("measuring", total as u64);
    for _ in 0..site.rounds {
        for (index, ((kind, _), series)) in STEPS.iter().zip(&mut all).enumerate() {
            let orders = workload.orders(*kind);
            baseline.measure(Bare::PingPong, &orders, meter.is_some(), series)?;
            if *kind != MdKind::Create && matches!(site.backend, Backend::Path(_)) {
                site.facts.entries_dropped_by = Some(drop_cached_entries());
            }
            let native = measure_round(series, meter, workers, &orders)?;
            progress.advance(1);
            for other in &mut *beside {
                if *kind != MdKind::Create && other.with.has_mount {
                    site.facts.entries_dropped_by = Some(drop_cached_entries());
                }
                let orders = other.workload.orders(*kind);
                let meter = other.with.meter(meter);
                let beside = &mut other.series[index];
                beside.references.push(native);
                measure_round(beside, meter.as_ref(), &mut other.with.workers, &orders)?;
                progress.advance(1);
            }
        }
    }
    Ok(all)
}
