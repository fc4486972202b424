//! `far-engines`: programs that look at many files or make them, on a far pool of one engine and of several, over which
//! the names of each directory and the files are spread.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::door::{DOOR, Door};
use super::fixture::{FarHosts, TARGETS};
use super::outcome::{Outcome, link_mb, spread_s};
use super::program::{PROGRAM, Program};
use super::run::{End, LIMIT_S, limit};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Source, Value,
};
use crate::experiment::wan::GOODPUT_MB_PER_S;

/// The round trip that the link adds, in milliseconds.
const ROUND_TRIP_MS: u64 = 50;
const ENGINES: Parameter = Parameter { name: "engines", title: "engines", cells: Cells::Plain };
const ENGINE_COUNTS: [u16; 3] = [1, 2, TARGETS];
const PROGRAMS: [&str; 4] = ["find", "tar-c", "tar-x", "cp-r"];
const DOORS: [Door; 2] = [Door::Preload, Door::Mount];
const SECONDS: &str = "seconds";
const LIMIT: &str = "limit_s";
const VALUES: [Value; 5] = [
    Value { name: SECONDS, title: "seconds" },
    Value { name: "seconds_min", title: "least" },
    Value { name: "seconds_max", title: "most" },
    Value { name: LIMIT, title: "the link allows, s" },
    Value { name: "link_mb", title: "over the link, MB" },
];

/// The experiment.
pub(super) struct FarEngines;

/// The hosts with a pool of so many engines, made anew when there are to be others.
struct Meter {
    settings: Settings,
    hosts: Option<(u16, FarHosts)>,
}

impl Meter {
    fn hosts(&mut self, engines: u16) -> Result<&mut FarHosts> {
        if self.hosts.as_ref().is_none_or(|(count, _)| *count != engines) {
            // The one before has the names of its hosts to itself.
            self.hosts = None;
            self.hosts = Some((engines, FarHosts::start(&self.settings, engines)?));
        }
        let (_, hosts) = self.hosts.as_mut().context("the hosts are there")?;
        Ok(hosts)
    }

    fn measure(&mut self, point: &Point) -> Result<Vec<f64>> {
        let [program, engines, door] = point.cells()?;
        let program = Program::named(program).context("no such program")?;
        let door = Door::named(door).context("no such door")?;
        let (limit, rounds) = (limit(&self.settings), self.settings.rounds());
        let hosts = self.hosts(engines.parse()?)?;
        let runs = hosts.measure_rounds(program, (door, ROUND_TRIP_MS), limit, rounds)?;
        if runs.iter().any(|run| run.end == End::CutShort) {
            bail!("{} did not end within {} s", program.name, limit.as_secs());
        }
        Ok(values_of(&runs, limit, hosts.useful_bytes(program)?))
    }
}

fn values_of(runs: &[Outcome], limit: Duration, useful_bytes: u64) -> Vec<f64> {
    let [mean_s, least_s, most_s] = spread_s(runs, limit);
    let allowed_s = ROUND_TRIP_MS as f64 / 1000.0 + useful_bytes as f64 / 1e6 / GOODPUT_MB_PER_S;
    vec![mean_s, least_s, most_s, allowed_s, link_mb(runs)]
}

impl Experiment for FarEngines {
    fn name(&self) -> &'static str {
        "far-engines"
    }

    fn about(&self) -> &'static str {
        "Seconds of find, tar and cp on a far pool, by how many engines it has"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "As in far-programs: a program runs on one host, and a pool in memory is on another, over a link of 1 \
             Gbit/s with a round trip of {ROUND_TRIP_MS} ms. The pool has {TARGETS} targets, of one engine or of several \
             engines on that host, which reach each other there. *preload* is `azekura run --via preload`, *mount* is \
             `azekura mount`. Every run begins cold; the time of a program that writes on a mount ends when the mount is \
             gone. *The link allows* one round trip and the useful bytes at {GOODPUT_MB_PER_S} MB/s. {} MB are 10^6 \
             bytes.",
            settings.repetition()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PROGRAM, ENGINES, DOOR] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn least_point_s(&self) -> f64 {
        LIMIT_S
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts = if settings.quick { &ENGINE_COUNTS[1..2] } else { &ENGINE_COUNTS[..] };
        let mut points = Vec::new();
        for engines in counts {
            for program in PROGRAMS {
                let at = |door: Door| {
                    Point::of([program.to_owned(), engines.to_string(), door.name().into()])
                };
                points.extend(DOORS.map(at));
            }
        }
        points
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |program: &str, (title, value): (&str, &'static str), door: Door| Line {
            title: title.to_owned(),
            value,
            only: vec![(PROGRAM.name, program.to_owned()), (DOOR.name, door.name().into())],
        };
        let figure = |program: &'static str| Figure {
            file: program,
            title: Program::named(program).map_or(program, |program| program.title),
            x: ENGINES.name,
            x_title: "engines",
            x_scale: Scale::Linear,
            y_title: "seconds",
            y_scale: Scale::Linear,
            lines: DOORS
                .map(|door| line(program, (door.name(), SECONDS), door))
                .into_iter()
                .chain([line(program, ("what the link allows", LIMIT), Door::Preload)])
                .collect(),
        };
        PROGRAMS.map(figure).into()
    }

    fn source(&self, point: &Point, _settings: &Settings, _dir: &Path) -> Source {
        let lacks = |program: &str, door: &str| {
            Program::named(program)?.lacks().or_else(|| Door::named(door)?.lacks())
        };
        match point.cells() {
            Ok([program, _, door]) if lacks(program, door).is_some() => Source::Missing,
            _ => Source::Measured,
        }
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let mut meter = Meter { settings: *settings, hosts: None };
        Ok(Box::new(move |point| meter.measure(point)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_name_what_there_is_and_values_go_with_their_columns() {
        for quick in [true, false] {
            let settings = Settings { quick, scale: 1.0, point_s: LIMIT_S };
            for point in FarEngines.points(&settings) {
                let [program, engines, door] = point.cells().unwrap();
                assert!(Program::named(program).is_some() && Door::named(door).is_some());
                assert_eq!(TARGETS % engines.parse::<u16>().unwrap(), 0, "as many targets each");
            }
        }
        let run = |seconds, link_bytes| Outcome { end: End::Done(seconds), link_bytes };
        let runs = [run(1.0, 1_000_000), run(3.0, 3_000_000)];
        let values = values_of(&runs, Duration::from_secs(9), 11_770_000);
        assert_eq!(values.len(), VALUES.len());
        for (value, wanted) in values.iter().zip([2.0, 1.0, 3.0, 0.15, 2.0]) {
            assert!((value - wanted).abs() < 1e-9, "{values:?}");
        }
    }
}
