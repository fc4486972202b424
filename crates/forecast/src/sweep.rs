//! The best number of processes and nodes: forecasts of a job for each, and the choice among them. Owns
//! what "best" means; the job's bytes stay the same however many share them.

use serde::Serialize;

use crate::bottleneck::Unforeseen;
use crate::calibration::{Calibration, Span};
use crate::forecasting::{Forecast, Model, forecast};
use crate::job::Job;
use crate::units::Seconds;

/// The numbers that are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Of processes of each node.
    pub processes: Vec<u32>,
    /// Of nodes.
    pub nodes: Vec<u32>,
}

/// Whether a choice ends in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Deadline {
    /// Even the upper end of its interval does.
    Met,
    /// Its forecast does, the upper end of its interval does not.
    Likely,
    /// It does not.
    Missed,
}

/// The choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Processes of each node.
    pub processes: u32,
    /// Nodes.
    pub nodes: u32,
    /// Its time.
    pub seconds: Seconds,
    /// Lower end of its interval.
    pub low: Seconds,
    /// Upper end of its interval.
    pub high: Seconds,
    /// Whether it ends in time, if a time was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
}

/// All forecasts, and the choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// In order of nodes, then of processes.
    pub forecasts: Vec<Forecast>,
    /// The best of them.
    pub best: Best,
}

/// A choice is not better for being faster by less than this share: a forecast knows no better.
const AS_FAST: f64 = 0.02;

/// Every power of two within a span, and its ends.
fn powers_within(span: Span) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..20).map(|power| 1 << power).collect();
    numbers.retain(|number| (span.least..=span.most).contains(&u64::from(*number)));
    numbers.extend([span.least, span.most].map(|end| u32::try_from(end).unwrap_or(u32::MAX)));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

impl Candidates {
    /// What a calibration covers.
    pub fn within(calibration: &Calibration) -> Self {
        Self {
            processes: powers_within(calibration.range.processes),
            nodes: powers_within(calibration.range.nodes),
        }
    }
}

fn judge(forecast: &Forecast, deadline: Seconds) -> Deadline {
    if forecast.high <= deadline {
        Deadline::Met
    } else if forecast.seconds <= deadline {
        Deadline::Likely
    } else {
        Deadline::Missed
    }
}

/// Of those that end in time the cheapest: fewest processes in all, then fewest nodes. If none does for
/// sure, the cheapest of those that likely do; if none does or no time was said, the cheapest of those
/// that are about as fast as the fastest.
fn choose(forecasts: &[Forecast], deadline: Option<Seconds>) -> Option<&Forecast> {
    let cheapest = |wanted: &dyn Fn(&Forecast) -> bool| {
        let cost = |forecast: &&Forecast| {
            (u64::from(forecast.nodes) * u64::from(forecast.processes), forecast.nodes)
        };
        forecasts.iter().filter(|forecast| wanted(forecast)).min_by_key(cost)
    };
    let in_time = |wanted| deadline.and_then(|time| cheapest(&|one| judge(one, time) == wanted));
    let least = forecasts.iter().map(|forecast| forecast.seconds.0).fold(f64::INFINITY, f64::min);
    in_time(Deadline::Met)
        .or_else(|| in_time(Deadline::Likely))
        .or_else(|| cheapest(&|one| one.seconds.0 <= least * (1.0 + AS_FAST)))
}

/// Forecasts a job for all candidates, and chooses. Numbers with which the job makes no sense, as more
/// files than records, are passed over.
///
/// # Errors
/// If no candidate can be forecast.
pub fn sweep(
    calibration: &Calibration,
    job: &Job,
    model: Model,
    candidates: &Candidates,
    deadline: Option<Seconds>,
) -> Result<Sweep, Unforeseen> {
    let mut forecasts = Vec::new();
    let mut last_reason = None;
    for nodes in &candidates.nodes {
        for processes in &candidates.processes {
            let tried = Job { nodes: *nodes, processes: *processes, ..job.clone() };
            if let Err(contradiction) = tried.check() {
                last_reason = Some(Unforeseen { needs: contradiction.to_string() });
                continue;
            }
            match forecast(calibration, &tried, model) {
                Ok(forecast) => forecasts.push(forecast),
                Err(reason) => last_reason = Some(reason),
            }
        }
    }
    let Some(chosen) = choose(&forecasts, deadline) else {
        let needs = "there are no numbers of processes and nodes to try".to_owned();
        return Err(last_reason.unwrap_or(Unforeseen { needs }));
    };
    let best = Best {
        processes: chosen.processes,
        nodes: chosen.nodes,
        seconds: chosen.seconds,
        low: chosen.low,
        high: chosen.high,
        deadline: deadline.map(|time| judge(chosen, time)),
    };
    Ok(Sweep { forecasts, best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn swept(deadline: Option<f64>) -> Sweep {
        let calibration = samples::calibration();
        let candidates = Candidates::within(&calibration);
        let job = samples::job(&samples::SIMPLE);
        sweep(&calibration, &job, Model::Full, &candidates, deadline.map(Seconds)).unwrap()
    }

    #[test]
    fn candidates_are_what_was_measured() {
        let numbers = |least, most| powers_within(Span { least, most });
        assert_eq!(numbers(1, 8), [1, 2, 4, 8]);
        assert_eq!(numbers(3, 12), [3, 4, 8, 12]);
        assert_eq!(numbers(1, 1), [1]);
    }

    #[test]
    fn the_least_time_is_found_and_a_deadline_is_met_for_less() {
        let least = swept(None);
        let times: Vec<f64> = least.forecasts.iter().map(|one| one.seconds.0).collect();
        assert!(least.forecasts.iter().all(|one| one.outside.is_empty()), "{:?}", least.forecasts);
        assert_eq!(least.best.processes, 4, "{times:?}");
        let alone = &least.forecasts[0];
        let relaxed = swept(Some(alone.high.0 * 1.01));
        assert_eq!((relaxed.best.processes, relaxed.best.deadline), (1, Some(Deadline::Met)));
        let tight = swept(Some(alone.seconds.0 * 0.99));
        assert!(tight.best.processes > 1);
        let hopeless = swept(Some(0.001));
        assert_eq!((hopeless.best.processes, hopeless.best.deadline), (4, Some(Deadline::Missed)));
    }

    #[test]
    fn numbers_with_which_a_job_makes_no_sense_are_passed_over() {
        let calibration = samples::calibration();
        let mut job = samples::job(&samples::SPLIT);
        // 16 records for 8 files of each process.
        job.phases[0].bytes_in = crate::units::Bytes(16 * 1024);
        job.phases[0].files_out = 8;
        let all = Candidates { processes: vec![1, 2, 4], nodes: vec![1] };
        let swept = sweep(&calibration, &job, Model::Full, &all, None).unwrap();
        assert_eq!(swept.forecasts.len(), 2);
        let none = Candidates { processes: vec![4], nodes: vec![1] };
        let error = sweep(&calibration, &job, Model::Full, &none, None).unwrap_err();
        assert!(error.to_string().contains("files_out"), "{error}");
    }
}
