//! `wan-existing`: what requests of a plain fixed size do, near and far (the paper's figure 1).

use anyhow::{Context as _, Result};

use super::fixed;
use super::fixture::{DELAY, FarPool, PATTERN, USEFUL, VALUES, Workload, method};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Value,
};

/// The size of the file system that the paper has there.
const POLICY: &str = "fixed=1M";
const SIZE_BYTES: u64 = 1 << 20;
const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::ShortStride, Pattern::Random];
/// The paper's local network, of 50 us, and its wide one.
const DELAYS_MS: [u64; 2] = [0, 25];

pub(super) struct Existing;

/// The delays of a run, in milliseconds.
fn delays_ms(settings: &Settings) -> &'static [u64] {
    if settings.quick { &DELAYS_MS[..1] } else { &DELAYS_MS }
}

impl Experiment for Existing {
    fn name(&self) -> &'static str {
        "wan-existing"
    }

    fn about(&self) -> &'static str {
        "Useful bytes per second with requests of 1 MiB, near and far"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} A run has as many turns as take about {:.0} s. {} The paper's delays here are 50 us \
             and 25 ms, and it does not say what its random access was: two kinds are measured.",
            method(),
            settings.point_s / settings.rounds() as f64,
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn least_point_s(&self) -> f64 {
        fixed::RUN_S * ROUNDS as f64
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let at = |pattern: Pattern| {
            let at = move |delay: &u64| Point::of([pattern.name().into(), delay.to_string()]);
            delays_ms(settings).iter().map(at)
        };
        PATTERNS.into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |pattern: Pattern| Line {
            title: pattern.name().to_owned(),
            value: USEFUL,
            only: vec![(PATTERN.name, pattern.name().to_owned())],
        };
        vec![Figure {
            file: "existing",
            title: "Requests of 1 MiB, near and far",
            x: DELAY.name,
            x_title: "added round trip, ms",
            x_scale: Scale::Linear,
            y_title: "useful MB/s",
            y_scale: Scale::Linear,
            lines: PATTERNS.into_iter().map(line).collect(),
        }]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        Ok(Box::new(move |point| {
            let [pattern, delay] = point.cells()?;
            let workload = Workload::of_cells(pattern, delay, POLICY, &settings)?;
            let round_trip_ms = workload.link.round_trip_ms;
            let extent = fixed::extent(&settings, workload.pattern, round_trip_ms, SIZE_BYTES)
                .context("such a run would take too long")?;
            far.values(&Workload { extent, ..workload })
        }))
    }
}
