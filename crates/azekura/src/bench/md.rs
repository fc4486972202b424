//! `azekura bench md`: many small files. Each round makes them, asks for them, opens them and
//! removes them; `load` has the loops.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::crew::Crew;
use super::order::{MdKind, MdOrder, Order, Place, Speed};
use super::reference::{Bare, References, ScratchDir};
use super::sheet::{Series, Sheet, Unit, rows_of};
use super::{Door, Site, WhereArgs, series_beside, work_dir};
use crate::report::Progress;

/// Longer than a mount believes what it was told, with its default settings.
const CACHE_LIFE: Duration = Duration::from_millis(1_200);
const PING_PONG_MS: u64 = 500;

/// `azekura bench md`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura bench md --pool default\n  \
    azekura bench md --pool default --via native,fuse,preload\n  \
    azekura bench md --path ./mnt --files 20000 --processes 2 --own")]
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
struct Plan {
    processes: usize,
    files: u64,
    shared: bool,
    dir: String,
}

impl Plan {
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

/// What stands on the other side of the ratio.
enum Against {
    Bare(References),
    Memory { crew: Crew, _scratch: ScratchDir },
}

impl Against {
    fn hire(place: &Place, plan: &Plan, quick: bool) -> Result<Self> {
        Ok(match place {
            Place::Pool { .. } => {
                let limit_ms = if quick { 50 } else { PING_PONG_MS };
                Self::Bare(References::hire(plan.processes, 0, limit_ms)?)
            }
            Place::Path(_) => {
                let scratch = ScratchDir::make("memory")?;
                let mut crew = Crew::hire(plan.processes)?;
                crew.run_all(&Order::Settle(Place::Path(scratch.dir())))?;
                crew.run(&[Order::MakeDirectories(plan.dirs())])?;
                Self::Memory { crew, _scratch: scratch }
            }
        })
    }

    fn series(&self, name: &str) -> Series {
        let (reference_name, reference_unit) = match self {
            Self::Bare(_) => (Bare::PingPong.name().to_owned(), Bare::PingPong.unit()),
            Self::Memory { .. } => (format!("ref_{name}"), Unit::Operations),
        };
        Series {
            name: name.to_owned(),
            unit: Unit::Operations,
            reference_name,
            reference_unit,
            values: Vec::new(),
            references: Vec::new(),
        }
    }

    fn measure(&mut self, orders: &[Order]) -> Result<f64> {
        match self {
            Self::Bare(references) => references.measure(Bare::PingPong),
            Self::Memory { crew, .. } => Ok(Speed::of(&crew.run(orders)?).operations_per_s),
        }
    }
}

/// Runs the bench and prints its result.
///
/// # Errors
/// If the place cannot be reached or an operation fails.
pub(super) fn run(args: &MdArgs) -> Result<()> {
    let mut site = args.at.look()?;
    let plan = Plan {
        processes: site.processes,
        files: if args.at.quick { args.files.min(200) } else { args.files.max(1) },
        shared: args.shared,
        dir: work_dir(Door::Native),
    };
    let mut crew = Crew::hire(site.processes)?;
    crew.run_all(&Order::Settle(site.place.clone()))?;
    let mut beside: Vec<Beside> = site
        .hire_beside()?
        .into_iter()
        .map(|(door, crew)| {
            let plan = Plan { dir: work_dir(door), ..plan.clone() };
            Beside { door, crew, plan, series: Vec::new() }
        })
        .collect();
    crew.run(&[Order::MakeDirectories(plan.dirs())])?;
    let measured = measure(&plan, &mut site, &mut crew, &mut beside, args.at.quick);
    // After a failure, files may be left.
    let mut cleaned = crew.run(&[plan.clean_up(measured.is_err())]);
    for door in &mut beside {
        cleaned = cleaned.and(door.crew.run(&[door.plan.clean_up(measured.is_err())]));
    }
    let mut all = measured?;
    all.extend(beside.into_iter().flat_map(|door| door.series));
    let rows = rows_of(&all);
    cleaned?;
    Sheet { rows, facts: site.facts }.print(args.at.json)
}

/// A door that is held against the native one.
struct Beside {
    door: Door,
    crew: Crew,
    plan: Plan,
    series: Vec<Series>,
}

fn measure(
    plan: &Plan,
    site: &mut Site,
    crew: &mut Crew,
    beside: &mut [Beside],
    quick: bool,
) -> Result<Vec<Series>> {
    let mut against = Against::hire(&site.place, plan, quick)?;
    let mut all: Vec<Series> = STEPS.iter().map(|(_, name)| against.series(name)).collect();
    for door in &mut *beside {
        door.series = all.iter().map(|native| series_beside(door.door, native)).collect();
        door.crew.run(&[Order::MakeDirectories(door.plan.dirs())])?;
    }
    let total = site.rounds * STEPS.len() * (1 + beside.len());
    let mut progress = Progress::count("measuring", total as u64);
    for _ in 0..site.rounds {
        for (index, ((kind, _), series)) in STEPS.iter().zip(&mut all).enumerate() {
            let orders = plan.orders(*kind);
            series.references.push(against.measure(&orders)?);
            if *kind != MdKind::Create && matches!(site.place, Place::Path(_)) {
                site.facts.entries_dropped_by = Some(drop_cached_entries());
            }
            let native = Speed::of(&crew.run(&orders)?).operations_per_s;
            series.values.push(native);
            progress.advance(1);
            for door in &mut *beside {
                if *kind != MdKind::Create && door.door.has_mount() {
                    site.facts.entries_dropped_by = Some(drop_cached_entries());
                }
                let tallies = door.crew.run(&door.plan.orders(*kind))?;
                door.series[index].references.push(native);
                door.series[index].values.push(Speed::of(&tallies).operations_per_s);
                progress.advance(1);
            }
        }
    }
    Ok(all)
}

/// Makes the kernel forget names and attributes, so that asking for them asks the file system.
pub(crate) fn drop_cached_entries() -> &'static str {
    if std::fs::write("/proc/sys/vm/drop_caches", b"2").is_ok() {
        return "dropped by the kernel (drop_caches)";
    }
    std::thread::sleep(CACHE_LIFE);
    "waited 1.2 s for them to expire (dropping them needs root)"
}
