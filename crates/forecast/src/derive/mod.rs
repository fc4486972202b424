//! From measured runs to a calibration: which runs give which value is in the crate's page. Owns what
//! becomes of which value; each module has one kind of them. Where runs are missing the value is absent, and
//! a forecast that needs it says so.
//!
//! The middle of the repetitions stands for a run, since what disturbs a machine makes runs longer and never
//! shorter; their spread stays that of all.

mod application;
mod beside;
mod files;
mod source;
mod streams;

pub use self::beside::{Beside, Loops};
use self::source::{Source, middle, phase_of, typical};
use self::streams::{sequential_of, start_of};
use crate::calibration::{
    Calibration, FORMAT, Made, Metadata, Model, Overlaps, Paths, Streams, Throughput, WriteBack,
};
use crate::job::Pattern;
use crate::measured::Measured;
use crate::runs::Run;
use crate::units::{MibPerSecond, Seconds};
use crate::verify::residual;

/// Where the storage has less than this share of what memory takes in, memory makes a difference.
const IS_SLOWER: f64 = 0.9;

/// What memory takes in of writes, where that is faster than the storage.
fn write_back_of(beside: &Beside, streams: &[Streams]) -> Option<WriteBack> {
    let sustained: Measured<MibPerSecond> = middle(&beside.sustained_write)?;
    let taken_in = beside.taken_in_mib.filter(|mib| *mib > 0.0)?;
    let rates = streams.iter().filter_map(|row| row.write_mib_per_s);
    let slowest = rates.map(|rate| rate.number()).fold(f64::INFINITY, f64::min);
    (slowest.is_finite() && sustained.number() < IS_SLOWER * slowest).then(|| WriteBack {
        node_mib: Measured::exactly(taken_in),
        sustained_mib_per_s: sustained,
    })
}

/// The calibration that follows from runs; `None` if one process reading, and reading and writing as much,
/// are not among them.
pub fn derive(name: &str, made: Made, runs: &[Run], beside: &Beside) -> Option<Calibration> {
    let usual = runs.iter().filter_map(|run| Some(phase_of(run)?.bytes_in.0)).max()?;
    let start = start_of(runs, &made);
    let source = Source {
        runs,
        made: &made,
        usual,
        start: start.map_or(0.0, |start| start.number()),
        beside,
    };
    let streams: Vec<Streams> = source
        .crews()
        .into_iter()
        .map(|(nodes, processes)| source.streams(nodes, processes))
        .filter(|row| row.read_mib_per_s.is_some())
        .collect();
    let alone = *streams.iter().find(|row| (row.nodes, row.processes) == (1, 1))?;
    let sequential = sequential_of(&source)?;
    let random = middle(&beside.random_read)
        .zip(middle(&beside.random_write))
        .map(|(read_mib_per_s, write_mib_per_s)| Throughput { read_mib_per_s, write_mib_per_s });
    let metadata = Metadata {
        split_s_per_file: source.file_cost(Pattern::Split).and_then(|cost| {
            Some(Measured { value: Seconds(cost), ..source.slope(Pattern::Split)? })
        }),
        merge_s_per_file: source.file_cost(Pattern::Merge).and_then(|cost| {
            Some(Measured { value: Seconds(cost), ..source.slope(Pattern::Merge)? })
        }),
        start_s: start,
        create_s: beside.of(1, 1).and_then(|loops| middle(&loops.create_s)),
        open_s: beside.of(1, 1).and_then(|loops| middle(&loops.open_s)),
        stat_s: beside.of(1, 1).and_then(|loops| middle(&loops.stat_s)),
        close_s: None,
        unlink_s: beside.of(1, 1).and_then(|loops| middle(&loops.unlink_s)),
    };
    let patterns = [Pattern::Simple, Pattern::Split, Pattern::Merge];
    let parallel = patterns.into_iter().filter_map(|pattern| source.parallel(pattern)).collect();
    let (cpu, cache, interleaved) = (source.cpu(), source.cache(), source.interleaved(&alone));
    let files = source.file_costs();
    let overlap = Overlaps { compute: source.overlap_of_compute(&cpu), ..Overlaps::default() };
    let write_back = write_back_of(beside, &streams);
    let range = source.ranges();
    let mut calibration = Calibration {
        format: FORMAT,
        name: name.to_owned(),
        made,
        range,
        sequential,
        random,
        metadata,
        path: Paths::default(),
        parallel,
        cpu,
        overlap,
        write_back,
        cache,
        streams,
        files,
        interleaved,
        model: Model::default(),
    };
    let middles: Vec<Run> =
        runs.iter().map(|run| Run { seconds: vec![typical(run)], ..run.clone() }).collect();
    calibration.model.residual = residual(&calibration, &middles)?;
    Some(calibration)
}

#[cfg(test)]
mod tests;
