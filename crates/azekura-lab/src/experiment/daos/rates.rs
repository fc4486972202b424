//! Metadata operations of processes per second, as mdtest measures them: every process makes, asks for,
//! opens and removes empty files in one directory that all of them share.

use anyhow::Result;
use azekura::load::{MdKind, MdOrder, Order, Speed, WorkerPool, drop_cached_entries};

use super::fixture::{Conditions, Fixture};
use crate::experiment::frame::{Line, Settings, Value};

/// Files of all processes together, at most.
const FILES: u64 = 64_000;

/// The columns, in the order of [`KINDS`].
pub(super) const VALUES: [Value; 4] = [
    Value { name: "create_per_s", title: "create, 1/s" },
    Value { name: "stat_per_s", title: "stat, 1/s" },
    Value { name: "read_per_s", title: "read (open+close), 1/s" },
    Value { name: "delete_per_s", title: "delete, 1/s" },
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

/// Measures all kinds, in the order of [`VALUES`], in `limit_ms` for each.
///
/// # Errors
/// If the pool or the workers cannot be started, or an operation fails.
pub(super) fn measure(
    fixture: &mut Fixture,
    conditions: Conditions,
    settings: &Settings,
    limit_ms: u64,
) -> Result<[f64; 4]> {
    let files = (file_count(settings) / conditions.processes as u64).max(1);
    fixture.with_workers(conditions, |workers, name| {
        let mut sums = [0.0; 4];
        for round in 0..settings.rounds() {
            let dir = format!("{name}.{round}");
            workers.run(&[Order::MakeDirectories(vec![dir.clone()])])?;
            let figures = measure_round(workers, conditions, &dir, files, limit_ms)?;
            sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
        Ok(sums.map(|sum| sum / settings.rounds() as f64))
    })
}

fn measure_round(
    workers: &mut WorkerPool,
    conditions: Conditions,
    dir: &str,
    files: u64,
    limit_ms: u64,
) -> Result<[f64; 4]> {
    // How many files each process has: what it made within its time.
    let mut counts = vec![files; conditions.processes];
    let mut figures = [0.0; 4];
    for (kind, figure) in KINDS.into_iter().zip(&mut figures) {
        if kind != MdKind::Create && conditions.access.has_mount() {
            drop_cached_entries();
        }
        let order = |(process, files): (usize, &u64)| {
            let prefix = format!("file.{process}.");
            Order::Md(MdOrder { kind, dir: dir.to_owned(), prefix, files: *files, limit_ms })
        };
        let orders: Vec<Order> = counts.iter().enumerate().map(order).collect();
        let tallies = workers.run(&orders)?;
        if kind == MdKind::Create {
            counts = tallies.iter().map(|tally| tally.operations).collect();
        }
        *figure = Speed::of(&tallies).operations_per_s;
    }
    Ok(figures)
}
