//! `azekura-lab draw-forecast`: time and throughput by processes, as `azekura forecast --csv` wrote them.
//! `azekura forecast --plot` calls this.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::chart::{Chart, Curve, Scale, draw};

/// `azekura-lab draw-forecast`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura forecast JOB.toml --fs FS.toml --csv f.csv\n  \
    azekura-lab draw-forecast f.csv .")]
pub(crate) struct DrawForecastArgs {
    /// What azekura forecast --csv wrote
    #[arg(value_name = "FILE.csv")]
    csv: PathBuf,
    /// Where time.svg and throughput.svg go
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const HEADING: &str =
    "nodes,processes,seconds,low_seconds,high_seconds,mib_per_s,bottleneck,outside";

/// One forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    nodes: u32,
    processes: u32,
    seconds: f64,
    low_s: f64,
    high_s: f64,
    mib_per_s: f64,
}

fn row(line: &str) -> Option<Row> {
    let mut cells = line.split(',');
    let mut whole = || cells.next()?.parse::<u32>().ok();
    let (nodes, processes) = (whole()?, whole()?);
    let mut number = || cells.next()?.parse::<f64>().ok();
    let (seconds, low_s, high_s, mib_per_s) = (number()?, number()?, number()?, number()?);
    Some(Row { nodes, processes, seconds, low_s, high_s, mib_per_s })
}

fn rows(text: &str, path: &Path) -> Result<Vec<Row>> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADING) {
        bail!("{} is not what azekura forecast --csv writes", path.display());
    }
    lines
        .enumerate()
        .map(|(index, line)| {
            row(line).with_context(|| format!("{}:{}: no forecast", path.display(), index + 2))
        })
        .collect()
}

/// A curve's name, and what it shows of a row.
type Shown<'a> = (&'a str, fn(&Row) -> f64);

/// A curve for each number of nodes; the interval beside it where there is one number only.
fn curves(rows: &[Row], main: &str, values: &[Shown<'_>]) -> Vec<Curve> {
    let mut nodes: Vec<u32> = rows.iter().map(|row| row.nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let one = nodes.len() == 1;
    let shown = if one { values } else { &values[..1] };
    let mut curves = Vec::new();
    for count in &nodes {
        for (name, value) in shown {
            let points = rows.iter().filter(|row| row.nodes == *count);
            curves.push(Curve {
                title: if one { (*name).to_owned() } else { format!("{main}, {count} nodes") },
                points: points.map(|row| (f64::from(row.processes), value(row))).collect(),
                ..Curve::default()
            });
        }
    }
    curves
}

/// Runs the command.
///
/// # Errors
/// If the file holds no forecasts, or a picture cannot be written.
pub(crate) fn run(args: &DrawForecastArgs) -> Result<()> {
    let text = std::fs::read_to_string(&args.csv)
        .with_context(|| format!("cannot read {}", args.csv.display()))?;
    let rows = rows(&text, &args.csv)?;
    let chart = |title, y_title, curves| Chart {
        title,
        x_title: "processes of each node",
        x_scale: Scale::Powers,
        y_title,
        y_scale: Scale::Linear,
        curves,
        ..Chart::default()
    };
    let times = curves(
        &rows,
        "forecast",
        &[
            ("forecast", |row| row.seconds),
            ("low (5 %)", |row| row.low_s),
            ("high (95 %)", |row| row.high_s),
        ],
    );
    let rates = curves(&rows, "forecast", &[("forecast", |row| row.mib_per_s)]);
    for (file, chart) in [
        ("time.svg", chart("Time by processes", "s", times)),
        ("throughput.svg", chart("Throughput by processes", "MiB/s", rates)),
    ] {
        let path = args.dir.join(file);
        std::fs::write(&path, draw(&chart)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str =
        "1,1,10.000,9.000,11.000,100.000,reading,\n1,4,5.000,4,6,200,server,files\n";

    #[test]
    fn forecasts_are_drawn_with_their_interval() {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("f.csv");
        std::fs::write(&csv, format!("{HEADING}\n{LINES}")).unwrap();
        run(&DrawForecastArgs { csv, dir: dir.path().to_owned() }).unwrap();
        let time = std::fs::read_to_string(dir.path().join("time.svg")).unwrap();
        assert!(time.contains("high (95 %)") && time.contains("processes of each node"));
        let rate = std::fs::read_to_string(dir.path().join("throughput.svg")).unwrap();
        assert!(rate.contains("MiB/s") && !rate.contains("high"));
    }

    #[test]
    fn more_numbers_of_nodes_have_a_curve_each() {
        let all = rows(&format!("{HEADING}\n{LINES}2,1,6,5,7,150,path,\n"), "f".as_ref()).unwrap();
        let curves =
            curves(&all, "forecast", &[("forecast", |row| row.seconds), ("low", |row| row.low_s)]);
        let titles: Vec<&str> = curves.iter().map(|curve| curve.title.as_str()).collect();
        assert_eq!(titles, ["forecast, 1 nodes", "forecast, 2 nodes"]);
        assert_eq!(curves[0].points, [(1.0, 10.0), (4.0, 5.0)]);
    }

    #[test]
    fn what_holds_no_forecasts_is_refused() {
        assert!(rows("a,b\n", "f".as_ref()).is_err());
        let error = rows(&format!("{HEADING}\n1,x\n"), "f".as_ref()).unwrap_err();
        assert!(error.to_string().contains("f:2"), "{error}");
    }
}
