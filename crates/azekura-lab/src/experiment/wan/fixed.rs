//! `wan-fixed`: what each fixed size of request reaches, for every pattern and delay. The best of them
//! is what other experiments call optimal.

use std::path::Path;

use anyhow::Result;

use super::fixture::{
    DELAY, FarPool, METHOD, PATTERN, USEFUL, VALUES, Workload, delays_ms, values_of,
};
use super::pattern::Pattern;
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
/// Points of this experiment take so much less time than others: a fixed size needs no time to settle,
/// and there are many.
const HASTE: usize = 4;

pub(super) struct Fixed;

fn sizes(settings: &Settings) -> Vec<u64> {
    let shifts: Vec<u32> = if settings.quick { QUICK_SHIFTS.into() } else { SHIFTS.collect() };
    shifts.into_iter().map(|shift| 1 << shift).collect()
}

/// The values of the best size for a pattern and delay, out of results beside the directory `dir`;
/// `None` unless all sizes were measured.
pub(super) fn best(
    dir: &Path,
    settings: &Settings,
    pattern: Pattern,
    round_trip_ms: u64,
) -> Option<Vec<f64>> {
    let rows = results::rows(&dir.parent()?.join(NAME), &Fixed)?;
    let delay = round_trip_ms.to_string();
    let fits = |point: &Point| {
        point.cells().is_ok_and(|[a, b, _]| a == pattern.name() && b == delay.as_str())
    };
    let all: Vec<_> = rows.into_iter().filter(|row| fits(&row.point)).collect();
    let is_whole = sizes(settings).iter().all(|bytes| {
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
        format!(
            "{METHOD} Requests are all of one size, one at a time (`--read-policy fixed=SIZE`). A point \
             reads for about {:.2} s, and for one whole request at least.",
            settings.share_ms(HASTE) as f64 / 1000.0
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY, SIZE] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let sizes = sizes(settings);
        let mut points = Vec::new();
        for pattern in Pattern::chosen(settings) {
            for delay in delays_ms(settings) {
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
            title: pattern.name(),
            x: SIZE.name,
            x_title: "size of requests",
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
        let (mut far, limit_ms) = (FarPool::start(settings)?, settings.share_ms(HASTE));
        Ok(Box::new(move |point| {
            let [pattern, delay, bytes] = point.cells()?;
            let policy = format!("fixed={bytes}");
            Ok(values_of(&far.read(Workload::of_cells(pattern, delay, &policy, limit_ms)?)?))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_size_is_found_once_all_are_measured() {
        let settings = Settings { quick: true, scale: 1.0, point_s: 1.0 };
        let base = tempfile::tempdir().unwrap();
        let own = base.path().join("wan-policies");
        let find = |delay_ms| best(&own, &settings, Pattern::Random, delay_ms);
        assert_eq!(find(10), None, "nothing is there");
        let other = base.path().join(NAME);
        std::fs::create_dir(&other).unwrap();
        std::fs::write(
            other.join("results.csv"),
            "pattern,round_trip_ms,request_bytes,useful_mb_per_s,seconds,requests,asked_mb,\
             size_bytes_chosen,round_trip_ms_seen\n\
             random-8M,0,4194304,90.0,1,1,1,4194304,9\n\
             random-8M,10,262144,20.0,1,1,1,262144,9\n\
             random-8M,10,4194304,70.0,1,2,3,4194304,9\n\
             sequential,10,4194304,99.0,1,1,1,4194304,9\n",
        )
        .unwrap();
        assert_eq!(find(10), Some(vec![70.0, 1.0, 2.0, 3.0, 4_194_304.0, 9.0]));
        assert_eq!(find(0), None, "a size is missing");
    }
}
