//! `wan-overhead`: what the bookkeeping of sync-adaptive costs a request, by the size of requests (the
//! paper's section 5.5). No link and no pool: the policy alone, in this process.

use std::time::Instant;

use anyhow::{Context as _, Result};
use azekura_policy::{AdaptiveParameters, LinkEstimate, Plan, SyncAdaptive};

use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const SIZE: Parameter =
    Parameter { name: "request_bytes", title: "size of requests", cells: Cells::Bytes };
const CALL: Parameter =
    Parameter { name: "call_bytes", title: "calls of the program", cells: Cells::Bytes };
const VALUES: [Value; 3] = [
    Value { name: "per_request_us", title: "a request, us" },
    Value { name: "per_call_us", title: "a call, us" },
    Value { name: "state_bytes", title: "memory, bytes" },
];
const SHIFTS: std::ops::RangeInclusive<u32> = 16..=29;
const QUICK_SHIFTS: std::ops::RangeInclusive<u32> = 16..=18;
const CALLS_BYTES: [u64; 2] = [64 << 10, 1 << 20];
/// A file without an end.
const FILE_BYTES: u64 = 1 << 60;
/// Blocks are as small as they can be: the link of the paper without added delay.
const LINK: LinkEstimate = LinkEstimate::of(117_700_000, 200);
/// So many requests are enough for a figure, or so many calls.
const REQUESTS_MIN: u64 = 16;
const CALLS: u64 = 200_000;

pub(super) struct Overhead;

/// Reads by requests that stay of one size, and gives requests, calls and microseconds.
fn keep_books(size_bytes: u64, call_bytes: u64, calls: u64) -> (u64, u64, f64) {
    let parameters = AdaptiveParameters {
        min_bufsize_bytes: size_bytes,
        max_bufsize_bytes: size_bytes,
        ..AdaptiveParameters::default()
    };
    let mut policy = SyncAdaptive::new(parameters);
    let (mut requests, mut done, mut at) = (0, 0, 0);
    let begun = Instant::now();
    while done < calls || requests < REQUESTS_MIN {
        let end = at + call_bytes;
        while at < end {
            match policy.plan(0, at, end - at, FILE_BYTES, LINK) {
                Plan::Hit { bytes } => {
                    policy.touched(at, bytes);
                    at += bytes;
                }
                Plan::Fetch(range) => {
                    policy.fetched(range, LINK);
                    requests += 1;
                }
                Plan::Nothing => at = end,
            }
        }
        done += 1;
    }
    (requests, done, begun.elapsed().as_secs_f64() * 1e6)
}

impl Experiment for Overhead {
    fn name(&self) -> &'static str {
        "wan-overhead"
    }

    fn about(&self) -> &'static str {
        "What the bookkeeping of sync-adaptive costs, by the size of requests"
    }

    fn method(&self, _settings: &Settings) -> String {
        "The policy alone is driven through a file read front to back, by requests of one size and calls of \
         64 KiB or 1 MiB, without any I/O: what is measured is the choice of the size and the map of used \
         blocks. The paper has 160 us a request, and 576 bytes of map and history; the memory here is all \
         that the policy keeps of a file."
            .to_owned()
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[CALL, SIZE] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let shifts = if settings.quick { QUICK_SHIFTS } else { SHIFTS };
        let at = |call: u64| {
            shifts
                .clone()
                .map(move |shift| Point::of([call.to_string(), (1u64 << shift).to_string()]))
        };
        CALLS_BYTES.into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |(call, title): (u64, &str)| Line {
            title: title.to_owned(),
            value: VALUES[0].name,
            only: vec![(CALL.name, call.to_string())],
        };
        vec![Figure {
            file: "overhead",
            title: "Bookkeeping of a request",
            x: SIZE.name,
            x_title: "size of requests",
            x_scale: Scale::Sizes,
            y_title: "us",
            y_scale: Scale::Powers,
            lines: CALLS_BYTES.into_iter().zip(["calls of 64 KiB", "of 1 MiB"]).map(line).collect(),
        }]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let calls = settings.scaled(CALLS, 1);
        Ok(Box::new(move |point| {
            let [call, size] = point.cells()?;
            let (requests, calls, us) = keep_books(size.parse()?, call.parse()?, calls);
            let bytes = size_of::<SyncAdaptive>();
            let per = |count: u64| (count > 0).then(|| us / count as f64);
            let nothing = "no request was made";
            Ok(vec![per(requests).context(nothing)?, per(calls).context(nothing)?, bytes as f64])
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_many_as_their_size_takes() {
        let (requests, calls, us) = keep_books(1 << 20, 64 << 10, 1600);
        assert_eq!((requests, calls), (100, 1600));
        assert!(us > 0.0);
        assert_eq!(keep_books(1 << 16, 1 << 20, 4).0, 64);
    }
}
