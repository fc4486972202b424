//! `azekura trace`: what was asked for of far files, and why, out of a file that `--trace` wrote. Owns
//! the reading of its lines; writes nothing but a picture.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::experiment::{Chart, Curve, Scale, draw};
use crate::report::{self, Table, format_bytes, format_rate};

/// Points of a curve at most; more cannot be told apart.
const POINTS_MAX: usize = 600;

/// `azekura trace`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs get --trace t.jsonl far:/big .\n  \
    azekura trace t.jsonl --svg t.svg\n\n\
    A line stands for one request (sync-adaptive, fixed) or for one plan with its requests \
    (predictive). USED is the utilisation: of the request before, or of all that was asked for.")]
pub(crate) struct TraceArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Draw size and utilisation over the requests into this file
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// Only the summary
    #[arg(long)]
    summary: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A line of the trace, as the file system writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    us: u64,
    object: String,
    policy: String,
    read_offset: u64,
    read_bytes: u64,
    offset: u64,
    bytes: u64,
    ranges: u64,
    utilisation: Option<f64>,
    decision: String,
    round_trip_us: u64,
    bytes_per_second: u64,
    window_bytes: u64,
    held_bytes: u64,
    hit_bytes: u64,
    wasted_bytes: u64,
}

/// What one file was read like by one process and policy.
#[derive(Debug, Serialize)]
struct Summary {
    pid: u32,
    object: String,
    policy: String,
    lines: u64,
    requests: u64,
    asked_bytes: u64,
    median_bytes: u64,
    last_window_bytes: u64,
    most_held_bytes: u64,
    hit_bytes: u64,
    wasted_bytes: u64,
    round_trip_us: u64,
    bytes_per_second: u64,
}

fn load(path: &Path) -> Result<Vec<Record>> {
    let file = std::fs::File::open(path)
        .with_context(|| format!("cannot read the trace {}", path.display()))?;
    let mut records = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        if line.is_empty() {
            continue;
        }
        let record = serde_json::from_str(&line)
            .with_context(|| format!("{}:{}: not a line of a trace", path.display(), number + 1))?;
        records.push(record);
    }
    if records.is_empty() {
        bail!(
            "{} is empty: nothing far was read, or all of it with --read-policy off",
            path.display()
        );
    }
    Ok(records)
}

fn summaries(records: &[Record]) -> Vec<Summary> {
    let mut all: Vec<(Summary, Vec<u64>)> = Vec::new();
    for record in records {
        let found = all.iter().position(|(summary, _)| {
            summary.pid == record.pid
                && summary.object == record.object
                && summary.policy == record.policy
        });
        let at = found.unwrap_or_else(|| {
            let summary = Summary {
                pid: record.pid,
                object: record.object.clone(),
                policy: record.policy.clone(),
                lines: 0,
                requests: 0,
                asked_bytes: 0,
                median_bytes: 0,
                last_window_bytes: 0,
                most_held_bytes: 0,
                hit_bytes: 0,
                wasted_bytes: 0,
                round_trip_us: 0,
                bytes_per_second: 0,
            };
            all.push((summary, Vec::new()));
            all.len() - 1
        });
        let (summary, sizes) = &mut all[at];
        summary.lines += 1;
        summary.requests += record.ranges;
        summary.asked_bytes += record.bytes;
        summary.last_window_bytes = record.window_bytes;
        summary.most_held_bytes = summary.most_held_bytes.max(record.held_bytes);
        summary.hit_bytes = summary.hit_bytes.max(record.hit_bytes);
        summary.wasted_bytes = summary.wasted_bytes.max(record.wasted_bytes);
        summary.round_trip_us = record.round_trip_us;
        summary.bytes_per_second = record.bytes_per_second;
        sizes.push(record.bytes);
    }
    let finish = |(mut summary, mut sizes): (Summary, Vec<u64>)| {
        sizes.sort_unstable();
        summary.median_bytes = sizes[sizes.len() / 2];
        summary
    };
    all.into_iter().map(finish).collect()
}

fn share(utilisation: Option<f64>) -> String {
    utilisation.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn milliseconds(us: u64) -> String {
    format_rate(us as f64 / 1000.0)
}

fn show_records(records: &[Record]) {
    let mut table = Table::new(&[
        ">SECONDS",
        ">PID",
        ">READ AT",
        ">READ",
        ">ASKED AT",
        ">ASKED",
        ">RANGES",
        ">USED",
        "DECISION",
        ">RTT MS",
        ">MB/S",
        ">WINDOW",
        ">HELD",
    ]);
    for record in records {
        table.row([
            format!("{:.3}", record.us as f64 / 1e6),
            record.pid.to_string(),
            record.read_offset.to_string(),
            format_bytes(record.read_bytes),
            record.offset.to_string(),
            format_bytes(record.bytes),
            record.ranges.to_string(),
            share(record.utilisation),
            record.decision.clone(),
            milliseconds(record.round_trip_us),
            format_rate(record.bytes_per_second as f64 / 1e6),
            format_bytes(record.window_bytes),
            format_bytes(record.held_bytes),
        ]);
    }
    report::say(format_args!("{table}\n"));
}

fn show_summaries(all: &[Summary]) {
    let mut table = Table::new(&[
        ">PID",
        "OBJECT",
        "POLICY",
        ">LINES",
        ">REQUESTS",
        ">ASKED",
        ">MEDIAN",
        ">LAST WINDOW",
        ">MOST HELD",
        ">HITS",
        ">WASTED",
        ">RTT MS",
        ">MB/S",
    ]);
    for summary in all {
        table.row([
            summary.pid.to_string(),
            summary.object.clone(),
            summary.policy.clone(),
            summary.lines.to_string(),
            summary.requests.to_string(),
            format_bytes(summary.asked_bytes),
            format_bytes(summary.median_bytes),
            format_bytes(summary.last_window_bytes),
            format_bytes(summary.most_held_bytes),
            format_bytes(summary.hit_bytes),
            format_bytes(summary.wasted_bytes),
            milliseconds(summary.round_trip_us),
            format_rate(summary.bytes_per_second as f64 / 1e6),
        ]);
    }
    report::say(table);
}

/// Size above, utilisation below, both over the number of the request.
fn picture(records: &[Record]) -> Result<String> {
    let every = records.len().div_ceil(POINTS_MAX).max(1);
    let points = |value: &dyn Fn(&Record) -> Option<f64>| -> Vec<(f64, f64)> {
        let numbered = records.iter().enumerate().step_by(every);
        numbered.filter_map(|(number, record)| Some((number as f64, value(record)?))).collect()
    };
    let chart = |title, y_title, y_scale, curves| Chart {
        title,
        x_title: "request",
        x_scale: Scale::Linear,
        y_title,
        y_scale,
        curves,
    };
    let curve = |title: &str, points| Curve { title: title.to_owned(), points };
    let sizes = chart(
        "Size of requests",
        "bytes",
        Scale::Sizes,
        vec![
            curve("window", points(&|record| Some(record.window_bytes.max(1) as f64))),
            curve("asked for", points(&|record| Some(record.bytes.max(1) as f64))),
        ],
    );
    let used = chart(
        "Utilisation",
        "%",
        Scale::Linear,
        vec![curve("used", points(&|record| record.utilisation.map(|share| share * 100.0)))],
    );
    let (above, below) = (draw(&sizes)?, draw(&used)?);
    let below = below.replacen("<svg ", "<svg y=\"420\" ", 1);
    Ok(format!(
        "<svg width=\"760\" height=\"840\" viewBox=\"0 0 760 840\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n{above}{below}</svg>\n"
    ))
}

/// Runs the command.
///
/// # Errors
/// If the file is no trace, or the picture cannot be written.
pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    let records = load(&args.file)?;
    let all = summaries(&records);
    if args.json {
        let shown: &[Record] = if args.summary { &[] } else { &records };
        report::say_json(&serde_json::json!({ "records": shown, "summaries": all }))?;
    } else {
        if !args.summary {
            show_records(&records);
        }
        show_summaries(&all);
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, picture(&records)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        report::note(format_args!("azekura: {} drawn", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"pid":7,"us":100,"object":"0a","policy":"sync-adaptive","read_offset":0,"read_bytes":4096,"offset":0,"bytes":65536,"ranges":1,"utilisation":null,"decision":"first","round_trip_us":50000,"bytes_per_second":1000000,"window_bytes":65536,"held_bytes":65536,"hit_bytes":0,"wasted_bytes":0}
{"pid":7,"us":200,"object":"0a","policy":"sync-adaptive","read_offset":65536,"read_bytes":4096,"offset":65536,"bytes":131072,"ranges":1,"utilisation":1.0,"decision":"grow","round_trip_us":50000,"bytes_per_second":2000000,"window_bytes":131072,"held_bytes":131072,"hit_bytes":65536,"wasted_bytes":0}
"#;

    #[test]
    fn a_trace_is_summed_up_and_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        std::fs::write(&path, LINES).unwrap();
        let records = load(&path).unwrap();
        let all = summaries(&records);
        assert_eq!((all.len(), all[0].lines, all[0].asked_bytes), (1, 2, 196_608));
        assert_eq!((all[0].last_window_bytes, all[0].hit_bytes), (131_072, 65_536));
        let svg = picture(&records).unwrap();
        assert!(svg.contains("Utilisation") && svg.contains("Size of requests"));
        assert_eq!(svg.matches("<svg ").count(), 3);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        std::fs::write(&path, format!("{LINES}nonsense\n")).unwrap();
        assert!(format!("{:#}", load(&path).unwrap_err()).contains("trace:3"));
        std::fs::write(&path, "").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("nothing far"));
    }
}
