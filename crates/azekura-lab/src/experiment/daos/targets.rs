//! `daos-targets`: bandwidth and metadata rates by the number of targets (the paper's figure 7).

use anyhow::Result;
use azekura::report::format_bytes;
use azekura_proto::ObjectClass;

use super::bandwidth::{self, Files, READ, WRITE};
use super::fixture::{BY_REQUESTS, Conditions, Fixture, PROCESSES};
use super::{phase, rates};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Value,
};
use crate::experiment::spread::join;

/// As many as the paper's two client nodes ran together.
const MANY_PROCESSES: usize = 32;
const TRANSFER_BYTES: u64 = 64 << 10;

pub(super) struct Targets;

fn processes(settings: &Settings) -> usize {
    if settings.quick { PROCESSES } else { MANY_PROCESSES }
}

/// Of a point's time each of these phases in each round has one part.
const PHASES: usize = bandwidth::PHASES + rates::PHASES;

fn limit_ms(settings: &Settings) -> u64 {
    settings.share_ms(PHASES * settings.rounds())
}

impl Experiment for Targets {
    fn name(&self) -> &'static str {
        "daos-targets"
    }

    fn about(&self) -> &'static str {
        "Bandwidth and metadata rates by the number of targets"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} processes write and then read, through the native path, a file each (N-N) in \
             transfers of {}, {} in all; then they make, stat, open and remove up to {} empty files \
             in one directory. The pool is one engine with its targets in memory, on the same host; \
             the chunk size is 1 MiB, and a file lies on one target. {BY_REQUESTS} {} Making and \
             removing files are one turn. {}",
            processes(settings),
            format_bytes(TRANSFER_BYTES),
            format_bytes(bandwidth::part_bytes(settings) * PROCESSES as u64),
            rates::file_count(settings),
            phase::described(settings, PHASES),
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[Parameter { name: "targets", title: "targets", cells: Cells::Plain }]
    }

    fn values(&self) -> &'static [Value] {
        const ALL: [Value; 18] = join(bandwidth::VALUES, rates::VALUES);
        &ALL
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u16] = if settings.quick { &[1, 4] } else { &[1, 2, 4, 8, 16] };
        counts.iter().map(|targets| Point::of([targets.to_string()])).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, y_title, lines| Figure {
            file,
            title,
            x: "targets",
            x_title: "targets",
            x_scale: Scale::Powers,
            y_title,
            y_scale: Scale::Linear,
            lines,
        };
        let line = |title: &str, value| Line { title: title.to_owned(), value, only: Vec::new() };
        let bandwidth = vec![line("read", READ), line("write", WRITE)];
        vec![
            figure("bandwidth", "Bandwidth by targets", "MiB/s", bandwidth),
            figure("metadata", "Metadata by targets", "operations/s", rates::lines()),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(PHASES, ROUNDS)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = limit_ms(&settings);
        Ok(Box::new(move |point| {
            let [targets] = point.cells()?;
            let conditions = Conditions {
                targets: targets.parse()?,
                class: ObjectClass::S1,
                processes: processes(&settings),
                ..Conditions::default()
            };
            let (fixture, files) = (&mut fixture, Files::PerProcess);
            let bytes = TRANSFER_BYTES;
            let io = bandwidth::measure(fixture, conditions, files, bytes, &settings, limit_ms)?;
            let md = rates::measure(fixture, conditions, &settings, limit_ms)?;
            Ok(io.into_iter().chain(md).collect())
        }))
    }
}
