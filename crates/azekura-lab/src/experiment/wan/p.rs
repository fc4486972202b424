//! `wan-p`: how long sync-adaptive should wait before it tries again to grow, after a growth that did
//! no good.

use anyhow::Result;

use super::fixture::{DELAY, FarPool, METHOD, USEFUL, VALUES, Workload, values_of};
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
            "{METHOD} The pattern is mixed-p: in turn 25 MiB front to back, and 50 times 512 KiB with \
             seeks of 1.5 MiB. A point reads for about {} s. In the paper p changes the speed by \
             less than 10 %.",
            settings.point_s
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[DELAY, P] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u32] = if settings.quick { &QUICK_COUNTS } else { &COUNTS };
        let at = |delay: &u64| {
            let delay = delay.to_string();
            counts.iter().map(move |p| Point::of([delay.clone(), p.to_string()]))
        };
        delays_ms(settings).iter().flat_map(at).collect()
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let line = |delay: &u64| Line {
            title: format!("{delay} ms"),
            value: USEFUL,
            only: vec![(DELAY.name, delay.to_string())],
        };
        vec![Figure {
            file: "p",
            title: "mixed-p by p",
            x: P.name,
            x_title: "p",
            x_scale: Scale::Powers,
            y_title: "useful MB/s",
            y_scale: Scale::Linear,
            lines: delays_ms(settings).iter().map(line).collect(),
        }]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, limit_ms) = (FarPool::start(settings)?, settings.share_ms(1));
        Ok(Box::new(move |point| {
            let [delay, p] = point.cells()?;
            let (pattern, delay) = (Pattern::MixedShort, delay.parse()?);
            let workload = Workload::new(pattern, delay, "sync-adaptive", limit_ms);
            Ok(values_of(&far.read(Workload { p: Some(p.parse()?), ..workload })?))
        }))
    }
}
