//! A forecast: the time of a job on a calibrated file system, with its interval, what binds it, and what
//! of it lies outside of what was measured. Owns the choice of the model and what leaving the calibrated
//! range means; the models themselves know nothing of ranges.

use std::fmt;

use serde::Serialize;

use crate::bottleneck::{Bottleneck, Unforeseen};
use crate::calibration::{Calibration, Span};
use crate::job::{Access, Caches, Job, Pattern, Phase};
use crate::units::{Bytes, Seconds};
use crate::{full, paper, spread};

/// Which model forecasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Equation (1) alone: what was used before the paper.
    Conventional,
    /// Equations (1) to (9).
    Paper,
    /// The project's own.
    #[default]
    Full,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conventional => "conventional",
            Self::Paper => "paper",
            Self::Full => "full",
        })
    }
}

/// Something that a forecast takes for granted beyond what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outside {
    /// The quantity of the job (`processes`), or the key of the calibration that is missing.
    pub quantity: String,
    /// What the job has; absent where a key is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Least and most that was measured; absent where a key is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Span>,
    /// What the interval's standard deviation is widened by, as a share of the time.
    pub widened_by: f64,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.measured) {
            (Some(value), Some(Span { least, most })) => {
                write!(f, "{} {value} (measured: {least} to {most})", self.quantity)
            }
            _ => write!(f, "{} (not measured)", self.quantity),
        }
    }
}

/// Times of the parts of a phase, each as if nothing else was done meanwhile, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Terms {
    /// Reading.
    pub reading: Seconds,
    /// Writing.
    pub writing: Seconds,
    /// Processors of the application.
    pub compute: Seconds,
    /// Operations on names.
    pub metadata: Seconds,
    /// Beginning and ending.
    pub start: Seconds,
}

/// The forecast of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseForecast {
    /// The phase's name.
    pub name: String,
    /// Its pattern.
    pub pattern: Pattern,
    /// Its time.
    pub seconds: Seconds,
    /// 5 % of runs are expected to take less.
    pub low: Seconds,
    /// 5 % of runs are expected to take more.
    pub high: Seconds,
    /// What binds it.
    pub bottleneck: Bottleneck,
    /// Bytes in and out together, a second.
    pub mib_per_s: f64,
    /// Its parts.
    pub terms: Terms,
}

/// The forecast of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The model.
    pub model: Model,
    /// Processes of each node.
    pub processes: u32,
    /// Nodes.
    pub nodes: u32,
    /// The time.
    pub seconds: Seconds,
    /// 5 % of runs are expected to take less.
    pub low: Seconds,
    /// 5 % of runs are expected to take more.
    pub high: Seconds,
    /// What binds the longest phase.
    pub bottleneck: Bottleneck,
    /// Bytes in and out together, a second.
    pub mib_per_s: f64,
    /// Its phases.
    pub phases: Vec<PhaseForecast>,
    /// What lies beyond the calibration; empty if nothing does.
    pub outside: Vec<Outside>,
}

// How much each doubling beyond the measured range adds to the standard deviation, as a share of the time.
// Not measured, for it cannot be: bytes follow a straight line on any file system once its memory is full;
// numbers of files and sizes of requests nearly do; what more processes and nodes do to each other does
// not follow from what fewer do.
const WIDENED_BY_BYTES: f64 = 0.05;
const WIDENED_BY_SIZES: f64 = 0.1;
const WIDENED_BY_FILES: f64 = 0.1;
const WIDENED_BY_PROCESSES: f64 = 0.2;
const WIDENED_BY_NODES: f64 = 0.3;
/// What a missing key adds.
const WIDENED_BY_MISSING: f64 = 0.2;

fn of_phase(
    calibration: &Calibration,
    phase: &Phase,
    model: Model,
    nodes: u32,
    processes: u32,
) -> Result<full::Parts, Unforeseen> {
    let zero = Seconds(0.0);
    let parts = |total, reading, writing, metadata, bottleneck| full::Parts {
        total,
        reading,
        writing,
        compute: zero,
        metadata,
        start: zero,
        bottleneck,
        missing: Vec::new(),
    };
    match model {
        Model::Full => full::parts(calibration, phase, nodes, processes),
        Model::Conventional => {
            let sequential = &calibration.sequential;
            let path = calibration.path_limit(nodes);
            let read = phase.bytes_in / sequential.read_mib_per_s.value.min(path);
            let write = phase.written() / sequential.write_mib_per_s.value.min(path);
            let total = paper::conventional_of(calibration, phase, nodes);
            let longer = if read > write { Bottleneck::Reading } else { Bottleneck::Writing };
            Ok(parts(total, read, write, zero, longer))
        }
        Model::Paper => {
            let estimate = paper::estimate(calibration, phase, nodes, processes)?;
            let total = estimate.seconds;
            let (reading, writing) = (estimate.reading_share, estimate.writing_share());
            let metadata = total * estimate.metadata_share;
            Ok(parts(total, total * reading, total * writing, metadata, estimate.bottleneck()))
        }
    }
}

/// What of a phase lies beyond what was measured.
fn outside_of(
    calibration: &Calibration,
    phase: &Phase,
    nodes: u32,
    processes: u32,
) -> Vec<Outside> {
    let range = &calibration.range;
    let all = f64::from(nodes) * f64::from(processes);
    let files = phase.files_in.max(phase.files_out);
    let files = phase.of_each(files, all).ceil() as u64;
    let bytes = (phase.bytes_in + phase.written()).0;
    let from_memory = phase.caches == Caches::Warm && calibration.is_in_memory(Bytes(bytes), nodes);
    let found_in_memory = calibration.cache.filter(|_| from_memory).map(|cache| {
        let most = cache.node_bytes.0.saturating_mul(u64::from(nodes));
        let span = Span { least: range.bytes.least.min(most), most };
        ("cache.node_bytes", bytes.max(span.least), span, WIDENED_BY_BYTES)
    });
    let quantities = [
        ("bytes", bytes, range.bytes, WIDENED_BY_BYTES),
        ("files", files, range.files, WIDENED_BY_FILES),
        ("processes", processes.into(), range.processes, WIDENED_BY_PROCESSES),
        ("nodes", nodes.into(), range.nodes, WIDENED_BY_NODES),
        ("record_bytes", phase.record_bytes.0, range.record_bytes, WIDENED_BY_SIZES),
        ("buffer_bytes", phase.buffer_bytes.0, range.buffer_bytes, WIDENED_BY_SIZES),
    ];
    let all = quantities.into_iter().chain(found_in_memory);
    all.filter_map(|(quantity, value, span, each)| {
        let doublings = span.doublings_beyond(value);
        (doublings > 0.0).then(|| Outside {
            quantity: quantity.to_owned(),
            value: Some(value),
            measured: Some(span),
            widened_by: each * doublings,
        })
    })
    .collect()
}

fn add_missing(outside: &mut Vec<Outside>, keys: &[&'static str]) {
    for key in keys {
        if !outside.iter().any(|known| known.quantity == *key) {
            outside.push(Outside {
                quantity: (*key).to_owned(),
                value: None,
                measured: None,
                widened_by: WIDENED_BY_MISSING,
            });
        }
    }
}

/// What the models leave out of a phase, which a reader should know.
pub fn remarks(calibration: &Calibration, job: &Job) -> Vec<String> {
    let mut remarks = Vec::new();
    for phase in &job.phases {
        let all = phase.bytes_in + phase.written();
        let is_meant_warm = phase.caches == Caches::Warm && phase.access == Access::Sequential;
        if is_meant_warm && !calibration.is_in_memory(all, job.nodes) {
            let why = if calibration.cache.is_some() {
                "do not fit the memory of the calibrated machine"
            } else {
                "were not found in memory by the calibration, which has no [cache]"
            };
            remarks.push(format!(
                "phase '{}': its input is read from the storage, since its {:.0} MiB {why}",
                phase.name,
                all.mib()
            ));
        }
    }
    remarks
}

/// The bytes of a phase, in and out.
pub(crate) fn moved(phase: &Phase) -> Bytes {
    phase.bytes_in + phase.written()
}

/// The time alone, without interval.
pub(crate) fn seconds(calibration: &Calibration, job: &Job, model: Model) -> Option<f64> {
    let times = job.phases.iter().map(|phase| {
        of_phase(calibration, phase, model, job.nodes, job.processes).map(|parts| parts.total)
    });
    times.sum::<Result<Seconds, _>>().ok().map(|time| time.0)
}

fn interval(seconds: Seconds, half_width: f64) -> (Seconds, Seconds) {
    (seconds * (-half_width).exp(), seconds * half_width.exp())
}

/// Forecasts a job with its own numbers of processes and nodes.
///
/// # Errors
/// If the calibration has nothing from which it could follow.
pub fn forecast(
    calibration: &Calibration,
    job: &Job,
    model: Model,
) -> Result<Forecast, Unforeseen> {
    let (nodes, processes) = (job.nodes, job.processes);
    let residual = if model == Model::Full { calibration.model.residual } else { 0.0 };
    let mut phases = Vec::with_capacity(job.phases.len());
    let mut all_outside: Vec<Outside> = Vec::new();
    let mut longest = (Seconds(-1.0), Bottleneck::Reading);
    for phase in &job.phases {
        let parts = of_phase(calibration, phase, model, nodes, processes)?;
        let mut outside = outside_of(calibration, phase, nodes, processes);
        add_missing(&mut outside, &parts.missing);
        let also: Vec<f64> = outside.iter().map(|one| one.widened_by).chain([residual]).collect();
        let half_width = spread::half_width(calibration, &also, &|moved| {
            of_phase(moved, phase, model, nodes, processes).ok().map(|parts| parts.total.0)
        });
        let (low, high) = interval(parts.total, half_width);
        if parts.total > longest.0 {
            longest = (parts.total, parts.bottleneck);
        }
        phases.push(PhaseForecast {
            name: phase.name.clone(),
            pattern: phase.pattern,
            seconds: parts.total,
            low,
            high,
            bottleneck: parts.bottleneck,
            mib_per_s: moved(phase).mib() / parts.total.0.max(f64::MIN_POSITIVE),
            terms: Terms {
                reading: parts.reading,
                writing: parts.writing,
                compute: parts.compute,
                metadata: parts.metadata,
                start: parts.start,
            },
        });
        for one in outside {
            match all_outside.iter_mut().find(|known| known.quantity == one.quantity) {
                Some(known) if known.widened_by >= one.widened_by => {}
                Some(known) => *known = one,
                None => all_outside.push(one),
            }
        }
    }
    let total: Seconds = phases.iter().map(|phase| phase.seconds).sum();
    let also: Vec<f64> = all_outside.iter().map(|one| one.widened_by).chain([residual]).collect();
    let half_width = spread::half_width(calibration, &also, &|moved| seconds(moved, job, model));
    let (low, high) = interval(total, half_width);
    let bytes: f64 = job.phases.iter().map(|phase| moved(phase).mib()).sum();
    Ok(Forecast {
        model,
        processes,
        nodes,
        seconds: total,
        low,
        high,
        bottleneck: longest.1,
        mib_per_s: bytes / total.0.max(f64::MIN_POSITIVE),
        phases,
        outside: all_outside,
    })
}
