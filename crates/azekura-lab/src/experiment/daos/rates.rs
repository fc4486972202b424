//! Metadata operations of processes per second, as mdtest measures them: every process makes, asks for,
//! opens and removes empty files in one directory that all of them share.

use anyhow::Result;
use azekura::load::{MdKind, MdOrder, Order, WorkerPool, drop_cached_entries};

use super::fixture::{Conditions, Fixture};
use super::phase;
use crate::experiment::frame::{Line, Settings, Value};
use crate::experiment::spread::Spread;

/// Files of all processes together, at most: the paper's number, of which time leaves a part.
const FILES: u64 = 1_000_000;
/// Phases of a round.
pub(super) const PHASES: usize = KINDS.len();

/// The columns, in the order of [`KINDS`]: means, and the least and the most of the rounds.
pub(super) const VALUES: [Value; 12] = [
    Value { name: "create_per_s", title: "create, 1/s" },
    Value { name: "stat_per_s", title: "stat, 1/s" },
    Value { name: "read_per_s", title: "read (open+close), 1/s" },
    Value { name: "delete_per_s", title: "delete, 1/s" },
    Value { name: "create_per_s_min", title: "least" },
    Value { name: "create_per_s_max", title: "most" },
    Value { name: "stat_per_s_min", title: "least" },
    Value { name: "stat_per_s_max", title: "most" },
    Value { name: "read_per_s_min", title: "least" },
    Value { name: "read_per_s_max", title: "most" },
    Value { name: "delete_per_s_min", title: "least" },
    Value { name: "delete_per_s_max", title: "most" },
];
const KINDS: [MdKind; 4] = [MdKind::Create, MdKind::Stat, MdKind::OpenClose, MdKind::Remove];
/// What the paper calls them.
const NAMES: [&str; 4] = ["create", "stat", "read", "delete"];

/// One line for each kind of operation.
pub(super) fn lines() -> Vec<Line> {
    VALUES
        .iter()
        .zip(NAMES)
        .map(|(value, name)| Line { title: name.to_owned(), value: value.name, only: Vec::new() })
        .collect()
}

/// How many files there are in all, for a page.
pub(super) fn file_count(settings: &Settings) -> u64 {
    settings.scaled(FILES, 256)
}

/// Measures all kinds, in the order of [`VALUES`], in `limit_ms` or a little more for each.
///
/// # Errors
/// If the pool or the workers cannot be started, or an operation fails.
pub(super) fn measure(
    fixture: &mut Fixture,
    conditions: Conditions,
    settings: &Settings,
    limit_ms: u64,
) -> Result<Vec<f64>> {
    let files = (file_count(settings) / conditions.processes as u64).max(1);
    fixture.with_workers(conditions, |workers, name| {
        let spread = Spread::of_rounds(settings.rounds(), |round| {
            let dir = format!("{name}.{round}");
            workers.run(&[Order::MakeDirectories(vec![dir.clone()])])?;
            measure_round(workers, conditions, &dir, files, limit_ms)
        })?;
        Ok(spread.values())
    })
}

fn measure_round(
    workers: &mut WorkerPool,
    conditions: Conditions,
    dir: &str,
    files: u64,
    limit_ms: u64,
) -> Result<[f64; PHASES]> {
    // How many files each process has: what it made within its time.
    let mut counts = vec![files; conditions.processes];
    let mut figures = [0.0; PHASES];
    for (kind, figure) in KINDS.into_iter().zip(&mut figures) {
        let forget = || {
            if kind != MdKind::Create && conditions.access.has_mount() {
                drop_cached_entries();
            }
        };
        let order = |(process, files): (usize, &u64)| {
            let prefix = format!("file.{process}.");
            Order::Md(MdOrder { kind, dir: dir.to_owned(), prefix, files: *files, limit_ms })
        };
        let orders: Vec<Order> = counts.iter().enumerate().map(order).collect();
        // What is made or removed cannot be made or removed again: one turn, until time or files end.
        let again = matches!(kind, MdKind::Stat | MdKind::OpenClose);
        let done = phase::run(workers, &orders, if again { limit_ms } else { 0 }, forget)?;
        if kind == MdKind::Create {
            counts = done.last.iter().map(|tally| tally.operations).collect();
        }
        *figure = done.operations_per_s;
    }
    Ok(figures)
}
