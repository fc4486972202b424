//! `azekura-lab draw`: a trace of far reads as a picture. `azekura trace` shows the same in numbers, and
//! calls this for its option `--svg`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use azekura_posix::TraceRecord;
use clap::Args;

use crate::chart::{Chart, Curve, Scale, draw};

/// Points of a curve at most; more cannot be told apart.
const POINTS_MAX: usize = 600;

/// `azekura-lab draw`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs get --trace t.jsonl far:/big .\n  \
    azekura-lab draw t.jsonl t.svg")]
pub(crate) struct DrawArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// Size and utilisation over the requests
    #[arg(value_name = "OUT.svg")]
    svg: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If the file is no trace, or the picture cannot be written.
pub(crate) fn run(args: &DrawArgs) -> Result<()> {
    let records = TraceRecord::load(&args.trace)?;
    std::fs::write(&args.svg, picture(&records)?)
        .with_context(|| format!("cannot write {}", args.svg.display()))
}

/// Size above, utilisation below, both over the number of the request.
fn picture(records: &[TraceRecord]) -> Result<String> {
    let every = records.len().div_ceil(POINTS_MAX).max(1);
    let points = |value: &dyn Fn(&TraceRecord) -> Option<f64>| -> Vec<(f64, f64)> {
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
        ..Chart::default()
    };
    let curve = |title: &str, points| Curve { title: title.to_owned(), points, ..Curve::default() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_drawn() {
        let records: Vec<TraceRecord> =
            azekura_testkit::TRACE_LINES.lines().map(|line| line.parse().unwrap()).collect();
        let svg = picture(&records).unwrap();
        assert!(svg.contains("Utilisation") && svg.contains("Size of requests"));
        assert_eq!(svg.matches("<svg ").count(), 3);
    }
}
