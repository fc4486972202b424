//! What the application's side costs, and what memory holds: from warm runs, and from records of other sizes.

use super::source::{SIMPLE, Source, Wanted, error_of, known, phase_of, ratio_of, typical};
use crate::calibration::{Cache, Cpu, Made};
use crate::fit::{Line, overlap as overlap_of};
use crate::job::{Caches, Pattern, Phase};
use crate::measured::Measured;
use crate::runs::Run;
use crate::units::{Bytes, Overlap, Seconds};

/// A second reading is from memory if it takes less than this share of the first.
const FROM_MEMORY: f64 = 0.8;
/// Rounds in which moving alone and its overlap with computing are found from each other.
const ROUNDS: usize = 8;

impl Source<'_> {
    /// The slope of time over records or requests, from warm runs of one process that vary only those.
    fn per_unit(&self, ratio: f64, length: impl Fn(&Phase) -> Bytes) -> Option<Measured<Seconds>> {
        let points: Vec<(f64, f64)> = self
            .runs
            .iter()
            .filter(|run| (run.job.nodes, run.job.processes) == (1, 1))
            .filter_map(|run| Some((run, phase_of(run)?)))
            .filter(|(_, phase)| {
                phase.pattern == Pattern::Simple
                    && phase.caches == Caches::Warm
                    && (ratio_of(phase) - ratio).abs() < 0.01
            })
            .map(|(run, phase)| {
                // For each byte, so that sizes need not be the same.
                (1.0 / length(phase).0 as f64, typical(run) / phase.bytes_in.0 as f64)
            })
            .collect();
        let line = Line::through(&points)?;
        (line.slope > 0.0).then(|| line.measured_slope())
    }

    pub(super) fn cpu(&self) -> Cpu {
        let records = |phase: &Phase| phase.record_bytes;
        let buffers = |phase: &Phase| phase.buffer_bytes;
        let less = |both: Option<Measured<Seconds>>, one: Option<Measured<Seconds>>| {
            let (both, one) = (both?, one.map_or(0.0, |one| one.number()));
            Some(Measured { value: Seconds((both.number() - one).max(0.0)), ..both })
        };
        let only = |vary: fn(&Phase) -> Bytes, fixed: fn(&Phase, &Made) -> bool, ratio: f64| {
            let runs: Vec<Run> = self
                .runs
                .iter()
                .filter(|run| phase_of(run).is_some_and(|phase| fixed(phase, self.made)))
                .cloned()
                .collect();
            Source { runs: &runs, ..*self }.per_unit(ratio, vary)
        };
        let same_buffer = |phase: &Phase, made: &Made| phase.buffer_bytes == made.buffer_bytes;
        let same_record = |phase: &Phase, made: &Made| phase.record_bytes == made.record_bytes;
        let (record, record_both) =
            (only(records, same_buffer, 0.0), only(records, same_buffer, 1.0));
        let (request, request_both) =
            (only(buffers, same_record, 0.0), only(buffers, same_record, 1.0));
        Cpu {
            record_read_s: record,
            record_written_s: less(record_both, record),
            request_read_s: request,
            request_written_s: less(request_both, request),
        }
    }

    pub(super) fn cache(&self) -> Option<Cache> {
        let from_memory = |run: &&Run| {
            let Some(phase) = phase_of(run) else { return false };
            let at = Wanted {
                ratio: ratio_of(phase),
                nodes: run.job.nodes,
                processes: run.job.processes,
                ..SIMPLE
            };
            let cold = self.find(at);
            phase.caches == Caches::Warm
                && cold.is_some_and(|cold| typical(run) < FROM_MEMORY * typical(cold))
        };
        let bytes = |run: &Run| phase_of(run).map(|phase| (phase.bytes_in + phase.written()).0);
        let most = self.runs.iter().filter(from_memory).filter_map(bytes).max()?;
        Some(Cache { node_bytes: Bytes(most) })
    }

    /// How much of computing goes on during reading: from records far smaller than usual, whose cost is known
    /// from runs in memory, when nothing is in memory.
    pub(super) fn overlap_of_compute(&self, cpu: &Cpu) -> Option<Measured<Overlap>> {
        let per_record = cpu.record_read_s?.number();
        let usual = self.find(SIMPLE)?;
        let is_small = |run: &&Run| {
            phase_of(run).is_some_and(|phase| {
                (run.job.nodes, run.job.processes) == (1, 1)
                    && phase.pattern == Pattern::Simple
                    && phase.caches == Caches::Cold
                    && ratio_of(phase) < 0.01
                    && phase.buffer_bytes == self.made.buffer_bytes
                    && phase.record_bytes < self.made.record_bytes
            })
        };
        let small = self
            .runs
            .iter()
            .filter(is_small)
            .min_by_key(|run| phase_of(run).map_or(u64::MAX, |phase| phase.record_bytes.0))?;
        let (base, phase) = (phase_of(usual)?, phase_of(small)?);
        let bytes = phase.bytes_in.0 as f64;
        let computing = |record: Bytes| per_record * bytes / record.0 as f64;
        let (usually, here) = (computing(base.record_bytes), computing(phase.record_bytes));
        let scale = bytes / base.bytes_in.0 as f64;
        let (before, together) = (self.less_start(usual) * scale, self.less_start(small));
        let mut share = 0.0;
        let mut moving = before;
        for _ in 0..ROUNDS {
            // The usual records' cost is in the usual run, as far as it does not overlap.
            moving = (before - (1.0 - share) * usually).max(0.1 * before);
            share = overlap_of(moving, here, together).clamp(0.0, 1.0);
        }
        let error = (error_of(usual) * scale).hypot(error_of(small));
        Some(Measured::exactly(share * known(moving.min(here), error)))
    }
}
