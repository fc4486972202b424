//! `daos-metadata`: metadata rates by the number of processes (the paper's figure 8).

use anyhow::Result;

use super::rates;
use super::setup::{Ground, Setup, TARGETS};
use crate::experiment::frame::{
    Cells, Experiment, Figure, Parameter, Point, Rig, Scale, Settings, Value,
};

pub(super) struct Metadata;

struct MetadataRig {
    setup: Setup,
    settings: Settings,
}

impl Rig for MetadataRig {
    fn measure(&mut self, point: &Point) -> Result<Vec<f64>> {
        let [processes] = point.cells()?;
        let ground = Ground { processes: processes.parse()?, ..Ground::default() };
        let limit_ms = self.settings.share_ms(4 * self.settings.rounds());
        rates::measure(&mut self.setup, ground, &self.settings, limit_ms).map(Vec::from)
    }
}

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
             pool is one engine with {TARGETS} targets in memory, on the same host. A phase ends \
             after {:.2} s, whatever was done by then. {}",
            rates::file_count(settings),
            settings.share_ms(4 * settings.rounds()) as f64 / 1000.0,
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

    fn rig(&self, settings: &Settings) -> Result<Box<dyn Rig>> {
        Ok(Box::new(MetadataRig { setup: Setup::default(), settings: *settings }))
    }
}
