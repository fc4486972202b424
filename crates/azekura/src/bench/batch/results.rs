//! What batches came to, as a table, as the JSON that `azekura forecast --check` reads, and as CSV.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use azekura_forecast::calibration;
use azekura_forecast::units::Bytes;
use azekura_forecast::{Measured, Run, Runs, Spent, units};

use super::case::Case;
use super::crew::Measurement;
use crate::host::date;
use crate::host::machine::Machine;
use crate::load::CachesDropped;
use crate::report::{self, Table, format_bytes};

/// This machine, as calibrations name it.
pub(crate) fn this_machine() -> calibration::Machine {
    let machine = Machine::here();
    calibration::Machine {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        processor: machine.processor,
        processors: u32::try_from(machine.processors).unwrap_or(u32::MAX),
        memory_bytes: Bytes(machine.memory_bytes),
    }
}

/// Date and time, as calibrations have it.
pub(crate) fn now() -> String {
    date::now().trim_end_matches(" UTC").to_owned()
}

/// Program and kernel with their versions.
pub(crate) fn software() -> String {
    format!(
        "azekura {}, {} {}",
        env!("CARGO_PKG_VERSION"),
        rustix::system::uname().sysname().to_string_lossy(),
        Machine::here().kernel
    )
}

/// A batch with what was measured of it.
pub(crate) fn run_of(
    case: &Case,
    measurements: &[Measurement],
    dropped: Option<CachesDropped>,
) -> Run {
    Run {
        name: case.name(),
        job: case.job(),
        seconds: measurements.iter().map(|one| one.seconds).collect(),
        phase_seconds: Vec::new(),
        spent: measurements.iter().map(|one| one.spent).collect(),
        caches_dropped: dropped.is_some(),
    }
}

/// Runs at this place of this machine.
pub(crate) fn runs_of(target: &str, runs: Vec<Run>) -> Runs {
    Runs {
        format: azekura_forecast::job::FORMAT,
        machine: this_machine(),
        date: now(),
        software: software(),
        target: target.to_owned(),
        runs,
    }
}

/// How caches were dropped, in words.
pub(super) fn dropped_in_words(dropped: Option<CachesDropped>) -> &'static str {
    match dropped {
        Some(CachesDropped::ByKernel) => "dropped by the kernel before each run (drop_caches)",
        Some(CachesDropped::ByAdvice) => {
            "the kernel was advised to keep no data of the input (posix_fadvise); names, and what a \
             server keeps, may still be in memory (dropping them needs root)"
        }
        None => "warm: the input was just written or read",
    }
}

fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    Measured::<units::Seconds>::of(values).map_or((0.0, 0.0), |all| (all.number(), all.sd))
}

/// Prints a batch for people.
pub(super) fn print(case: &Case, run: &Run, target: &str, dropped: Option<CachesDropped>) {
    let (mean, sd) = mean_and_spread(&run.seconds);
    let bytes = case.read_bytes() + case.written_bytes();
    report::say(format_args!(
        "{target}: {}, {} in and {} out, records of {}, buffers of {}",
        run.name,
        format_bytes(case.read_bytes()),
        format_bytes(case.written_bytes()),
        format_bytes(case.record_bytes),
        format_bytes(case.buffer_bytes),
    ));
    let mut table = Table::new(&[
        "run", ">seconds", ">MiB/s", ">open", ">create", ">read", ">write", ">flush", ">sync",
        ">close",
    ]);
    for (index, (seconds, spent)) in run.seconds.iter().zip(&run.spent).enumerate() {
        let cell = |seconds: f64| format!("{seconds:.4}");
        table.row([
            (index + 1).to_string(),
            cell(*seconds),
            format!("{:.1}", Bytes(bytes).mib() / seconds),
            cell(spent.open_s),
            cell(spent.create_s),
            cell(spent.read_s),
            cell(spent.write_s),
            cell(spent.flush_s),
            cell(spent.sync_s),
            cell(spent.close_s),
        ]);
    }
    report::say(table);
    report::say(format_args!(
        "mean {mean:.4} s, standard deviation {sd:.4} s, {:.1} MiB/s",
        Bytes(bytes).mib() / mean
    ));
    report::say(format_args!("caches: {}", dropped_in_words(dropped)));
}

/// Writes a row for each repetition.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write_csv(file: &Path, case: &Case, run: &Run) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    let mut text = Vec::new();
    writeln!(
        text,
        "name,pattern,order,files,ratio,bytes_in,bytes_out,record_bytes,buffer_bytes,processes,nodes,\
         caches_dropped,fsync,run,seconds,open_s,create_s,read_s,write_s,flush_s,sync_s,close_s"
    )?;
    let order = match case.order {
        azekura_forecast::job::Order::Sequential => "sequential",
        azekura_forecast::job::Order::RoundRobin => "round-robin",
    };
    for (index, (seconds, spent)) in run.seconds.iter().zip(&run.spent).enumerate() {
        let Spent { open_s, create_s, read_s, write_s, flush_s, sync_s, close_s } = spent;
        writeln!(
            text,
            "{},{},{order},{},{},{},{},{},{},{},{},{},{},{},{seconds},{open_s},{create_s},{read_s},\
             {write_s},{flush_s},{sync_s},{close_s}",
            run.name,
            case.pattern,
            case.files,
            case.ratio,
            case.read_bytes(),
            case.written_bytes(),
            case.record_bytes,
            case.buffer_bytes,
            case.processes,
            case.nodes,
            run.caches_dropped,
            case.fsync,
            index + 1,
        )?;
    }
    std::fs::write(file, text).with_context(cannot)
}
