//! `azekura forecast --check`: forecasts held against measured runs.

use std::path::Path;

use anyhow::{Context as _, Result};
use azekura_forecast::units::Seconds;
use azekura_forecast::{Calibration, Model, Runs, Verdict, verify};

use super::files::{read, warning_of};
use super::show;
use crate::report::{self, Table, format_rate};

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Runs the command.
///
/// # Errors
/// If the runs cannot be read, or nothing follows from the calibration for one of them.
pub(super) fn run(
    calibration: &Calibration,
    fs: &Path,
    path: &Path,
    model: Model,
    json: bool,
) -> Result<()> {
    let runs = read(path, Runs::parse)?;
    let about = || format!("{} on {}", path.display(), fs.display());
    let verdict = verify(calibration, &runs, model).with_context(about)?;
    // Shown beside it, where the calibration has what they take.
    let others: Vec<Verdict> = [Model::Full, Model::Paper, Model::Conventional]
        .into_iter()
        .filter(|other| *other != model)
        .filter_map(|other| verify(calibration, &runs, other).ok())
        .collect();
    let warning = warning_of(calibration, fs, &runs.machine);
    if json {
        let warnings: Vec<&String> = warning.iter().collect();
        let mut object = serde_json::json!(verdict);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("others".to_owned(), serde_json::json!(others));
            fields.insert("warnings".to_owned(), serde_json::json!(warnings));
        }
        report::say_json(&object)?;
    } else {
        show_runs(&verdict);
        show_models(&verdict, &others);
        report::say(culprit(&verdict));
    }
    if let Some(warning) = warning {
        report::note(format_args!("azekura: {warning}"));
    }
    Ok(())
}

fn show_runs(verdict: &Verdict) {
    let mut table = Table::new(&[
        "RUN",
        ">MEASURED",
        ">FORECAST",
        ">LOW",
        ">HIGH",
        ">ERROR",
        ">WITHIN",
        "OUTSIDE",
    ]);
    for run in &verdict.runs {
        let within = run.within.iter().filter(|within| **within).count();
        table.row([
            run.name.clone(),
            show::time(Seconds(run.measured)),
            show::time(Seconds(run.seconds)),
            show::time(Seconds(run.low)),
            show::time(Seconds(run.high)),
            format!("{:+.1} %", run.error * 100.0),
            format!("{within}/{}", run.within.len()),
            run.outside.join("; "),
        ]);
    }
    report::say(format_args!("{table}\n"));
}

fn show_models(verdict: &Verdict, others: &[Verdict]) {
    let mut table = Table::new(&["MODEL", ">MEDIAN ERROR", ">90 % BELOW", ">WITHIN INTERVAL"]);
    for one in std::iter::once(verdict).chain(others) {
        table.row([
            one.model.to_string(),
            percent(one.median_error),
            percent(one.p90_error),
            percent(one.within),
        ]);
    }
    report::say(format_args!("{table}\n"));
}

fn culprit(verdict: &Verdict) -> String {
    match &verdict.culprit {
        Some(culprit) => format!(
            "off: {}. With {} times its calibrated value the errors (root mean square) would be {} and \
             not {}: measure it again",
            culprit.key,
            format_rate(culprit.factor),
            percent(culprit.residual_then),
            percent(culprit.residual)
        ),
        None if verdict.p90_error < 0.1 => "nothing is off".to_owned(),
        None => "no single value of the calibration explains the errors".to_owned(),
    }
}
