//! `wan-rates`: the read policies over links of other rates than the paper's, where a method that measures
//! the link has to come to other sizes.

use anyhow::{Context as _, Result};

use super::fixture::{
    DELAY, FarPool, LinkShape, PATTERN, POLICY, SIZE, USEFUL, VALUES, Workload, method,
};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const RATE: Parameter = Parameter { name: "rate_mbit", title: "rate, Mbit/s", cells: Cells::Plain };
const RATES_MBIT: [u64; 3] = [100, 1000, 2500];
const DELAYS_MS: [u64; 3] = [0, 10, 50];
/// Its gaps of 6 MiB are worth a round trip of 50 ms at 1 Gbit/s and above, and not below.
const PATTERNS: [Pattern; 2] = [Pattern::MiddleStride, Pattern::Sequential];
const POLICIES: [&str; 4] = ["predictive", "sync-adaptive", "fixed=1M", "fixed=64M"];
/// Slow links take long: a run over one has this share of the turns.
const SLOW_SHARE: f64 = 0.25;
/// So does the one turn of reading front to back, of which nothing is left out.
const SEQUENTIAL_SHARE: f64 = 0.25;

pub(super) struct Rates;

/// The rates and delays of a run.
fn links(settings: &Settings) -> Vec<LinkShape> {
    let (rates, delays): (&[u64], &[u64]) = if settings.quick {
        (&RATES_MBIT[..1], &DELAYS_MS[..1])
    } else {
        (&RATES_MBIT, &DELAYS_MS)
    };
    let shapes = |rate_mbit: &u64| {
        let rate_mbit = *rate_mbit;
        delays.iter().map(move |delay| LinkShape { rate_mbit, round_trip_ms: *delay })
    };
    rates.iter().flat_map(shapes).collect()
}

/// The share of a pattern that a run over that link reads.
fn share(pattern: Pattern, link: LinkShape) -> f64 {
    let of_link = if link.rate_mbit < 1000 { SLOW_SHARE } else { 1.0 };
    let of_pattern = if matches!(pattern, Pattern::Sequential) { SEQUENTIAL_SHARE } else { 1.0 };
    of_link * of_pattern
}

impl Experiment for Rates {
    fn name(&self) -> &'static str {
        "wan-rates"
    }

    fn about(&self) -> &'static str {
        "Useful bytes per second and sizes of requests over links of other rates"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} Here the link is of 100 Mbit/s, 1 or 2.5 Gbit/s; over the slowest a run has a \
             quarter of the turns. Front to back is read a quarter as far as elsewhere. {}",
            method(),
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, RATE, DELAY, POLICY] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for pattern in PATTERNS {
            for link in links(settings) {
                points.extend(POLICIES.map(|policy| {
                    Point::of([
                        pattern.name().to_owned(),
                        link.rate_mbit.to_string(),
                        link.round_trip_ms.to_string(),
                        policy.to_owned(),
                    ])
                }));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let delay = links(settings).last().map_or(0, |link| link.round_trip_ms);
        let figure = |file, title, y_title, value: &'static str, y_scale, policies: &[&str]| {
            let line = |policy: &&str| Line {
                title: (*policy).to_owned(),
                value,
                only: vec![
                    (PATTERN.name, Pattern::MiddleStride.name().to_owned()),
                    (DELAY.name, delay.to_string()),
                    (POLICY.name, (*policy).to_owned()),
                ],
            };
            let lines = policies.iter().map(line).collect();
            let (x, x_title, x_scale) = (RATE.name, "rate of the link, Mbit/s", Scale::Powers);
            Figure { file, title, x, x_title, x_scale, y_title, y_scale, lines }
        };
        vec![
            figure(
                "speed",
                "3 MiB, gaps of 6 MiB, at the longest round trip",
                "useful MB/s",
                USEFUL,
                Scale::Linear,
                &POLICIES,
            ),
            figure(
                "size",
                "The size that sync-adaptive comes to",
                "size",
                SIZE,
                Scale::Sizes,
                &POLICIES[1..2],
            ),
        ]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        Ok(Box::new(move |point| {
            let [pattern, rate, delay, policy] = point.cells()?;
            let pattern = Pattern::named(pattern).context("no such pattern")?;
            let link = LinkShape { rate_mbit: rate.parse()?, round_trip_ms: delay.parse()? };
            let settings = Settings { scale: settings.scale * share(pattern, link), ..settings };
            let workload = Workload::new(pattern, link.round_trip_ms, policy, &settings);
            far.values(&Workload { link, ..workload })
        }))
    }
}
