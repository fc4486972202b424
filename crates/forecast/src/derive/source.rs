//! Measured runs as those who take values out of them ask for them: by what they did. Owns what stands for a
//! run with its repetitions, and how far that may be off; knows no value of a calibration.

use super::beside::Beside;
use crate::calibration::{Made, Ranges, Span};
use crate::job::{Caches, Order, Pattern, Phase};
use crate::measured::Measured;
use crate::runs::Run;
use crate::units::{Bytes, MibPerSecond, Quantity, Seconds};

/// The middle of some numbers, with their spread.
pub(super) fn middle<Q: Quantity>(numbers: &[f64]) -> Option<Measured<Q>> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let median = f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]);
    Some(Measured { value: Q::of(median), ..Measured::of(numbers)? })
}

/// The middle of a run's repetitions, in seconds.
pub(super) fn typical(run: &Run) -> f64 {
    middle::<Seconds>(&run.seconds).map_or(f64::NAN, |seconds| seconds.number())
}

/// A run's spread as a share of its time.
pub(super) fn spread(run: &Run) -> f64 {
    middle::<Seconds>(&run.seconds).map_or(0.0, |seconds| seconds.sd / seconds.number())
}

/// A throughput with the relative spread of the run that it comes from.
pub(super) fn rate_of(run: &Run, bytes: Bytes, seconds: f64) -> Option<Measured<MibPerSecond>> {
    let rate = bytes.mib() / seconds;
    (rate > 0.0 && rate.is_finite()).then(|| Measured {
        value: MibPerSecond(rate),
        sd: rate * spread(run) * (typical(run) / seconds).max(1.0),
        runs: u32::try_from(run.seconds.len()).unwrap_or(1).max(1),
    })
}

/// How far the middle of a run's repetitions may be off, in seconds.
pub(super) fn error_of(run: &Run) -> f64 {
    typical(run) * spread(run) / (run.seconds.len().max(1) as f64).sqrt()
}

/// How much a value counts that is known with an error, beside what is known otherwise.
pub(super) fn known(value: f64, error: f64) -> f64 {
    value * value / (value * value + error * error).max(f64::MIN_POSITIVE)
}

pub(super) fn ratio_of(phase: &Phase) -> f64 {
    phase.written().0 as f64 / phase.bytes_in.0.max(1) as f64
}

/// The runs, and what the usual one is.
pub(super) struct Source<'a> {
    pub(super) runs: &'a [Run],
    pub(super) made: &'a Made,
    /// Bytes read by the usual run.
    pub(super) usual: u64,
    pub(super) start: f64,
    pub(super) beside: &'a Beside,
}

/// What a run is asked for by.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) pattern: Pattern,
    pub(super) order: Order,
    pub(super) files: u64,
    pub(super) ratio: f64,
    pub(super) caches: Caches,
    pub(super) nodes: u32,
    pub(super) processes: u32,
}

pub(super) const SIMPLE: Wanted = Wanted {
    pattern: Pattern::Simple,
    order: Order::Sequential,
    files: 1,
    ratio: 0.0,
    caches: Caches::Cold,
    nodes: 1,
    processes: 1,
};

pub(super) fn files_of(phase: &Phase) -> u64 {
    phase.files_in.max(phase.files_out)
}

pub(super) fn phase_of(run: &Run) -> Option<&Phase> {
    run.job.phases.first()
}

impl<'a> Source<'a> {
    pub(super) fn is_usual(&self, phase: &Phase) -> bool {
        phase.record_bytes == self.made.record_bytes && phase.buffer_bytes == self.made.buffer_bytes
    }

    /// Of several that fit, the one whose size is nearest to the usual.
    pub(super) fn find(&self, wanted: Wanted) -> Option<&'a Run> {
        let fits = |run: &&Run| {
            phase_of(run).is_some_and(|phase| {
                self.is_usual(phase)
                    && phase.pattern == wanted.pattern
                    && phase.order == wanted.order
                    && files_of(phase) == wanted.files
                    && (ratio_of(phase) - wanted.ratio).abs() < 0.01 * wanted.ratio.max(1.0)
                    && phase.caches == wanted.caches
                    && (run.job.nodes, run.job.processes) == (wanted.nodes, wanted.processes)
            })
        };
        let far = |run: &&Run| {
            phase_of(run).map_or(u64::MAX, |phase| phase.bytes_in.0.abs_diff(self.usual))
        };
        self.runs.iter().filter(fits).min_by_key(far)
    }

    /// Numbers of nodes and processes that were measured, in order.
    pub(super) fn crews(&self) -> Vec<(u32, u32)> {
        let mut crews: Vec<_> =
            self.runs.iter().map(|run| (run.job.nodes, run.job.processes)).collect();
        crews.sort_unstable();
        crews.dedup();
        crews
    }

    pub(super) fn less_start(&self, run: &Run) -> f64 {
        (typical(run) - self.start).max(0.1 * typical(run))
    }

    /// A highest ratio that was run by so many, which is nearly all writing.
    pub(super) fn mostly_writing(&self, nodes: u32, processes: u32) -> Option<&'a Run> {
        let ratio = |run: &&Run| phase_of(run).map_or(0.0, ratio_of);
        self.runs
            .iter()
            .filter(|run| (run.job.nodes, run.job.processes) == (nodes, processes))
            .filter(|run| {
                phase_of(run).is_some_and(|phase| {
                    phase.pattern == Pattern::Simple
                        && phase.caches == Caches::Cold
                        && self.is_usual(phase)
                })
            })
            .filter(|run| ratio(run) > 1.01)
            .max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }

    pub(super) fn ranges(&self) -> Ranges {
        let span = |numbers: &dyn Fn(&Run, &Phase) -> u64| {
            let all = || self.runs.iter().filter_map(|run| Some(numbers(run, phase_of(run)?)));
            let least = all().min().unwrap_or(1).max(1);
            Span { least, most: all().max().unwrap_or(1).max(least) }
        };
        Ranges {
            files: span(&|_, phase| files_of(phase)),
            bytes: span(&|_, phase| (phase.bytes_in + phase.written()).0),
            processes: span(&|run, _| run.job.processes.into()),
            nodes: span(&|run, _| run.job.nodes.into()),
            record_bytes: span(&|_, phase| phase.record_bytes.0),
            buffer_bytes: span(&|_, phase| phase.buffer_bytes.0),
        }
    }
}
