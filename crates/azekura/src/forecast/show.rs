//! A forecast as tables, JSON and CSV.

use std::fmt::Write as _;

use azekura_forecast::units::Seconds;
use azekura_forecast::{Calibration, Deadline, Forecast, Job, Sweep};

use crate::report::{self, Table, format_duration_s, format_rate};

/// A time for people: three digits or so up to two minutes, then minutes and hours.
pub(super) fn time(seconds: Seconds) -> String {
    if seconds.0 < 120.0 {
        format!("{}s", format_rate(seconds.0))
    } else {
        format_duration_s(seconds.0.round() as u64)
    }
}

/// One object: the job as it is, and the best numbers for it.
pub(super) fn json(
    own: &Forecast,
    swept: &Sweep,
    job: &Job,
    calibration: &Calibration,
    deadline: Option<Seconds>,
    warnings: &[String],
) -> serde_json::Value {
    let mut object = serde_json::json!(own);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("job".to_owned(), job.name.clone().into());
        fields.insert("fs".to_owned(), calibration.name.clone().into());
        fields.insert("best".to_owned(), serde_json::json!(swept.best));
        fields.insert("deadline".to_owned(), serde_json::json!(deadline));
        let tried: Vec<_> = swept
            .forecasts
            .iter()
            .map(|one| {
                serde_json::json!({
                    "processes": one.processes, "nodes": one.nodes, "seconds": one.seconds,
                    "low": one.low, "high": one.high, "mib_per_s": one.mib_per_s,
                    "bottleneck": one.bottleneck, "outside": one.outside,
                })
            })
            .collect();
        fields.insert("sweep".to_owned(), tried.into());
        fields.insert("warnings".to_owned(), serde_json::json!(warnings));
    }
    object
}

/// One line for each numbers tried, with units in the heading.
pub(super) fn csv(swept: &Sweep) -> String {
    let mut text = String::from(
        "nodes,processes,seconds,low_seconds,high_seconds,mib_per_s,bottleneck,outside\n",
    );
    for one in &swept.forecasts {
        let outside: Vec<&str> = one.outside.iter().map(|one| one.quantity.as_str()).collect();
        // Text in a string always has room.
        let _ = writeln!(
            text,
            "{},{},{:.3},{:.3},{:.3},{:.3},{},{}",
            one.nodes,
            one.processes,
            one.seconds.0,
            one.low.0,
            one.high.0,
            one.mib_per_s,
            one.bottleneck,
            outside.join(" ")
        );
    }
    text
}

fn show_phases(own: &Forecast) {
    let mut table = Table::new(&[
        "PHASE",
        ">TIME",
        ">LOW",
        ">HIGH",
        ">MiB/s",
        "BOUND BY",
        ">READING",
        ">WRITING",
        ">COMPUTE",
        ">METADATA",
    ]);
    for (index, phase) in own.phases.iter().enumerate() {
        let name = if phase.name.is_empty() {
            format!("{} {}", index + 1, phase.pattern)
        } else {
            phase.name.clone()
        };
        table.row([
            name,
            time(phase.seconds),
            time(phase.low),
            time(phase.high),
            format_rate(phase.mib_per_s),
            phase.bottleneck.to_string(),
            time(phase.terms.reading),
            time(phase.terms.writing),
            time(phase.terms.compute),
            time(phase.terms.metadata + phase.terms.start),
        ]);
    }
    report::say(format_args!("{table}\n"));
}

fn show_sweep(swept: &Sweep) {
    let best = &swept.best;
    let mut table = Table::new(&[
        ">NODES",
        ">PROCESSES",
        ">TIME",
        ">LOW",
        ">HIGH",
        ">MiB/s",
        "BOUND BY",
        "OUTSIDE",
    ]);
    for one in &swept.forecasts {
        let is_best = (one.nodes, one.processes) == (best.nodes, best.processes);
        let outside: Vec<&str> = one.outside.iter().map(|one| one.quantity.as_str()).collect();
        let mark = if is_best { "best" } else { "" };
        let notes: Vec<&str> =
            [mark].into_iter().chain(outside).filter(|note| !note.is_empty()).collect();
        table.row([
            one.nodes.to_string(),
            one.processes.to_string(),
            time(one.seconds),
            time(one.low),
            time(one.high),
            format_rate(one.mib_per_s),
            one.bottleneck.to_string(),
            notes.join(", "),
        ]);
    }
    report::say(format_args!("{table}\n"));
}

/// How many work, in words.
fn numbers(processes: u32, nodes: u32) -> String {
    let processes = match processes {
        1 => "1 process".to_owned(),
        _ => format!("{processes} processes"),
    };
    match nodes {
        1 => format!("{processes} on 1 node"),
        _ => format!("{processes} on each of {nodes} nodes"),
    }
}

/// Everything, for people.
pub(super) fn all(
    own: &Forecast,
    swept: &Sweep,
    job: &Job,
    calibration: &Calibration,
    deadline: Option<Seconds>,
) {
    let name = if job.name.is_empty() { "the job" } else { &job.name };
    report::say(format_args!(
        "{name} on {}, {}: {} ({} to {}), bound by {}\n",
        calibration.name,
        numbers(own.processes, own.nodes),
        time(own.seconds),
        time(own.low),
        time(own.high),
        own.bottleneck
    ));
    show_phases(own);
    if swept.forecasts.len() > 1 {
        show_sweep(swept);
    }
    for one in &own.outside {
        report::say(format_args!("outside of what was measured: {one}"));
    }
    let best = &swept.best;
    let choice = format!(
        "{}: {} ({} to {})",
        numbers(best.processes, best.nodes),
        time(best.seconds),
        time(best.low),
        time(best.high)
    );
    match (deadline, best.deadline) {
        (Some(deadline), Some(met)) => {
            let met = match met {
                Deadline::Met => "the cheapest that ends",
                Deadline::Likely => "likely, but not for sure, ends",
                Deadline::Missed => "the fastest; nothing that was tried ends",
            };
            report::say(format_args!("best: {choice}; {met} within {}", time(deadline)));
        }
        _ => report::say(format_args!("best: {choice}; the least time")),
    }
}
