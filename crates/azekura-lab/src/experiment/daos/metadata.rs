//! `daos-metadata`: metadata rates by the number of processes (the paper's figure 8).

use anyhow::Result;

use super::fixture::{Conditions, Fixture, TARGETS};
use super::phase;
use super::rates;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Measure, Parameter, Point, ROUNDS, Settings, Value,
};

pub(super) struct Metadata;

impl Experiment for Metadata {
    fn name(&self) -> &'static str {
        "daos-metadata"
    }

    fn about(&self) -> &'static str {
        "Create, stat, read and delete per second in one directory, by the number of processes"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "All processes work in one directory, through the native path: they make empty files \
             (up to {} in all), stat them, open and close them for reading, and remove them. The \
             pool is one engine with {TARGETS} targets in memory, on the same host. {} Making and \
             removing are one turn. {}",
            rates::file_count(settings),
            phase::described(settings, rates::PHASES),
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[Parameter { name: "processes", title: "processes", cells: Cells::Plain }]
    }

    fn values(&self) -> &'static [Value] {
        &rates::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u16] = if settings.quick { &[1, 2] } else { &[1, 2, 4, 8, 16, 32, 64] };
        counts.iter().map(|processes| Point::of([processes.to_string()])).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        vec![Figure {
            file: "metadata",
            title: "Metadata by processes",
            x: "processes",
            x_title: "processes",
            x_scale: Scale::Powers,
            y_title: "operations/s",
            y_scale: Scale::Linear,
            lines: rates::lines(),
        }]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(rates::PHASES, ROUNDS)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = settings.share_ms(rates::PHASES * settings.rounds());
        Ok(Box::new(move |point| {
            let [processes] = point.cells()?;
            let conditions = Conditions { processes: processes.parse()?, ..Conditions::default() };
            rates::measure(&mut fixture, conditions, &settings, limit_ms)
        }))
    }
}
