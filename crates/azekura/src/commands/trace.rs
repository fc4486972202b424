//! `azekura trace`: what was asked for of far files, and why, out of a file that `--trace` wrote. Their
//! form is the file system's; leaves drawing to `azekura-lab`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use azekura_posix::{TracePolicy, TraceRecord};
use clap::Args;
use serde::Serialize;

use super::lab;
use crate::report::{self, Table, format_bytes, format_rate};

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
    /// Draw size and utilisation over the requests into this file, with azekura-lab
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// Only the summary
    #[arg(long)]
    summary: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one file was read like by one process and policy.
#[derive(Debug, Serialize)]
struct Summary {
    pid: u32,
    object: String,
    policy: TracePolicy,
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

fn load(path: &Path) -> Result<Vec<TraceRecord>> {
    let records = TraceRecord::load(path)?;
    if records.is_empty() {
        bail!(
            "{} is empty: nothing far was read, or all of it with --read-policy off",
            path.display()
        );
    }
    Ok(records)
}

fn summaries(records: &[TraceRecord]) -> Vec<Summary> {
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
                policy: record.policy,
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

fn show_records(records: &[TraceRecord]) {
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
            record.decision.to_string(),
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
            summary.policy.to_string(),
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

/// Runs the command.
///
/// # Errors
/// If the file is no trace, or the picture cannot be written.
pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    let records = load(&args.file)?;
    let all = summaries(&records);
    if args.json {
        let shown: &[TraceRecord] = if args.summary { &[] } else { &records };
        report::say_json(&serde_json::json!({ "records": shown, "summaries": all }))?;
    } else {
        if !args.summary {
            show_records(&records);
        }
        show_summaries(&all);
    }
    if let Some(path) = &args.svg {
        lab::draw(&args.file, path)?;
        report::note(format_args!("azekura: {} drawn", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use azekura_testkit::TRACE_LINES;

    use super::*;

    #[test]
    fn a_trace_is_summed_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        std::fs::write(&path, TRACE_LINES).unwrap();
        let records = load(&path).unwrap();
        let all = summaries(&records);
        assert_eq!((all.len(), all[0].lines, all[0].asked_bytes), (1, 2, 196_608));
        assert_eq!((all[0].last_window_bytes, all[0].hit_bytes), (131_072, 65_536));
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        std::fs::write(&path, format!("{TRACE_LINES}nonsense\n")).unwrap();
        assert!(format!("{:#}", load(&path).unwrap_err()).contains("trace:3"));
        std::fs::write(&path, "").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("nothing far"));
    }
}
