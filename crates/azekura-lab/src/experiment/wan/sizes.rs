//! `wan-sizes`: the sizes of requests that sync-adaptive comes to, beside those of the paper.

use anyhow::{Context as _, Result};

use super::fixture::{
    DELAY, FarPool, METHOD, PATTERN, USEFUL, Workload, delays_ms, figure_by_delay, values_of,
};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PATTERNS: [Pattern; 5] = [
    Pattern::Sequential,
    Pattern::ShortStride,
    Pattern::MiddleStride,
    Pattern::LongStride,
    Pattern::Random,
];
const VALUES: [Value; 5] = [
    Value { name: "chosen_mib", title: "chosen, MiB" },
    Value { name: "paper_adaptive_mib", title: "paper's Adaptive, MiB" },
    Value { name: "paper_optimal_mib", title: "paper's Optimal, MiB" },
    Value { name: "powers_off", title: "off the paper's Adaptive, powers of two" },
    Value { name: USEFUL, title: "useful, MB/s" },
];

/// What the paper's method chose, in bytes, and what was best.
struct Paper {
    adaptive_bytes: u64,
    optimal_bytes: u64,
}

pub(super) struct Sizes;

/// The cell of the paper's table; `None` for what it has not.
fn paper(pattern: Pattern, round_trip_ms: u64) -> Option<Paper> {
    let cell = |adaptive_bytes, optimal_bytes| Some(Paper { adaptive_bytes, optimal_bytes });
    let largest = cell(512 * MIB, 512 * MIB);
    match (pattern, round_trip_ms) {
        (Pattern::Sequential, 0) => cell(512 * MIB, 128 * MIB),
        (Pattern::Sequential, 10) => cell(512 * MIB, 256 * MIB),
        (Pattern::ShortStride, 0) => cell(512 * KIB, MIB),
        (Pattern::MiddleStride, 0) => cell(MIB, MIB),
        (Pattern::ShortStride, 10) | (Pattern::MiddleStride, 10 | 25) => cell(4 * MIB, 4 * MIB),
        (Pattern::Sequential | Pattern::ShortStride, 25 | 50 | 75 | 100)
        | (Pattern::MiddleStride, 50 | 75 | 100) => largest,
        (Pattern::LongStride, 0) => cell(128 * MIB, 128 * MIB),
        (Pattern::LongStride, 10) => cell(128 * MIB, 256 * MIB),
        (Pattern::LongStride, 25) => cell(256 * MIB, 256 * MIB),
        (Pattern::LongStride, 50 | 75 | 100) => cell(256 * MIB, 128 * MIB),
        (Pattern::Random, 0 | 10 | 25) => cell(8 * MIB, 8 * MIB),
        (Pattern::Random, 50 | 75 | 100) => cell(16 * MIB, 8 * MIB),
        _ => None,
    }
}

/// The patterns of a run.
fn patterns(settings: &Settings) -> &'static [Pattern] {
    if settings.quick { &PATTERNS[..2] } else { &PATTERNS }
}

impl Experiment for Sizes {
    fn name(&self) -> &'static str {
        "wan-sizes"
    }

    fn about(&self) -> &'static str {
        "Sizes of requests that sync-adaptive comes to, beside those of its paper"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{METHOD} The size is the one at which most time was spent in the second half of about {} \
             s. The delay of the paper's table is taken as the round trip that was added. From its \
             first size, the method needs 1 GB to come to the largest, which takes 9 s.",
            settings.point_s
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let at = |pattern: &Pattern| {
            let name = pattern.name().to_owned();
            delays_ms(settings)
                .iter()
                .map(move |delay| Point::of([name.clone(), delay.to_string()]))
        };
        patterns(settings).iter().flat_map(at).collect()
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let figure = |pattern: &Pattern| {
            let line = |(title, value): (&str, Value)| Line {
                title: title.to_owned(),
                value: value.name,
                only: vec![(PATTERN.name, pattern.name().to_owned())],
            };
            let titles = ["chosen", "paper's Adaptive", "paper's Optimal"];
            let lines = titles.into_iter().zip(VALUES).map(line).collect();
            figure_by_delay(*pattern, ("MiB", Scale::Powers), lines)
        };
        patterns(settings).iter().map(figure).collect()
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, limit_ms) = (FarPool::start(settings)?, settings.share_ms(1));
        Ok(Box::new(move |point| {
            let [pattern, delay] = point.cells()?;
            let workload = Workload::of_cells(pattern, delay, "sync-adaptive", limit_ms)?;
            let paper = paper(workload.pattern, workload.round_trip_ms)
                .context("the paper has no such cell")?;
            let reading = far.read(workload)?;
            let mib = |bytes: u64| bytes as f64 / MIB as f64;
            let times = reading.settled_bytes.max(1) as f64 / paper.adaptive_bytes as f64;
            Ok(vec![
                mib(reading.settled_bytes),
                mib(paper.adaptive_bytes),
                mib(paper.optimal_bytes),
                times.log2(),
                values_of(&reading)[0],
            ])
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_has_thirty_cells() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        let mut cells = 0;
        for pattern in Pattern::ALL {
            for delay in delays_ms(&settings) {
                let Some(cell) = paper(pattern, *delay) else { continue };
                assert!(PATTERNS.contains(&pattern));
                for bytes in [cell.adaptive_bytes, cell.optimal_bytes] {
                    assert!(bytes.is_power_of_two() && (512 * KIB..=512 * MIB).contains(&bytes));
                }
                cells += 1;
            }
        }
        assert_eq!(cells, 30);
        assert_eq!(Sizes.points(&settings).len(), 30);
        assert_eq!(paper(Pattern::LongStride, 75).unwrap().optimal_bytes, 128 * MIB);
        assert!(paper(Pattern::Random, 11).is_none());
    }
}
