//! `wan-trace`: size and utilisation of each request of one reading by sync-adaptive, whose pattern
//! shifts from sequential to sparse (the paper's figure 10).

use anyhow::{Context as _, Result};
use azekura_posix::TraceRecord;

use super::fixture::{FarPool, Workload, method};
use super::pattern::Pattern;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const REQUEST: Parameter = Parameter { name: "request", title: "request", cells: Cells::Plain };
const VALUES: [Value; 5] = [
    Value { name: "seconds", title: "seconds" },
    Value { name: "size_bytes", title: "size, bytes" },
    Value { name: "asked_bytes", title: "asked for, bytes" },
    Value { name: "used_percent", title: "used of it, %" },
    Value { name: "round_trip_ms_seen", title: "round trip as the client saw it, ms" },
];
const REQUESTS: u64 = 120;
const QUICK_REQUESTS: u64 = 6;
/// The round trip, in milliseconds. With more, holes of 1 MiB are cheaper to read than to leave out.
const DELAY_MS: u64 = 0;

pub(super) struct Shifting;

fn request_count(settings: &Settings) -> u64 {
    if settings.quick { QUICK_REQUESTS } else { REQUESTS }
}

/// The values of a request.
fn values_of(requests: &[TraceRecord], number: usize) -> Result<Vec<f64>> {
    let pair = requests
        .get(number.saturating_sub(1)..=number)
        .context("the reading ended before this request: use a larger --scale")?;
    let used = pair[1].utilisation.context("the trace says nothing of its use")?;
    Ok(vec![
        pair[0].us.saturating_sub(requests[0].us) as f64 / 1e6,
        pair[0].window_bytes as f64,
        pair[0].bytes as f64,
        used * 100.0,
        pair[1].round_trip_us as f64 / 1000.0,
    ])
}

impl Experiment for Shifting {
    fn name(&self) -> &'static str {
        "wan-trace"
    }

    fn about(&self) -> &'static str {
        "Size and utilisation of each request of sync-adaptive, when the pattern shifts"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{} The pattern is shift: {} MiB front to back, then 61 KiB with seeks of 1 MiB. The \
             added round trip is {DELAY_MS} ms. All points are requests of one reading.",
            method(),
            settings.scaled(1024, 1)
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[REQUEST] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        (1..=request_count(settings)).map(|number| Point::of([number.to_string()])).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, y_title, y_scale, value: Value| Figure {
            file,
            title,
            x: REQUEST.name,
            x_title: "request",
            x_scale: Scale::Linear,
            y_title,
            y_scale,
            lines: vec![Line {
                title: "sync-adaptive".to_owned(),
                value: value.name,
                only: Vec::new(),
            }],
        };
        vec![
            figure("size", "Size of requests", "size", Scale::Sizes, VALUES[1]),
            figure("utilisation", "Utilisation of requests", "%", Scale::Linear, VALUES[3]),
        ]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut far, settings) = (FarPool::start(settings)?, *settings);
        // One more than is shown: each says how much of the one before was used.
        let requests_max = Some(request_count(&settings) + 1);
        let mut read: Option<Vec<TraceRecord>> = None;
        Ok(Box::new(move |point| {
            let [number] = point.cells()?;
            let number: usize = number.parse()?;
            let requests = match &mut read {
                Some(requests) => requests,
                none => {
                    let (pattern, policy) = (Pattern::Shift, "sync-adaptive");
                    let workload = Workload::new(pattern, DELAY_MS, policy, &settings);
                    far.read(&Workload { requests_max, ..workload })?;
                    none.insert(far.last_requests()?)
                }
            };
            values_of(requests, number)
        }))
    }
}
