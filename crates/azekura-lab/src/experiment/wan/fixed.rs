//! `wan-fixed`: what each fixed size of request reaches, for every pattern and delay. The best of them
//! is what other experiments call optimal.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::fixture::{
    DELAY, FarPool, GOODPUT_MB_PER_S, PATTERN, USEFUL, VALUES, Workload, delays_ms, method,
};
use super::pattern::{Extent, Pattern};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Value,
};
use crate::experiment::results::{self, Row};

const NAME: &str = "wan-fixed";
const SIZE: Parameter =
    Parameter { name: "request_bytes", title: "size of requests", cells: Cells::Bytes };
/// Powers of two from 64 KiB to 512 MiB.
const SHIFTS: std::ops::RangeInclusive<u32> = 16..=29;
const QUICK_SHIFTS: [u32; 2] = [20, 22];
/// There are many points, and a fixed size needs no time to settle: a run has as many turns as take about so
/// long. TCP has then found its window also with the longest round trip.
pub(super) const RUN_S: f64 = 5.0;
/// A run that would take so many times as long with one turn is left out, unless that is no time at all.
const PATIENCE: f64 = 4.0;
const PATIENCE_MIN_S: f64 = 5.0;

pub(super) struct Fixed;

fn sizes(settings: &Settings) -> Vec<u64> {
    let shifts: Vec<u32> = if settings.quick { QUICK_SHIFTS.into() } else { SHIFTS.collect() };
    shifts.into_iter().map(|shift| 1 << shift).collect()
}

/// What reading an extent by requests of one size costs: how many there are, and bytes in all.
fn cost(pattern: Pattern, extent: Extent, size_bytes: u64) -> (u64, u64) {
    let (mut requests, mut bytes) = (0, 0);
    let (mut start, mut end) = (0, 0);
    for region in pattern.regions(extent, 1) {
        let mut at = region.offset;
        let region_end = at + region.bytes;
        if (start..end).contains(&at) {
            at = region_end.min(end);
        }
        if at < region_end {
            let count = (region_end - at).div_ceil(size_bytes);
            start = at + (count - 1) * size_bytes;
            end = extent.file_bytes.min(start + size_bytes);
            requests += count;
            bytes += end - at;
        }
    }
    (requests, bytes)
}

/// About how long a run takes, in seconds.
fn expected_s(pattern: Pattern, extent: Extent, round_trip_ms: u64, size_bytes: u64) -> f64 {
    let (requests, bytes) = cost(pattern, extent, size_bytes);
    requests as f64 * round_trip_ms as f64 / 1e3 + bytes as f64 / 1e6 / GOODPUT_MB_PER_S
}

/// Seconds of a run, of which a point has several.
fn run_s(settings: &Settings) -> f64 {
    settings.point_s / settings.rounds() as f64
}

fn patience_s(settings: &Settings) -> f64 {
    (run_s(settings) * PATIENCE).max(PATIENCE_MIN_S)
}

/// How much of a pattern a run reads by requests of one size; `None` if one turn takes too long.
pub(super) fn extent(
    settings: &Settings,
    pattern: Pattern,
    round_trip_ms: u64,
    size_bytes: u64,
) -> Option<Extent> {
    let whole = pattern.extent(settings);
    let share = run_s(settings) / expected_s(pattern, whole, round_trip_ms, size_bytes);
    if share >= 1.0 {
        return Some(whole);
    }
    let extent = pattern.extent(&Settings { scale: settings.scale * share, ..*settings });
    let takes_s = expected_s(pattern, extent, round_trip_ms, size_bytes);
    (takes_s <= patience_s(settings)).then_some(extent)
}

/// Sizes that do not take too long, and how many do.
fn sizes_in_time(settings: &Settings, pattern: Pattern, round_trip_ms: u64) -> (Vec<u64>, usize) {
    let mut sizes = sizes(settings);
    let all = sizes.len();
    sizes.retain(|bytes| extent(settings, pattern, round_trip_ms, *bytes).is_some());
    let left_out = all - sizes.len();
    (sizes, left_out)
}

/// What was measured for a pattern and delay, out of results beside the directory `dir`.
fn measured(dir: &Path, pattern: Pattern, round_trip_ms: u64) -> Option<Vec<Row>> {
    let mut rows = results::rows(&dir.parent()?.join(NAME), &Fixed)?;
    let delay = round_trip_ms.to_string();
    rows.retain(|row| {
        row.point.cells().is_ok_and(|[a, b, _]| a == pattern.name() && b == delay.as_str())
    });
    Some(rows)
}

/// The values of one size for a pattern and delay, if it was measured.
pub(super) fn of_size(
    dir: &Path,
    pattern: Pattern,
    round_trip_ms: u64,
    size_bytes: u64,
) -> Option<Vec<f64>> {
    let size = size_bytes.to_string();
    let rows = measured(dir, pattern, round_trip_ms)?;
    rows.into_iter().find(|row| row.point.0.last() == Some(&size)).map(|row| row.values)
}

/// The values of the best size for a pattern and delay, out of results beside the directory `dir`;
/// `None` unless all sizes were measured that do not take too long.
pub(super) fn best(
    dir: &Path,
    settings: &Settings,
    pattern: Pattern,
    round_trip_ms: u64,
) -> Option<Vec<f64>> {
    // It may have been run at another scale, and have left out other sizes.
    let settings = &results::settings(&dir.parent()?.join(NAME)).unwrap_or(*settings);
    let all = measured(dir, pattern, round_trip_ms)?;
    let is_whole = sizes_in_time(settings, pattern, round_trip_ms).0.iter().all(|bytes| {
        all.iter().any(|row| row.point.0.last().is_some_and(|cell| *cell == bytes.to_string()))
    });
    let fastest = all.into_iter().max_by(|a, b| a.values[0].total_cmp(&b.values[0]));
    fastest.map(|row| row.values).filter(|_| is_whole)
}

impl Experiment for Fixed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "Useful bytes per second by the size of requests, where that is fixed, for each pattern and \
         delay"
    }

    fn method(&self, settings: &Settings) -> String {
        let left_out: usize = Pattern::chosen(settings)
            .iter()
            .flat_map(|pattern| delays_ms(settings).iter().map(move |delay| (*pattern, *delay)))
            .map(|(pattern, delay)| sizes_in_time(settings, pattern, delay).1)
            .sum();
        format!(
            "{} Requests are all of one size, one at a time (`--read-policy fixed=SIZE`). A run has as many \
             turns as take about {:.0} s, and not more than one of wan-policies. {} Sizes with which one turn \
             would take more than {:.0} s are left out: {left_out} of {}, all of them small sizes at long \
             round trips.",
            method(),
            run_s(settings),
            settings.repetition(),
            patience_s(settings),
            sizes(settings).len() * Pattern::chosen(settings).len() * delays_ms(settings).len(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY, SIZE] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn least_point_s(&self) -> f64 {
        RUN_S * ROUNDS as f64
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for pattern in Pattern::chosen(settings) {
            for delay in delays_ms(settings) {
                let (sizes, _) = sizes_in_time(settings, *pattern, *delay);
                points.extend(sizes.iter().map(|bytes| {
                    Point::of([pattern.name().into(), delay.to_string(), bytes.to_string()])
                }));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let figure = |pattern: &Pattern| Figure {
            file: pattern.name(),
            title: pattern.title(),
            x: SIZE.name,
            x_title: "size of requests (slower runs are left out)",
            x_scale: Scale::Sizes,
            y_title: "useful MB/s",
            y_scale: Scale::Linear,
            lines: delays_ms(settings)
                .iter()
                .map(|delay| Line {
                    title: format!("{delay} ms"),
                    value: USEFUL,
                    only: vec![
                        (PATTERN.name, pattern.name().to_owned()),
                        (DELAY.name, delay.to_string()),
                    ],
                })
                .collect(),
        };
        Pattern::chosen(settings).iter().map(figure).collect()
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        Ok(Box::new(move |point| {
            let [pattern, delay, bytes] = point.cells()?;
            let policy = format!("fixed={bytes}");
            let workload = Workload::of_cells(pattern, delay, &policy, &settings)?;
            let round_trip_ms = workload.link.round_trip_ms;
            let extent = extent(&settings, workload.pattern, round_trip_ms, bytes.parse()?)
                .context("such a run would take too long")?;
            far.values(&Workload { extent, ..workload })
        }))
    }
}

#[cfg(test)]
mod tests {
    use azekura_policy::simulation::published::{DELAYS_MS, TABLES};

    use super::*;
    use crate::chart::Place;
    use crate::experiment::published;

    #[test]
    fn the_best_size_is_found_once_all_are_measured() {
        let settings = Settings { quick: true, scale: 0.1, point_s: 1.0 };
        let base = tempfile::tempdir().unwrap();
        let own = base.path().join("wan-policies");
        let find = |delay_ms| best(&own, &settings, Pattern::Random, delay_ms);
        assert_eq!(find(10), None, "nothing is there");
        let other = base.path().join(NAME);
        std::fs::create_dir(&other).unwrap();
        std::fs::write(
            other.join("results.csv"),
            "pattern,round_trip_ms,request_bytes,useful_mb_per_s,useful_mb_per_s_min,\
             useful_mb_per_s_max,seconds,requests,asked_mb,size_bytes_chosen,round_trip_ms_seen\n\
             random-8M,0,4194304,90.0,90,90,1,1,1,4194304,9\n\
             random-8M,10,1048576,20.0,20,20,1,1,1,1048576,9\n\
             random-8M,10,4194304,70.0,70,71,1,2,3,4194304,9\n\
             sequential,10,4194304,99.0,99,99,1,1,1,4194304,9\n",
        )
        .unwrap();
        assert_eq!(find(10), Some(vec![70.0, 70.0, 71.0, 1.0, 2.0, 3.0, 4_194_304.0, 9.0]));
        assert_eq!(find(0), None, "a size is missing");
        let plain = of_size(&own, Pattern::Random, 10, 1 << 20).unwrap();
        assert!((plain[0] - 20.0).abs() < 1e-9);
        assert_eq!(of_size(&own, Pattern::Random, 0, 1 << 20), None);
    }

    #[test]
    fn the_cost_of_a_size_is_what_its_requests_ask_for() {
        const MIB: u64 = 1 << 20;
        let four = Extent { file_bytes: 14 * MIB, turns: 4 };
        let cost = |size_bytes| cost(Pattern::ShortStride, four, size_bytes);
        assert_eq!(cost(MIB / 2), (4, 2 * MIB));
        assert_eq!(cost(MIB / 4), (8, 2 * MIB));
        // From 0, and from the fourth region to the end of the last turn.
        assert_eq!(cost(8 * MIB), (2, 8 * MIB + 7 * MIB / 2));
        assert_eq!(cost(512 * MIB), (1, 14 * MIB));
    }

    #[test]
    fn a_run_has_whole_turns_for_its_time() {
        let settings = Settings { quick: false, scale: 1.0, point_s: RUN_S * ROUNDS as f64 };
        for (round_trip_ms, size_bytes) in [(0, 1 << 29), (0, 1 << 20), (100, 1 << 20)] {
            for pattern in Pattern::PAPER {
                let extent = extent(&settings, pattern, round_trip_ms, size_bytes);
                let Some(extent) = extent else { continue };
                let takes_s = expected_s(pattern, extent, round_trip_ms, size_bytes);
                assert!(takes_s <= RUN_S * 1.01 || extent.turns == 1, "{pattern:?} {takes_s}");
                assert!(takes_s <= RUN_S * PATIENCE, "{pattern:?} {takes_s}");
            }
        }
    }

    #[test]
    fn what_takes_too_long_is_left_out() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 15.0 };
        let (sizes, left_out) = sizes_in_time(&settings, Pattern::Mixed, 100);
        assert!(left_out > 0 && sizes.len() > 8, "{left_out}");
        assert_eq!(sizes.last(), Some(&(512 << 20)));
        assert_eq!(sizes_in_time(&settings, Pattern::Mixed, 0).1, 0);
        assert_eq!(sizes_in_time(&settings, Pattern::ShortStride, 100).1, 0, "its turns are short");
    }

    #[test]
    fn the_best_sizes_of_the_paper_are_on_the_pictures() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments");
        let values = published::read(&pages.join(NAME)).unwrap();
        for table in TABLES {
            let marks = published::of_figure(&values, table.pattern);
            for (delay_ms, bytes) in DELAYS_MS.into_iter().zip(table.optimal_bytes) {
                let is_marked = marks.iter().any(|published| {
                    published.curve == format!("{delay_ms} ms")
                        && published.places == [Place::X(bytes as f64)]
                });
                assert!(is_marked, "{} at {delay_ms} ms", table.pattern);
            }
        }
    }
}
