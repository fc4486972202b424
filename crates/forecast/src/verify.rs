//! Forecasts held against measured runs: how far off each is, and which value of the calibration would
//! explain it best if it were wrong. Owns that judgement; changes no calibration.

use serde::Serialize;

use crate::bottleneck::Unforeseen;
use crate::calibration::Calibration;
use crate::forecasting::{Model, forecast, seconds};
use crate::runs::{Run, Runs};
use crate::spread::change_all;

/// A run beside its forecast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The run's name.
    pub name: String,
    /// Mean of its repetitions, in seconds.
    pub measured: f64,
    /// The forecast, in seconds.
    pub seconds: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Forecast less measured, over measured.
    pub error: f64,
    /// Whether each repetition lay within the interval.
    pub within: Vec<bool>,
    /// What of it lies outside of the calibration.
    pub outside: Vec<String>,
}

/// The value that would explain most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// Its key in the calibration, for all rows that have it.
    pub key: String,
    /// What the calibrated value would have to be multiplied with.
    pub factor: f64,
    /// Root mean square of ln(measured / forecast) as it is.
    pub residual: f64,
    /// What would be left of that.
    pub residual_then: f64,
}

/// All runs, summed up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The model.
    pub model: Model,
    /// Each run.
    pub runs: Vec<Checked>,
    /// Median of the errors' sizes.
    pub median_error: f64,
    /// Nine of ten errors are no larger than this.
    pub p90_error: f64,
    /// Share of repetitions within their interval; it should be 0.9.
    pub within: f64,
    /// The value to measure again first; absent where the errors are no pattern that one value explains.
    pub culprit: Option<Culprit>,
}

/// A value is named only if it explains at least this share of the squared errors.
const EXPLAINED: f64 = 0.5;
/// Errors below this, root mean square, ask for no culprit.
const NO_MATTER: f64 = 0.05;
/// By how much a value is changed to see what follows from it.
const STEP: f64 = 0.01;

/// Root mean square of ln(measured / forecast) over runs: what a calibrator writes into
/// [`crate::calibration::Model`] from its own runs. `None` if none of them can be forecast.
pub fn residual(calibration: &Calibration, runs: &[Run]) -> Option<f64> {
    let squares: Vec<f64> = runs
        .iter()
        .filter_map(|run| {
            Some((run.mean() / seconds(calibration, &run.job, Model::Full)?).ln().powi(2))
        })
        .collect();
    (!squares.is_empty()).then(|| root_mean(&squares))
}

fn root_mean(squares: &[f64]) -> f64 {
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// The smallest of some sizes that no less than a share of them reach.
fn quantile(sizes: &[f64], share: f64) -> f64 {
    let mut sorted = sizes.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The median; of an even number the mean of both in the middle.
fn median(sizes: &[f64]) -> f64 {
    let mut sorted = sizes.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// All keys of a calibration's measured values, each once, in their order.
fn keys(calibration: &Calibration) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    change_all(&mut calibration.clone(), &mut |seen| {
        if !keys.iter().any(|key| key == seen.key) {
            keys.push(seen.key.to_owned());
        }
        seen.number
    });
    keys
}

/// The calibration with all values of a key multiplied.
fn scaled(calibration: &Calibration, key: &str, factor: f64) -> Calibration {
    let mut copy = calibration.clone();
    change_all(&mut copy, &mut |seen| {
        if seen.key == key { seen.number * factor } else { seen.number }
    });
    copy
}

/// The factor on a key by which the forecasts fit best, for small errors: one straight line through the
/// origin, ln(measured / forecast) over how each forecast follows the value.
fn factor_of(
    calibration: &Calibration,
    key: &str,
    runs: &[Run],
    errors: &[f64],
    model: Model,
) -> Option<f64> {
    let moved = scaled(calibration, key, STEP.exp());
    let mut both = 0.0;
    let mut slopes = 0.0;
    for (run, error) in runs.iter().zip(errors) {
        let slope = (seconds(&moved, &run.job, model)? / seconds(calibration, &run.job, model)?)
            .ln()
            / STEP;
        both += slope * error;
        slopes += slope * slope;
    }
    // Twice or half as much at a time: the line holds only nearby.
    (slopes > 1e-9).then(|| (both / slopes).clamp(-0.7, 0.7).exp())
}

fn errors_of(calibration: &Calibration, runs: &[Run], model: Model) -> Option<Vec<f64>> {
    runs.iter()
        .map(|run| Some((run.mean() / seconds(calibration, &run.job, model)?).ln()))
        .collect()
}

fn culprit(calibration: &Calibration, runs: &[Run], model: Model) -> Option<Culprit> {
    let rms =
        |errors: &[f64]| root_mean(&errors.iter().map(|error| error * error).collect::<Vec<_>>());
    let before = rms(&errors_of(calibration, runs, model)?);
    if before < NO_MATTER {
        return None;
    }
    let mut best: Option<Culprit> = None;
    for key in keys(calibration) {
        let mut factor = 1.0;
        let mut after = before;
        for _ in 0..4 {
            let now = scaled(calibration, &key, factor);
            let Some(errors) = errors_of(&now, runs, model) else { break };
            let Some(step) = factor_of(&now, &key, runs, &errors, model) else { break };
            let Some(errors) = errors_of(&scaled(calibration, &key, factor * step), runs, model)
            else {
                break;
            };
            if rms(&errors) >= after {
                break;
            }
            factor *= step;
            after = rms(&errors);
        }
        if best.as_ref().is_none_or(|best| after < best.residual_then) {
            best = Some(Culprit { key, factor, residual: before, residual_then: after });
        }
    }
    best.filter(|best| best.residual_then.powi(2) <= (1.0 - EXPLAINED) * before * before)
}

/// Holds the forecasts of a model against runs.
///
/// # Errors
/// If one of the runs cannot be forecast.
pub fn verify(calibration: &Calibration, runs: &Runs, model: Model) -> Result<Verdict, Unforeseen> {
    let mut checked = Vec::with_capacity(runs.runs.len());
    for run in &runs.runs {
        let forecast = forecast(calibration, &run.job, model)?;
        let measured = run.mean();
        let (low, high) = (forecast.low.0, forecast.high.0);
        checked.push(Checked {
            name: run.name.clone(),
            measured,
            seconds: forecast.seconds.0,
            low,
            high,
            error: (forecast.seconds.0 - measured) / measured,
            within: run.seconds.iter().map(|seconds| (low..=high).contains(seconds)).collect(),
            outside: forecast.outside.iter().map(ToString::to_string).collect(),
        });
    }
    let sizes: Vec<f64> = checked.iter().map(|run| run.error.abs()).collect();
    let within: Vec<bool> = checked.iter().flat_map(|run| run.within.iter().copied()).collect();
    let inside = within.iter().filter(|within| **within).count();
    Ok(Verdict {
        model,
        runs: checked,
        median_error: median(&sizes),
        p90_error: quantile(&sizes, 0.9),
        within: inside as f64 / within.len().max(1) as f64,
        culprit: culprit(calibration, &runs.runs, model),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// Runs as a machine would have them whose values are a calibration's, but for one key.
    fn runs_where(key: &str, factor: f64) -> Runs {
        let truth = scaled(&samples::calibration(), key, factor);
        samples::runs(|job| vec![seconds(&truth, job, Model::Full).unwrap(); 3])
    }

    #[test]
    fn runs_as_forecast_leave_nothing_to_say() {
        let verdict = verify(&samples::calibration(), &runs_where("", 1.0), Model::Full).unwrap();
        assert!(verdict.median_error < 1e-12 && verdict.p90_error < 1e-12);
        assert!((verdict.within - 1.0).abs() < 1e-12);
        assert_eq!(verdict.culprit, None);
    }

    #[test]
    fn the_value_that_is_off_is_named_with_its_factor() {
        for (key, factor) in [
            ("metadata.split_s_per_file", 3.0),
            ("metadata.merge_s_per_file", 4.0),
            ("streams.read_mib_per_s", 0.6),
            ("streams.mixed_mib_per_s", 0.6),
        ] {
            let verdict =
                verify(&samples::calibration(), &runs_where(key, factor), Model::Full).unwrap();
            let culprit = verdict.culprit.unwrap_or_else(|| panic!("{key}: nothing found"));
            assert_eq!(culprit.key, key);
            assert!((culprit.factor / factor - 1.0).abs() < 0.1, "{culprit:?}");
        }
    }

    #[test]
    fn quantiles_and_medians_are_of_what_was_measured() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        let sizes: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!((quantile(&sizes, 0.9) - 9.0).abs() < 1e-12);
        assert!((quantile(&[], 0.9)).abs() < 1e-12);
    }

    #[test]
    fn the_residual_is_what_the_model_leaves() {
        let calibration = samples::calibration();
        let exact = runs_where("", 1.0);
        assert!(residual(&calibration, &exact.runs).unwrap() < 1e-12);
        let slower =
            samples::runs(|job| vec![1.1 * seconds(&calibration, job, Model::Full).unwrap()]);
        let residual = residual(&calibration, &slower.runs).unwrap();
        assert!((residual - 1.1f64.ln()).abs() < 1e-9, "{residual}");
    }
}
