//! The result of a bench: rows with their references and ratios, and facts about the machine. Owns
//! the JSON form that other programs read.

use anyhow::Result;
use serde::Serialize;

use crate::host::machine::Machine;
use crate::load::Speed;
use crate::report::{self, Table};

/// What a figure counts per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    /// MiB.
    #[serde(rename = "MiB/s")]
    Mib,
    /// Operations.
    #[serde(rename = "ops/s")]
    Operations,
    /// Round trips.
    #[serde(rename = "round trips/s")]
    RoundTrips,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Mib => "MiB/s",
            Self::Operations => "ops/s",
            Self::RoundTrips => "round trips/s",
        }
    }
}

/// Processor time per operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct CpuPerOperation {
    /// Of those who ask, with a mount that serves them, in microseconds.
    pub(super) client_us: f64,
    /// Of the engines, in microseconds; `None` where some run elsewhere or there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) engine_us: Option<f64>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// What was measured.
    pub(super) name: String,
    /// How it was set up, if the best of several ways is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<&'static str>,
    /// Median over the rounds.
    pub(super) value: f64,
    /// What it is counted in.
    pub(super) unit: Unit,
    /// Median of the reference that was measured beside it, in its own unit.
    pub(super) reference: f64,
    /// Name of the row that has the reference.
    pub(super) reference_name: String,
    /// Value over reference.
    pub(super) ratio: f64,
    /// The value of each round.
    pub(super) rounds: Vec<f64>,
    /// Processor time of each operation, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<CpuPerOperation>,
}

/// Facts about the machine and the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    /// Version of this program.
    pub(super) version: &'static str,
    /// The machine.
    #[serde(flatten)]
    pub(super) machine: Machine,
    /// The pool or directory that was measured.
    pub(super) place: String,
    /// Targets of the pool; 0 for a directory.
    pub(super) targets: u16,
    /// Engines of the pool; 0 for a directory.
    pub(super) engines: usize,
    /// Worker processes.
    pub(super) processes: usize,
    /// Rounds of which medians were taken.
    pub(super) rounds: usize,
    /// How cached entries were dropped, for runs on a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entries_dropped_by: Option<&'static str>,
}

/// A whole result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sheet {
    /// The figures, references last.
    pub(super) rows: Vec<Row>,
    /// About the run.
    pub(super) facts: Facts,
}

/// The figure of a run in a unit.
pub(super) fn figure(speed: Speed, unit: Unit) -> f64 {
    match unit {
        Unit::Mib => speed.mib_per_s,
        Unit::Operations | Unit::RoundTrips => speed.operations_per_s,
    }
}

/// The median of some figures; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The figures of one row while the rounds go on.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) mode: Option<&'static str>,
    pub(super) unit: Unit,
    pub(super) reference_name: String,
    pub(super) reference_unit: Unit,
    pub(super) values: Vec<f64>,
    pub(super) references: Vec<f64>,
    /// Processor time of the operations of each round, where it was counted.
    pub(super) cpu: Vec<CpuPerOperation>,
    /// That of what they are held against.
    pub(super) reference_cpu: Vec<CpuPerOperation>,
}

impl Series {
    /// An empty row, and what it will be held against.
    pub(super) fn new(
        name: String,
        unit: Unit,
        reference_name: &str,
        reference_unit: Unit,
    ) -> Self {
        Self {
            name,
            mode: None,
            unit,
            reference_name: reference_name.to_owned(),
            reference_unit,
            values: Vec::new(),
            references: Vec::new(),
            cpu: Vec::new(),
            reference_cpu: Vec::new(),
        }
    }

    /// The row of workers that do the same elsewhere, held against ours of the same run.
    pub(super) fn beside(label: &str, mode: Option<&'static str>, ours: &Self) -> Self {
        let name = format!("{label}:{}", ours.name);
        Self { mode, ..Self::new(name, ours.unit, &ours.name, ours.unit) }
    }
}

/// The medians of both sides; `None` where nothing was counted.
fn median_cpu(rounds: &[CpuPerOperation]) -> Option<CpuPerOperation> {
    let client: Vec<f64> = rounds.iter().map(|round| round.client_us).collect();
    let engine: Option<Vec<f64>> = rounds.iter().map(|round| round.engine_us).collect();
    let engine_us = engine.as_deref().map(median);
    (!rounds.is_empty()).then(|| CpuPerOperation { client_us: median(&client), engine_us })
}

/// Rows of all series, followed by one row for each of their references.
pub(super) fn rows_of(all: &[Series]) -> Vec<Row> {
    let row = |series: &Series| {
        let (value, reference) = (median(&series.values), median(&series.references));
        Row {
            name: series.name.clone(),
            mode: series.mode,
            value,
            unit: series.unit,
            reference,
            reference_name: series.reference_name.clone(),
            ratio: if reference > 0.0 { value / reference } else { 0.0 },
            rounds: series.values.clone(),
            cpu: median_cpu(&series.cpu),
        }
    };
    let mut rows: Vec<Row> = all.iter().map(row).collect();
    for series in all {
        if rows.iter().any(|row| row.name == series.reference_name) {
            continue;
        }
        let same = all.iter().filter(|other| other.reference_name == series.reference_name);
        let rounds: Vec<f64> =
            same.clone().flat_map(|other| other.references.iter().copied()).collect();
        let cpu: Vec<_> = same.flat_map(|other| other.reference_cpu.iter().copied()).collect();
        let value = median(&rounds);
        rows.push(Row {
            name: series.reference_name.clone(),
            mode: None,
            value,
            unit: series.reference_unit,
            reference: value,
            reference_name: series.reference_name.clone(),
            ratio: 1.0,
            rounds,
            cpu: median_cpu(&cpu),
        });
    }
    rows
}

impl Facts {
    /// A run on this machine.
    pub(super) fn of_run(place: String, processes: usize, rounds: usize) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            place,
            targets: 0,
            engines: 0,
            processes,
            rounds,
            entries_dropped_by: None,
        }
    }
}

impl Sheet {
    /// Prints the result for people or for programs.
    ///
    /// # Errors
    /// If it has no form in JSON.
    pub(super) fn print(&self, json: bool) -> Result<()> {
        if json {
            return report::say_json(self);
        }
        let facts = &self.facts;
        report::say(format_args!(
            "{} on {} x {}, Linux {}, {} process{}, median of {} round{}",
            facts.place,
            facts.machine.processors,
            facts.machine.processor,
            facts.machine.kernel,
            facts.processes,
            if facts.processes == 1 { "" } else { "es" },
            facts.rounds,
            if facts.rounds == 1 { "" } else { "s" },
        ));
        let mut titles = vec!["what", ">value", "unit", ">ratio", ">reference", "held against"];
        let with_cpu = self.rows.iter().any(|row| row.cpu.is_some());
        if with_cpu {
            titles.extend([">client us", ">engine us"]);
        }
        let mut table = Table::new(&titles);
        for row in &self.rows {
            let is_reference = row.name == row.reference_name;
            let shown = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
            // Columns without a title are not shown.
            let name = match row.mode {
                Some(mode) => format!("{} ({mode})", row.name),
                None => row.name.clone(),
            };
            table.row([
                name,
                report::format_rate(row.value),
                row.unit.name().to_owned(),
                if is_reference { String::new() } else { format!("{:.2}", row.ratio) },
                if is_reference { String::new() } else { report::format_rate(row.reference) },
                if is_reference { String::new() } else { row.reference_name.clone() },
                shown(row.cpu.map(|cpu| cpu.client_us)),
                shown(row.cpu.and_then(|cpu| cpu.engine_us)),
            ]);
        }
        report::say(table);
        if with_cpu {
            report::say("client us, engine us: processor time of one operation on each side");
        }
        if let Some(how) = facts.entries_dropped_by {
            report::say(format_args!("cached entries before stat, open_close and remove: {how}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(client_us: f64, engine_us: Option<f64>) -> CpuPerOperation {
        CpuPerOperation { client_us, engine_us }
    }

    #[test]
    fn ratios_are_of_medians_and_references_get_rows() {
        let series = Series {
            values: vec![5.0, 100.0, 6.0],
            references: vec![12.0, 1.0, 90.0],
            cpu: [3.0, 1.0, 2.0].map(|us| cpu(us, Some(us / 2.0))).to_vec(),
            reference_cpu: vec![cpu(7.0, None)],
            ..Series::new("stat".to_owned(), Unit::Operations, "ref_ping_pong", Unit::RoundTrips)
        };
        let rows = rows_of(&[series]);
        assert_eq!(rows.len(), 2);
        assert!((rows[0].ratio - 0.5).abs() < 1e-9);
        assert_eq!(rows[1].name, "ref_ping_pong");
        assert!((rows[1].value - 12.0).abs() < 1e-9);
        assert_eq!(rows[0].cpu, Some(cpu(2.0, Some(1.0))));
        assert_eq!(rows[1].cpu, Some(cpu(7.0, None)));
    }
}
