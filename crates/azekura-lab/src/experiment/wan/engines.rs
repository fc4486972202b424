//! `wan-engines`: one file over several engines, each at a distance of its own, which the paper leaves to later
//! work: what is lost when the parts of a request come at different times.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::fixture::{
    FarPool, GOODPUT_MB_PER_S, PATTERN, POLICY, USEFUL, VALUES, Workload, method,
};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Source, Value,
};

/// The mean round trip to the engines, in milliseconds.
const MEAN_MS: u64 = 50;
const SPREAD: Parameter = Parameter {
    name: "spread_ms",
    title: "from the nearest to the farthest, ms",
    cells: Cells::Plain,
};
const SPREADS_MS: [u64; 5] = [0, 25, 50, 75, 100];
const QUICK_SPREADS_MS: [u64; 2] = [0, 100];
const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::MiddleStride, Pattern::Random];
const POLICIES: [&str; 3] = ["predictive", "sync-adaptive-striped", "fixed=64M-striped"];
/// What the links carry together.
const LINKS: &str = "links";
/// A run has this share of the turns of wan-policies.
const SHARE: f64 = 0.5;

pub(super) struct SeveralEngines;

fn spreads_ms(settings: &Settings) -> &'static [u64] {
    if settings.quick { &QUICK_SPREADS_MS } else { &SPREADS_MS }
}

fn patterns(settings: &Settings) -> &'static [Pattern] {
    if settings.quick { &PATTERNS[1..2] } else { &PATTERNS }
}

impl Experiment for SeveralEngines {
    fn name(&self) -> &'static str {
        "wan-engines"
    }

    fn about(&self) -> &'static str {
        "Useful bytes per second of a file over four engines, by how much their distances differ"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} Here there are four engines of one target each, on hosts of their own, and the file is over all \
             of them. Each has a link of 250 Mbit/s; the mean of the round trips is {MEAN_MS} ms, and they lie \
             evenly from the nearest to the farthest. A run has half the turns of wan-policies. {}",
            method(),
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, SPREAD, POLICY] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for pattern in patterns(settings) {
            for spread in spreads_ms(settings) {
                points.extend(POLICIES.iter().chain(&[LINKS]).map(|policy| {
                    Point::of([pattern.name().into(), spread.to_string(), (*policy).into()])
                }));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let figure = |pattern: &Pattern| Figure {
            file: pattern.name(),
            title: pattern.title(),
            x: SPREAD.name,
            x_title: "from the nearest engine's round trip to the farthest's, ms",
            x_scale: Scale::Linear,
            y_title: "useful MB/s",
            y_scale: Scale::Linear,
            lines: POLICIES
                .iter()
                .chain(&[LINKS])
                .map(|policy| Line {
                    title: (*policy).to_owned(),
                    value: USEFUL,
                    only: vec![
                        (PATTERN.name, pattern.name().to_owned()),
                        (POLICY.name, (*policy).to_owned()),
                    ],
                })
                .collect(),
        };
        patterns(settings).iter().map(figure).collect()
    }

    fn source(&self, point: &Point, _settings: &Settings, _dir: &Path) -> Source {
        if point.0.last().is_some_and(|policy| policy == LINKS) {
            let mut values = vec![0.0; VALUES.len()];
            values[..3].fill(GOODPUT_MB_PER_S);
            return Source::Known(values);
        }
        Source::Measured
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let mut far = FarPool::start_several(settings)?;
        let settings = Settings { scale: settings.scale * SHARE, ..*settings };
        Ok(Box::new(move |point| {
            let [pattern, spread, policy] = point.cells()?;
            let pattern = Pattern::named(pattern).context("no such pattern")?;
            let workload = Workload::new(pattern, MEAN_MS, policy, &settings);
            far.values(&Workload { spread_ms: spread.parse()?, ..workload })
        }))
    }
}
