//! `wan-p`: how long sync-adaptive should wait before it tries again to grow, after a growth that did
//! no good (the paper's figures 11 and 12).

use anyhow::Result;

use super::fixture::{DELAY, FarPool, PATTERN, USEFUL, VALUES, Workload, method};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const P: Parameter = Parameter { name: "p", title: "p", cells: Cells::Plain };
const COUNTS: [u32; 5] = [2, 4, 8, 16, 32];
const QUICK_COUNTS: [u32; 2] = [2, 16];
const DELAYS_MS: [u64; 2] = [0, 10];

pub(super) struct Patience;

/// A pattern that stays as it is, and one that changes.
const PATTERNS: [Pattern; 2] = [Pattern::ShortStride, Pattern::MixedShort];

/// The paper has no added delay; a second line costs little.
fn delays_ms(settings: &Settings) -> &'static [u64] {
    if settings.quick { &DELAYS_MS[..1] } else { &DELAYS_MS }
}

impl Experiment for Patience {
    fn name(&self) -> &'static str {
        "wan-p"
    }

    fn about(&self) -> &'static str {
        "Useful bytes per second of sync-adaptive by its parameter p, the requests between attempts to \
         grow"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} {} mixed-p is in turn 25 MiB front to back, and 50 times 512 KiB with seeks of \
             1.5 MiB. In the paper p changes the speed by less than 10 %.",
            method(),
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATTERN, DELAY, P] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u32] = if settings.quick { &QUICK_COUNTS } else { &COUNTS };
        let mut points = Vec::new();
        for pattern in PATTERNS {
            for delay in delays_ms(settings) {
                points.extend(counts.iter().map(|p| {
                    Point::of([pattern.name().to_owned(), delay.to_string(), p.to_string()])
                }));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let figure = |(pattern, title): (Pattern, &'static str)| Figure {
            file: pattern.name(),
            title,
            x: P.name,
            x_title: "p",
            x_scale: Scale::Powers,
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
        let titles = ["512 KiB, gaps of 3 MiB, by p", "25 MiB, then 50 times 512 KiB, by p"];
        PATTERNS.into_iter().zip(titles).map(figure).collect()
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        Ok(Box::new(move |point| {
            let [pattern, delay, p] = point.cells()?;
            let workload = Workload::of_cells(pattern, delay, "sync-adaptive", &settings)?;
            far.values(&Workload { p: Some(p.parse()?), ..workload })
        }))
    }
}
