//! `wan-sizes`: the sizes of requests that sync-adaptive comes to, and the best fixed ones, beside those
//! of the paper (its tables 1 to 5).

use std::path::Path;

use anyhow::{Context as _, Result};
use azekura_policy::simulation::published::{DELAYS_MS, TABLES};

use super::fixture::{
    DELAY, FarPool, PATTERN, SIZE_AT, USEFUL, Workload, delays_ms, figure_by_delay, method,
};
use super::pattern::Pattern;
use super::{fixed, policies};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, PAPERS, Parameter, Point, Settings, Source, Value,
};

const MIB: f64 = (1 << 20) as f64;
const WHOSE: Parameter = Parameter { name: "whose", title: "whose", cells: Cells::Plain };
const ADAPTIVE: &str = "adaptive";
const OPTIMAL: &str = "optimal";
const PAPER_ADAPTIVE: &str = "paper-adaptive";
const PAPER_OPTIMAL: &str = "paper-optimal";
const ALL: [&str; 4] = [ADAPTIVE, OPTIMAL, PAPER_ADAPTIVE, PAPER_OPTIMAL];
const VALUES: [Value; 3] = [
    Value { name: "size_mib", title: "size, MiB" },
    Value { name: "powers_off", title: "off the paper's, powers of two" },
    Value { name: USEFUL, title: "useful, MB/s" },
];
/// Tables of a quick run.
const QUICK_TABLES: usize = 2;

pub(super) struct Sizes;

/// The paper's size for a cell, of Adaptive or of Optimal, in bytes.
fn published(pattern: &str, round_trip_ms: u64, is_optimal: bool) -> Option<u64> {
    let table = TABLES.into_iter().find(|table| table.pattern == pattern)?;
    let at = DELAYS_MS.into_iter().position(|delay_ms| delay_ms == round_trip_ms)?;
    Some(if is_optimal { table.optimal_bytes[at] } else { table.adaptive_bytes[at] })
}

/// The title of a line: the paper's go as hollow marks with ours of the same kind.
fn title(whose: &str) -> String {
    match whose.strip_prefix("paper-") {
        Some(kind) => format!("{PAPERS}{kind}"),
        None => whose.to_owned(),
    }
}

/// The patterns of a run.
fn patterns(settings: &Settings) -> Vec<Pattern> {
    let count = if settings.quick { QUICK_TABLES } else { TABLES.len() };
    TABLES.into_iter().take(count).filter_map(|table| Pattern::named(table.pattern)).collect()
}

/// The values of a size that was found.
fn values(pattern: &str, round_trip_ms: u64, whose: &str, found: &[f64]) -> Option<Vec<f64>> {
    let bytes = published(pattern, round_trip_ms, whose == OPTIMAL)? as f64;
    let (size, useful) = (found.get(SIZE_AT)?.max(1.0), found.first()?);
    Some(vec![size / MIB, (size / bytes).log2(), *useful])
}

impl Experiment for Sizes {
    fn name(&self) -> &'static str {
        "wan-sizes"
    }

    fn about(&self) -> &'static str {
        "Sizes of requests that sync-adaptive comes to and the best fixed ones, beside those of its paper"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} {} The size is the one at which most time was spent in the second half; of several \
             runs, that of the middle. The delay of the paper's tables is taken as the round trip that was \
             added. What wan-policies has measured is not measured again, if that was run into the same \
             directory before; Optimal is the best fixed size of wan-fixed, if that was. Hollow marks are the \
             sizes of the paper's tables 1 to 5.",
            method(),
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY, WHOSE] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for pattern in patterns(settings) {
            for delay in delays_ms(settings) {
                points.extend(ALL.map(|whose| {
                    Point::of([pattern.name().into(), delay.to_string(), whose.into()])
                }));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let figure = |pattern: Pattern| {
            let line = |whose: &str| Line {
                title: title(whose),
                value: VALUES[0].name,
                only: vec![
                    (PATTERN.name, pattern.name().to_owned()),
                    (WHOSE.name, whose.to_owned()),
                ],
            };
            let lines = ALL.into_iter().map(line).collect();
            figure_by_delay(pattern, ("MiB", Scale::Powers), lines)
        };
        patterns(settings).into_iter().map(figure).collect()
    }

    fn source(&self, point: &Point, settings: &Settings, dir: &Path) -> Source {
        let Ok([pattern, delay, whose]) = point.cells() else { return Source::Measured };
        let (Some(named), Ok(delay)) = (Pattern::named(pattern), delay.parse()) else {
            return Source::Measured;
        };
        match whose {
            ADAPTIVE => policies::adaptive(dir, named, delay)
                .and_then(|found| values(pattern, delay, whose, &found))
                .map_or(Source::Measured, Source::Known),
            OPTIMAL => fixed::best(dir, settings, named, delay)
                .and_then(|best| values(pattern, delay, whose, &best))
                .map_or(Source::Missing, Source::Known),
            _ => published(pattern, delay, whose == PAPER_OPTIMAL)
                .map_or(Source::Missing, |bytes| Source::Known(vec![bytes as f64 / MIB, 0.0, 0.0])),
        }
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        Ok(Box::new(move |point| {
            let [pattern, delay, whose] = point.cells()?;
            let workload = Workload::of_cells(pattern, delay, "sync-adaptive", &settings)?;
            values(pattern, delay.parse()?, whose, &far.values(&workload)?)
                .context("the paper has no such cell")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_has_thirty_cells() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        assert_eq!(Sizes.points(&settings).len(), 4 * 30);
        assert_eq!(published("stride-256M-768M", 75, true), Some(128 << 20));
        assert_eq!(published("stride-256M-768M", 75, false), Some(256 << 20));
        assert_eq!(published("random-8M", 11, false), None);
        assert_eq!(published("mixed", 10, false), None);
    }

    #[test]
    fn the_papers_sizes_go_with_ours_of_their_kind() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        for figure in Sizes.figures(&settings) {
            let (theirs, ours): (Vec<_>, Vec<_>) =
                figure.lines.iter().partition(|line| Sizes.is_published(line));
            assert_eq!((ours.len(), theirs.len()), (2, 2));
            for (theirs, ours) in theirs.iter().zip(&ours) {
                assert_eq!(theirs.title.trim_start_matches(PAPERS), ours.title);
            }
        }
    }

    #[test]
    fn sizes_are_held_against_their_like() {
        let mut found = vec![50.0; 8];
        found[SIZE_AT] = (512 << 20) as f64;
        let values = |whose| values("sequential", 0, whose, &found).unwrap();
        assert_eq!(values(ADAPTIVE), [512.0, 0.0, 50.0]);
        assert_eq!(values(OPTIMAL), [512.0, 2.0, 50.0]);
        let point = Point::of(["sequential".into(), "10".into(), PAPER_OPTIMAL.into()]);
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        let source = Sizes.source(&point, &settings, Path::new("nowhere/at-all"));
        assert_eq!(source, Source::Known(vec![256.0, 0.0, 0.0]));
    }
}
