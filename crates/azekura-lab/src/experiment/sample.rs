//! A small experiment for the tests of the frame. Measures nothing.

use anyhow::Result;
use azekura::host::machine::Machine;

use super::frame::{Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value};
use super::results::RunRecord;
use super::session::{Load, Session};
use crate::chart::Scale;

pub(super) struct Sample;

impl Experiment for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn about(&self) -> &'static str {
        "Read speed by size"
    }

    fn method(&self, _settings: &Settings) -> String {
        "Reads things.".to_owned()
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter { name: "kind", title: "kind", cells: Cells::Plain },
            Parameter { name: "size_bytes", title: "size", cells: Cells::Bytes },
        ]
    }

    fn values(&self) -> &'static [Value] {
        &[
            Value { name: "read_mib_per_s", title: "read, MiB/s" },
            Value { name: "rate_per_s", title: "rate, 1/s" },
        ]
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let kinds = if settings.quick { vec!["a", "b"] } else { vec!["a", "broken", "b"] };
        let sizes = [1024, 4096];
        kinds.iter().flat_map(|kind| sizes.map(|bytes| point(kind, bytes))).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |kind: &str| Line {
            title: format!("kind <{kind}>"),
            value: "read_mib_per_s",
            only: vec![("kind", kind.to_owned())],
        };
        vec![Figure {
            file: "read",
            title: "Reading",
            x: "size_bytes",
            x_title: "size",
            x_scale: Scale::Sizes,
            y_title: "MiB/s",
            y_scale: Scale::Linear,
            lines: vec![line("a"), line("b")],
        }]
    }

    fn start(&self, _settings: &Settings) -> Result<Measure> {
        Ok(Box::new(|point| {
            let bytes: f64 = point.0[1].parse()?;
            if point.0[0] == "broken" {
                anyhow::bail!("no such kind");
            }
            Ok(vec![bytes / 100.0, bytes])
        }))
    }
}

pub(super) fn point(kind: &str, bytes: u64) -> Point {
    Point::of([kind.to_owned(), bytes.to_string()])
}

pub(super) fn record() -> RunRecord {
    RunRecord {
        version: "1.2.3".to_owned(),
        command_line: "azekura-lab experiment run sample".to_owned(),
        begun: "2001-02-03 04:05 UTC".to_owned(),
        quick: false,
        scale: 1.0,
        point_s: 3.0,
        machine: Machine {
            processor: "Abacus".to_owned(),
            processors: 2,
            memory_bytes: 8 << 30,
            kernel: "6.0".to_owned(),
        },
        sessions: vec![Session {
            command_line: "azekura-lab experiment run sample".to_owned(),
            begun: "2001-02-03 04:05 UTC".to_owned(),
            commit: "c0ffee".to_owned(),
            dirty: true,
            only_processors: String::new(),
            load_before: Load { busy_percent: 50.0, average: 1.0 },
            load_after: None,
        }],
        method: String::new(),
    }
}
