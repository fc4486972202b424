//! Throughputs by processes and nodes. Owns how writing is taken out of runs that read as well.

use super::beside::Loops;
use super::source::{
    SIMPLE, Source, Wanted, files_of, middle, phase_of, rate_of, ratio_of, typical,
};
use crate::calibration::{Made, Parallel, Streams, Throughput};
use crate::fit::{Line, overlap as overlap_of};
use crate::job::{Caches, Order, Pattern};
use crate::measured::Measured;
use crate::runs::Run;
use crate::units::{Bytes, MibPerSecond, PerSecond, Seconds};

/// Rounds in which writing and its overlap with reading are found from each other.
const ROUNDS: usize = 8;

/// What a run takes whatever it does: the intercept of the time over bytes.
pub(super) fn start_of(runs: &[Run], made: &Made) -> Option<Measured<Seconds>> {
    let points: Vec<(f64, f64)> = runs
        .iter()
        .filter(|run| (run.job.nodes, run.job.processes) == (1, 1))
        .filter_map(|run| Some((run, phase_of(run)?)))
        .filter(|(_, phase)| {
            phase.pattern == Pattern::Simple
                && phase.caches == Caches::Cold
                && phase.record_bytes == made.record_bytes
                && phase.buffer_bytes == made.buffer_bytes
                && (ratio_of(phase) - 1.0).abs() < 0.01
        })
        .map(|(run, phase)| (phase.bytes_in.mib(), typical(run)))
        .collect();
    let line = Line::through(&points)?;
    let least = points.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    let start: Measured<Seconds> = line.measured_intercept();
    // No run has more of it than the shortest took.
    Some(Measured { value: Seconds(start.number().clamp(0.0, 0.8 * least)), ..start })
}

/// `T_SR` from the run that only reads, `T_SW` from what a run that writes as much takes longer, as the
/// paper has it.
pub(super) fn sequential_of(source: &Source<'_>) -> Option<Throughput> {
    let read = source.find(SIMPLE)?;
    let mixed = source.find(Wanted { ratio: 1.0, ..SIMPLE })?;
    let (reads, writes) = (phase_of(read)?, phase_of(mixed)?);
    let read_mib_per_s = rate_of(read, reads.bytes_in, typical(read))?;
    let reading = writes.bytes_in.mib() / read_mib_per_s.number();
    let longer = (typical(mixed) - reading).max(0.05 * typical(mixed));
    let write_mib_per_s = rate_of(mixed, writes.written(), longer)?;
    Some(Throughput { read_mib_per_s, write_mib_per_s })
}

impl Source<'_> {
    pub(super) fn streams(&self, nodes: u32, processes: u32) -> Streams {
        let at = Wanted { nodes, processes, ..SIMPLE };
        let bytes = |run: &Run| phase_of(run).map_or(Bytes(0), |phase| phase.bytes_in);
        let all =
            |run: &Run| phase_of(run).map_or(Bytes(0), |phase| phase.bytes_in + phase.written());
        let read = self.find(at);
        let mixed = self.find(Wanted { ratio: 1.0, ..at });
        let read_rate = read.and_then(|run| rate_of(run, bytes(run), self.less_start(run)));
        let write_rate = self.write_rate(read_rate, mixed, nodes, processes);
        let warm = |ratio| self.find(Wanted { ratio, caches: Caches::Warm, ..at });
        let loops = self.beside.of(nodes, processes);
        let per_second = |seconds: fn(&Loops) -> &Vec<f64>| {
            let rates: Vec<f64> = seconds(loops?).iter().map(|one| 1.0 / one).collect();
            middle::<PerSecond>(&rates)
        };
        Streams {
            nodes,
            processes,
            read_mib_per_s: read_rate,
            write_mib_per_s: write_rate,
            mixed_mib_per_s: mixed.and_then(|run| rate_of(run, all(run), self.less_start(run))),
            cached_read_mib_per_s: warm(0.0)
                .and_then(|run| rate_of(run, bytes(run), self.less_start(run))),
            cached_mixed_mib_per_s: warm(1.0)
                .and_then(|run| rate_of(run, all(run), self.less_start(run))),
            create_per_s: per_second(|one| &one.create_s),
            open_per_s: per_second(|one| &one.open_s),
        }
    }

    /// Writing alone: a run that writes much and reads little, less what of the reading did not go on at the
    /// same time; how much that is follows from a run that does as much of both.
    fn write_rate(
        &self,
        read: Option<Measured<MibPerSecond>>,
        mixed: Option<&Run>,
        nodes: u32,
        processes: u32,
    ) -> Option<Measured<MibPerSecond>> {
        let read = read?.number();
        let run = self.mostly_writing(nodes, processes).or(mixed)?;
        let phase = phase_of(run)?;
        let (input, output) = (phase.bytes_in.mib(), phase.written());
        let mut share = 0.0;
        let mut seconds = self.less_start(run);
        for _ in 0..ROUNDS {
            let together = self.less_start(run);
            let reading = input / read;
            seconds = (together - (1.0 - share) * reading).max(0.1 * together);
            let Some(mixed) = mixed.and_then(|run| Some((run, phase_of(run)?))) else { break };
            let (read_s, write_s) =
                (mixed.1.bytes_in.mib() / read, mixed.1.written().mib() * seconds / output.mib());
            share = overlap_of(read_s, write_s, self.less_start(mixed.0)).clamp(-1.0, 1.0);
        }
        rate_of(run, output, seconds)
    }

    /// Throughput of all parallelisms of a pattern, as the paper fits it.
    pub(super) fn parallel(&self, pattern: Pattern) -> Option<Parallel> {
        let crews = self.crews();
        let points: Vec<(f64, f64)> = crews
            .iter()
            .filter_map(|(nodes, processes)| {
                let run = self.runs.iter().find(|run| {
                    (run.job.nodes, run.job.processes) == (*nodes, *processes)
                        && phase_of(run).is_some_and(|phase| {
                            phase.pattern == pattern
                                && (pattern == Pattern::Simple || files_of(phase) > 1)
                                && phase.order == Order::Sequential
                                && phase.caches == Caches::Cold
                                && (ratio_of(phase) - 1.0).abs() < 0.01
                                && self.is_usual(phase)
                        })
                })?;
                let phase = phase_of(run)?;
                let rate = (phase.bytes_in + phase.written()).mib() / typical(run);
                Some((f64::from(*nodes) * f64::from(*processes), rate))
            })
            .collect();
        let line = Line::over_inverse(&points)?;
        // A curve that falls to nothing is none.
        (line.intercept > 0.0).then(|| Parallel {
            pattern,
            a_mib_per_s: line.measured_slope(),
            b_mib_per_s: Some(line.measured_intercept()),
        })
    }
}
