//! `wan-policies`: the read policies beside the best fixed size and what the link allows, for every
//! pattern, by delay.

use std::path::Path;

use anyhow::Result;

use super::fixed;
use super::fixture::{
    DELAY, FarPool, GOODPUT_MB_PER_S, PATTERN, POLICY, USEFUL, VALUES, Workload, delays_ms,
    figure_by_delay, method,
};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Experiment, Figure, Line, Measure, Parameter, Point, Settings, Source, Value,
};
use crate::experiment::results;

const NAME: &str = "wan-policies";
const ADAPTIVE: &str = "sync-adaptive";
const PREDICTIVE: &str = "predictive";
const MEASURED: [&str; 3] = [PREDICTIVE, ADAPTIVE, "sync-adaptive-striped"];
/// One of the fixed sizes that `wan-fixed` has measured, and that size.
const PLAIN: &str = "fixed=1M";
const PLAIN_BYTES: u64 = 1 << 20;
/// The best of the fixed sizes that `wan-fixed` has measured.
const OPTIMAL: &str = "optimal";
/// What the link carries.
const LINK: &str = "link";
/// One request for each region, one after the other.
const REGIONS: &str = "request-per-region";

pub(super) struct Policies;

/// What `sync-adaptive` came to for a pattern and delay, out of results beside the directory `dir`.
pub(super) fn adaptive(dir: &Path, pattern: Pattern, round_trip_ms: u64) -> Option<Vec<f64>> {
    let rows = results::rows(&dir.parent()?.join(NAME), &Policies)?;
    let point = Point::of([pattern.name().into(), round_trip_ms.to_string(), ADAPTIVE.to_owned()]);
    rows.into_iter().find(|row| row.point == point).map(|row| row.values)
}

/// Useful MB/s when each region is one request and none is sent before the last is answered.
fn per_region_mb_per_s(region_bytes: u64, round_trip_ms: u64) -> f64 {
    let region_mb = region_bytes as f64 / 1e6;
    region_mb / (round_trip_ms as f64 / 1000.0 + region_mb / GOODPUT_MB_PER_S)
}

/// The paper's patterns, and those that programs have beside.
fn patterns(settings: &Settings) -> impl Iterator<Item = Pattern> {
    Pattern::chosen(settings).iter().chain(Pattern::further(settings)).copied()
}

/// The lines of a pattern's figure.
fn policies_of(pattern: Pattern) -> Vec<&'static str> {
    let mut policies = Vec::new();
    if Pattern::PAPER.contains(&pattern) {
        policies.extend(MEASURED);
        policies.extend([PLAIN, OPTIMAL]);
    } else {
        policies.push(PREDICTIVE);
    }
    policies.push(LINK);
    policies.extend(pattern.region_bytes().map(|_| REGIONS));
    policies
}

fn limit(pattern: Pattern, policy: &str, round_trip_ms: u64) -> Option<f64> {
    match (policy, pattern.region_bytes()) {
        (LINK, _) => Some(GOODPUT_MB_PER_S),
        (REGIONS, Some(bytes)) => Some(per_region_mb_per_s(bytes, round_trip_ms)),
        _ => None,
    }
}

impl Experiment for Policies {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "Useful bytes per second by delay, for each read policy and pattern, beside what is possible"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} {} Fixed sizes are those of wan-fixed, if that was run into the same directory before, \
             and Optimal is the best of them. The link's line is its goodput; one request per region is what a \
             program gets that asks for each region by itself and waits for it. The last {} patterns are not the paper's: \
             these are read by the policy that Azekura takes by itself alone.",
            method(),
            settings.repetition(),
            Pattern::FURTHER.len(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY, POLICY] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for pattern in patterns(settings) {
            for delay in delays_ms(settings) {
                points.extend(policies_of(pattern).iter().map(|policy| {
                    Point::of([pattern.name().into(), delay.to_string(), (*policy).into()])
                }));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let figure = |pattern: Pattern| {
            let line = |policy: &str| Line {
                title: policy.to_owned(),
                value: USEFUL,
                only: vec![
                    (PATTERN.name, pattern.name().to_owned()),
                    (POLICY.name, policy.to_owned()),
                ],
            };
            let lines = policies_of(pattern).into_iter().map(line).collect();
            figure_by_delay(pattern, ("useful MB/s", Scale::Linear), lines)
        };
        patterns(settings).map(figure).collect()
    }

    fn source(&self, point: &Point, settings: &Settings, dir: &Path) -> Source {
        let Ok([pattern, delay, policy]) = point.cells() else { return Source::Measured };
        let (Some(pattern), Ok(round_trip_ms)) = (Pattern::named(pattern), delay.parse()) else {
            return Source::Measured;
        };
        if let Some(mb_per_s) = limit(pattern, policy, round_trip_ms) {
            let round_trip_ms = round_trip_ms as f64;
            return Source::Known(vec![
                mb_per_s,
                mb_per_s,
                mb_per_s,
                0.0,
                0.0,
                0.0,
                0.0,
                round_trip_ms,
            ]);
        }
        if policy == PLAIN {
            return fixed::of_size(dir, pattern, round_trip_ms, PLAIN_BYTES)
                .map_or(Source::Missing, Source::Known);
        }
        if policy == OPTIMAL {
            return fixed::best(dir, settings, pattern, round_trip_ms)
                .map_or(Source::Missing, Source::Known);
        }
        Source::Measured
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        Ok(Box::new(move |point| {
            let [pattern, delay, policy] = point.cells()?;
            far.values(&Workload::of_cells(pattern, delay, policy, &settings)?)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_per_region_is_as_slow_as_the_paper_says() {
        for (pattern, round_trip_ms, mb_per_s) in [
            (Pattern::ShortStride, 10, 36.0),
            (Pattern::ShortStride, 50, 9.6),
            (Pattern::ShortStride, 100, 5.0),
            (Pattern::MiddleStride, 10, 86.0),
            (Pattern::MiddleStride, 100, 25.0),
            (Pattern::Random, 50, 69.0),
            (Pattern::Random, 100, 49.0),
        ] {
            let found = limit(pattern, REGIONS, round_trip_ms).unwrap();
            assert!((found / mb_per_s - 1.0).abs() < 0.03, "{pattern:?} {round_trip_ms}: {found}");
        }
        assert_eq!(limit(Pattern::Mixed, LINK, 50), Some(GOODPUT_MB_PER_S));
        assert_eq!(limit(Pattern::Mixed, REGIONS, 50), None);
        assert_eq!(limit(Pattern::Random, "predictive", 50), None);
    }
}
