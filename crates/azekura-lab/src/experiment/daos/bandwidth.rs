//! Write and read bandwidth of processes, as IOR measures it: sequential transfers of one size, each
//! process on its own part of one file (N-1) or on a file of its own (N-N).

use anyhow::Result;
use azekura::load::{IoOrder, Motion, Order, WorkerPool};

use super::fixture::{Conditions, Fixture, PROCESSES};
use super::phase;
use crate::experiment::frame::{Settings, Value};
use crate::experiment::spread::Spread;

/// What one process moves at most.
const PART_BYTES: u64 = 512 << 20;
/// Least and most that are moved at once.
const SMALLEST_BYTES: u64 = 16 << 10;
const LARGEST_BYTES: u64 = 4 << 20;

/// Names of the columns.
pub(super) const WRITE: &str = "write_mib_per_s";
pub(super) const READ: &str = "read_mib_per_s";
/// Phases of a round.
pub(super) const PHASES: usize = 2;
/// The columns: means, and the least and the most of the rounds.
pub(super) const VALUES: [Value; 6] = [
    Value { name: READ, title: "read, MiB/s" },
    Value { name: WRITE, title: "write, MiB/s" },
    Value { name: "read_mib_per_s_min", title: "least" },
    Value { name: "read_mib_per_s_max", title: "most" },
    Value { name: "write_mib_per_s_min", title: "least" },
    Value { name: "write_mib_per_s_max", title: "most" },
];

/// Which file a process works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// All on one: single shared file.
    Shared,
    /// Each on its own: file per process.
    PerProcess,
}

impl Files {
    pub(super) const ALL: [Self; 2] = [Self::Shared, Self::PerProcess];

    /// The paper's word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shared => "N-1",
            Self::PerProcess => "N-N",
        }
    }
}

/// The transfer sizes of the paper, or three of them.
pub(super) fn transfer_sizes(settings: &Settings) -> Vec<u64> {
    let powers = (0..).map(|power| SMALLEST_BYTES << power);
    let all = powers.take_while(|bytes| *bytes <= LARGEST_BYTES);
    all.step_by(if settings.quick { 4 } else { 1 }).collect()
}

/// How much one process moves per phase, for a page.
pub(super) fn part_bytes(settings: &Settings) -> u64 {
    settings.scaled(PART_BYTES, LARGEST_BYTES)
}

struct Load<'a> {
    dir: &'a str,
    files: Files,
    transfer_bytes: u64,
    part_bytes: u64,
    limit_ms: u64,
}

impl Load<'_> {
    fn file(&self, process: usize) -> String {
        match self.files {
            Files::Shared => format!("{}/data", self.dir),
            Files::PerProcess => format!("{}/data.{process}", self.dir),
        }
    }

    fn order(&self, process: usize, write: bool, bytes: u64) -> Order {
        let part = match self.files {
            Files::Shared => process as u64,
            Files::PerProcess => 0,
        };
        Order::Io(IoOrder {
            file: self.file(process),
            write,
            motion: Motion::Sequential,
            fresh: write && part == 0,
            offset: part * self.part_bytes,
            bytes,
            transfer_bytes: self.transfer_bytes,
            limit_ms: self.limit_ms,
            fsync: false,
            seed: 0,
        })
    }

    /// A phase of writing and one of reading what was written.
    fn round(&self, workers: &mut WorkerPool, processes: usize) -> Result<[f64; PHASES]> {
        let writes: Vec<Order> =
            (0..processes).map(|process| self.order(process, true, self.part_bytes)).collect();
        let written = phase::run(workers, &writes, self.limit_ms, || ())?;
        let part = |(process, bytes)| self.order(process, false, bytes);
        let bytes = written.last.iter().map(|tally| tally.bytes);
        let reads: Vec<Order> = bytes.enumerate().map(part).collect();
        let read = phase::run(workers, &reads, self.limit_ms, || ())?;
        Ok([read.mib_per_s, written.mib_per_s])
    }
}

/// Measures read and write bandwidth, in the order of [`VALUES`], in `limit_ms` for each phase.
///
/// # Errors
/// If the pool or the workers cannot be started, or an operation fails.
pub(super) fn measure(
    fixture: &mut Fixture,
    conditions: Conditions,
    files: Files,
    transfer_bytes: u64,
    settings: &Settings,
    limit_ms: u64,
) -> Result<Vec<f64>> {
    let processes = conditions.processes;
    // As much in all, however many share it; whole transfers, so that parts do not overlap.
    let share = part_bytes(settings) * PROCESSES as u64 / processes as u64;
    let part_bytes = (share / transfer_bytes).max(1) * transfer_bytes;
    fixture.with_workers(conditions, |workers, dir| {
        let load = Load { dir: &dir, files, transfer_bytes, part_bytes, limit_ms };
        workers.run(&[Order::MakeDirectories(vec![dir.clone()])])?;
        let spread = Spread::of_rounds(settings.rounds(), |_| load.round(workers, processes))?;
        let files = (0..processes).map(|process| load.file(process)).collect();
        workers.run(&[Order::CleanUp { files, dirs: vec![dir.clone()] }])?;
        Ok(spread.values())
    })
}
