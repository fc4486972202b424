//! `wan-change`: a link whose delay and rate change while a file is read: what a policy is worth that says
//! it adapts. This one is by time, since the link is.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::fixture::{FarPool, LinkShape, POLICY, USEFUL, USEFUL_RANGE, Workload, method};
use super::pattern::Pattern;
use super::reader::Reading;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const SECOND: Parameter = Parameter { name: "second", title: "second", cells: Cells::Plain };
const POLICIES: [&str; 4] = ["predictive", "sync-adaptive", "sync-adaptive-striped", "fixed=1M"];
const PATTERN: Pattern = Pattern::MiddleStride;
/// The line of what the link carries.
const LINK: &str = "link";
/// One after the other, each for as long.
const PHASES: [LinkShape; 5] = [
    LinkShape::gigabit(0),
    LinkShape::gigabit(50),
    LinkShape { rate_mbit: 100, round_trip_ms: 50 },
    LinkShape { rate_mbit: 100, round_trip_ms: 5 },
    LinkShape::gigabit(5),
];
const PHASE_S: u64 = 20;
const QUICK_PHASE_S: u64 = 1;
const VALUES: [Value; 3] = [
    Value { name: USEFUL, title: "useful, MB/s" },
    Value { name: USEFUL_RANGE[0], title: "least" },
    Value { name: USEFUL_RANGE[1], title: "most" },
];

pub(super) struct Changing;

fn phase_s(settings: &Settings) -> u64 {
    if settings.quick { QUICK_PHASE_S } else { PHASE_S }
}

/// What the link carries in a second, in MB/s.
fn link_mb_per_s(settings: &Settings, second: u64) -> f64 {
    let phase = PHASES.get((second / phase_s(settings)) as usize);
    phase.map_or(0.0, |shape| shape.goodput_mb_per_s())
}

/// The mean, the least and the most of what runs got in a second, in MB/s.
fn in_second(readings: &[Reading], second: u64) -> Vec<f64> {
    let of = |reading: &Reading| {
        reading.by_second.get(second as usize).copied().unwrap_or(0) as f64 / 1e6
    };
    let all: Vec<f64> = readings.iter().map(of).collect();
    vec![
        all.iter().sum::<f64>() / all.len().max(1) as f64,
        all.iter().copied().reduce(f64::min).unwrap_or(0.0),
        all.iter().copied().reduce(f64::max).unwrap_or(0.0),
    ]
}

impl Experiment for Changing {
    fn name(&self) -> &'static str {
        "wan-change"
    }

    fn about(&self) -> &'static str {
        "Useful bytes in each second, while delay and rate of the link change"
    }

    fn method(&self, settings: &Settings) -> String {
        let phases: Vec<String> = PHASES
            .iter()
            .map(|shape| format!("{} Mbit/s and {} ms", shape.rate_mbit, shape.round_trip_ms))
            .collect();
        format!(
            "{} This experiment goes by time: every {} s the link becomes another, {}. The pattern is \
             3 MiB with gaps of 6 MiB, in a file of 32 GiB. {}",
            method(),
            phase_s(settings),
            phases.join(", then "),
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[POLICY, SECOND] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let seconds = phase_s(settings) * PHASES.len() as u64;
        let of = |policy: &str| {
            let policy = policy.to_owned();
            (0..seconds).map(move |second| Point::of([policy.clone(), second.to_string()]))
        };
        POLICIES.into_iter().chain([LINK]).flat_map(of).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |policy: &str| Line {
            title: policy.to_owned(),
            value: USEFUL,
            only: vec![(POLICY.name, policy.to_owned())],
        };
        vec![Figure {
            file: "change",
            title: "Reading while the link changes",
            x: SECOND.name,
            x_title: "second",
            x_scale: Scale::Linear,
            y_title: "useful MB/s",
            y_scale: Scale::Linear,
            lines: POLICIES.into_iter().chain([LINK]).map(line).collect(),
        }]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        let mut last: Option<(String, Vec<Reading>)> = None;
        Ok(Box::new(move |point| {
            let [policy, second] = point.cells()?;
            let second = second.parse()?;
            if policy == LINK {
                return Ok(vec![link_mb_per_s(&settings, second); VALUES.len()]);
            }
            // All seconds of a policy are of the same runs.
            if last.as_ref().is_none_or(|(of, _)| of != policy) {
                last = Some((policy.to_owned(), read_all(&mut far, policy, &settings)?));
            }
            let (_, readings) = last.as_ref().context("nothing was read")?;
            Ok(in_second(readings, second))
        }))
    }
}

fn read_all(far: &mut FarPool, policy: &str, settings: &Settings) -> Result<Vec<Reading>> {
    let phase = Duration::from_secs(phase_s(settings));
    let changes: Vec<(Duration, LinkShape)> =
        (1..).zip(&PHASES[1..]).map(|(number, shape)| (phase * number, *shape)).collect();
    let workload = Workload {
        link: PHASES[0],
        extent: PATTERN.endless(),
        limit_ms: Some(phase.as_millis() as u64 * PHASES.len() as u64),
        ..Workload::new(PATTERN, 0, policy, settings)
    };
    (0..settings.rounds()).map(|_| far.read_while(&workload, &changes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_held_against_the_link_of_their_phase() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        assert!((link_mb_per_s(&settings, 0) - 117.7).abs() < 1e-9);
        assert!((link_mb_per_s(&settings, 2 * PHASE_S) - 11.77).abs() < 1e-9);
        assert!(link_mb_per_s(&settings, 5 * PHASE_S).abs() < 1e-9);
        let reading =
            |by_second: &[u64]| Reading { by_second: by_second.into(), ..Reading::default() };
        let readings = [reading(&[4_000_000, 2_000_000]), reading(&[2_000_000])];
        assert_eq!(in_second(&readings, 0), [3.0, 2.0, 4.0]);
        assert_eq!(in_second(&readings, 1), [1.0, 0.0, 2.0]);
    }
}
