//! `wan-fixed`: what each fixed size of request reaches, for every pattern and delay. The best of them
//! is what other experiments call optimal.

use std::path::Path;

use anyhow::Result;

use super::fixture::{
    DELAY, FarPool, GOODPUT_MB_PER_S, PATTERN, USEFUL, VALUES, Workload, delays_ms, method,
};
use super::pattern::{Extent, Pattern};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};
use crate::experiment::results;

const NAME: &str = "wan-fixed";
const SIZE: Parameter =
    Parameter { name: "request_bytes", title: "size of requests", cells: Cells::Bytes };
/// Powers of two from 64 KiB to 512 MiB.
const SHIFTS: std::ops::RangeInclusive<u32> = 16..=29;
const QUICK_SHIFTS: [u32; 2] = [18, 22];
/// There are many points, and a fixed size needs no time to settle: a run has this share of the turns.
const SHARE: f64 = 0.25;
/// A run that would take so many times the seconds of a point is left out.
const PATIENCE: f64 = 10.0;
const PATIENCE_MIN_S: f64 = 10.0;

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

/// The settings of a run.
fn short(settings: &Settings) -> Settings {
    Settings { scale: settings.scale * SHARE, ..*settings }
}

/// About how long a run takes, in seconds.
fn expected_s(settings: &Settings, pattern: Pattern, round_trip_ms: u64, size_bytes: u64) -> f64 {
    let (requests, bytes) = cost(pattern, pattern.extent(&short(settings)), size_bytes);
    requests as f64 * round_trip_ms as f64 / 1e3 + bytes as f64 / 1e6 / GOODPUT_MB_PER_S
}

fn patience_s(settings: &Settings) -> f64 {
    (settings.point_s * PATIENCE).max(PATIENCE_MIN_S)
}

/// Sizes that do not take too long, and how many do.
fn sizes_in_time(settings: &Settings, pattern: Pattern, round_trip_ms: u64) -> (Vec<u64>, usize) {
    let mut sizes = sizes(settings);
    let all = sizes.len();
    sizes.retain(|bytes| {
        expected_s(settings, pattern, round_trip_ms, *bytes) <= patience_s(settings)
    });
    let left_out = all - sizes.len();
    (sizes, left_out)
}

/// The values of the best size for a pattern and delay, out of results beside the directory `dir`;
/// `None` unless all sizes were measured that do not take too long.
pub(super) fn best(
    dir: &Path,
    settings: &Settings,
    pattern: Pattern,
    round_trip_ms: u64,
) -> Option<Vec<f64>> {
    let dir = dir.parent()?.join(NAME);
    let rows = results::rows(&dir, &Fixed)?;
    // It may have been run at another scale, and have left out other sizes.
    let settings = &results::settings(&dir).unwrap_or(*settings);
    let delay = round_trip_ms.to_string();
    let fits = |point: &Point| {
        point.cells().is_ok_and(|[a, b, _]| a == pattern.name() && b == delay.as_str())
    };
    let all: Vec<_> = rows.into_iter().filter(|row| fits(&row.point)).collect();
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
            "{} Requests are all of one size, one at a time (`--read-policy fixed=SIZE`). A run \
             has a quarter of the turns of wan-policies. {} Sizes with which a run would take more than {:.0} s are left out: {left_out} of {}, all of them \
             small sizes at long round trips.",
            method(),
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
        let (mut far, settings) = (FarPool::start(settings)?, short(settings));
        Ok(Box::new(move |point| {
            let [pattern, delay, bytes] = point.cells()?;
            let policy = format!("fixed={bytes}");
            far.values(&Workload::of_cells(pattern, delay, &policy, &settings)?)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
             random-8M,10,262144,20.0,20,20,1,1,1,262144,9\n\
             random-8M,10,4194304,70.0,70,71,1,2,3,4194304,9\n\
             sequential,10,4194304,99.0,99,99,1,1,1,4194304,9\n",
        )
        .unwrap();
        assert_eq!(find(10), Some(vec![70.0, 70.0, 71.0, 1.0, 2.0, 3.0, 4_194_304.0, 9.0]));
        assert_eq!(find(0), None, "a size is missing");
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
    fn what_takes_too_long_is_left_out() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 6.0 };
        let (sizes, left_out) = sizes_in_time(&settings, Pattern::ShortStride, 100);
        assert!(left_out > 0 && sizes.len() > 8, "{left_out}");
        assert_eq!(sizes.last(), Some(&(512 << 20)));
        assert_eq!(sizes_in_time(&settings, Pattern::ShortStride, 0).1, 0);
    }
}
