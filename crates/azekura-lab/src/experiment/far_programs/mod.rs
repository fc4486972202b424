//! `far-programs`: programs that people run, on a pool that is far away, beside sshfs and rclone
//! over the same link and beside what the link allows; and `far-engines`, some of them on pools of several engines. Need
//! root.

mod door;
mod engines;
mod fixture;
mod installed;
mod material;
mod mounted;
mod outcome;
mod program;
mod run;
mod sftp;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura::report::format_rate;

use self::door::{DOOR, Door};
use self::engines::FarEngines;
use self::fixture::FarHosts;
use self::outcome::{Outcome, link_mb, spread_s};
use self::program::{PROGRAM, PROGRAMS, Program};
use self::run::{End, LIMIT_S, limit};
use super::frame::{Experiment, Figure, Line, Measure, Parameter, Point, Settings, Source, Value};
use super::wan::{DELAY, GOODPUT_MB_PER_S};
use crate::chart::Scale;

/// Round trips that the link adds, in milliseconds. The near run comes first: the others are held
/// against it.
const DELAYS_MS: [u64; 4] = [0, 10, 50, 100];
const QUICK_DELAYS_MS: [u64; 2] = [0, 10];
const SECONDS: &str = "seconds";
const LIMIT: &str = "limit_s";
const ROUND_TRIPS: &str = "round_trips";
const VALUES: [Value; 8] = [
    Value { name: SECONDS, title: "seconds" },
    Value { name: "seconds_min", title: "least" },
    Value { name: "seconds_max", title: "most" },
    Value { name: ROUND_TRIPS, title: "round trips" },
    Value { name: LIMIT, title: "the link allows, s" },
    Value { name: "link_mb", title: "over the link, MB" },
    Value { name: "useful_mb", title: "useful, MB" },
    Value { name: CUT_SHORT, title: "runs that were ended" },
];
const CUT_SHORT: &str = "runs_cut_short";
/// Where the runs that were ended stand among the values.
const CUT_SHORT_AT: usize = 7;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 2] {
    [Box::new(FarPrograms), Box::new(FarEngines)]
}

struct FarPrograms;

fn delays_ms(settings: &Settings) -> &'static [u64] {
    if settings.quick { &QUICK_DELAYS_MS } else { &DELAYS_MS }
}

/// What a point is about.
#[derive(Clone, Copy)]
struct Subject {
    program: &'static Program,
    door: Door,
    round_trip_ms: u64,
}

impl Subject {
    fn of(point: &Point) -> Result<Self> {
        let [program, round_trip_ms, door] = point.cells()?;
        Ok(Self {
            program: Program::named(program).context("no such program")?,
            door: Door::named(door).context("no such door")?,
            round_trip_ms: round_trip_ms.parse()?,
        })
    }

    /// What it takes that this machine has not.
    fn lacks(self) -> Option<&'static str> {
        self.program.lacks().or_else(|| self.door.lacks())
    }
}

/// Runs of a point as values. `near_s` is what the same takes where the link adds nothing.
fn values_of(
    runs: &[Outcome],
    (limit, near_s): (Duration, f64),
    (round_trip_ms, useful_bytes): (u64, u64),
) -> Vec<f64> {
    let [mean_s, least_s, most_s] = spread_s(runs, limit);
    let delay_s = round_trip_ms as f64 / 1000.0;
    let round_trips = if round_trip_ms == 0 { 0.0 } else { ((mean_s - near_s) / delay_s).max(0.0) };
    let useful_mb = useful_bytes as f64 / 1e6;
    vec![
        mean_s,
        least_s,
        most_s,
        round_trips,
        delay_s + useful_mb / GOODPUT_MB_PER_S,
        link_mb(runs),
        useful_mb,
        runs.iter().filter(|run| run.end == End::CutShort).count() as f64,
    ]
}

/// What measures points, and what it has to remember.
struct Meter {
    hosts: FarHosts,
    settings: Settings,
    /// Seconds of programs through doors, without a round trip.
    near_s: HashMap<(&'static str, &'static str), f64>,
}

impl Meter {
    fn measure(&mut self, subject: Subject) -> Result<Vec<f64>> {
        let Subject { program, door, round_trip_ms } = subject;
        let (limit, key) = (limit(&self.settings), (program.name, door.name()));
        // A point of another sitting does not tell; one run does.
        if round_trip_ms > 0 && !self.near_s.contains_key(&key) {
            let near = self.hosts.measure(program, (door, 0), limit)?;
            self.near_s.insert(key, near.end.seconds(limit));
        }
        let (way, rounds) = ((door, round_trip_ms), self.settings.rounds());
        let runs = self.hosts.measure_rounds(program, way, limit, rounds)?;
        let [mean_s, ..] = spread_s(&runs, limit);
        let near_s = *self.near_s.entry(key).or_insert(mean_s);
        let useful_bytes = self.hosts.useful_bytes(program)?;
        Ok(values_of(&runs, (limit, near_s), (round_trip_ms, useful_bytes)))
    }
}

/// What is not there on this machine, as the end of a paragraph.
fn left_out() -> String {
    let programs = PROGRAMS.iter().filter_map(|program| Some((program.name, program.lacks()?)));
    let doors = Door::ALL.into_iter().filter_map(|door| Some((door.name(), door.lacks()?)));
    let missing: Vec<String> = programs
        .chain(doors)
        .map(|(name, lacks)| format!("*{name}* is left out: this machine has no {lacks}."))
        .collect();
    missing.join(" ")
}

impl Experiment for FarPrograms {
    fn name(&self) -> &'static str {
        "far-programs"
    }

    fn about(&self) -> &'static str {
        "Seconds of find, tar, git, make and others on files that are far away, by every door"
    }

    fn method(&self, settings: &Settings) -> String {
        let text = format!(
            "A program runs on one host, and its files lie on another, over a link of 1 Gbit/s \
             made by `azekura-lab netlab`, to which a round trip is added (half of it in each \
             direction). *preload* is `azekura run --via preload`, *run* is `azekura run`, *mount* is `azekura mount`, *mount-listed* \
             the same with `--far-names listed`, of a pool with one engine in memory; *sshfs* and \
             *rclone* (`rclone mount` by sftp, with its full cache) reach the same files in memory by the far host's sshd. Every run begins cold: \
             with a mount, a process and a home directory of its own; the files are not cached on \
             this side. A mount is there before the time begins, and has been asked for its root \
             once; by preload and run another program has asked for that, and the program connects, and \
             is given its mount, within its time. The time of a program that writes ends when its mount, which has to send \
             all of it, is gone again. A program is ended after {:.0} s; what is told of it then \
             is a bound (\"over\"). *Round trips* are what a run takes longer than the same \
             without a round trip, over the round trip. *The link allows* one round trip and the \
             useful bytes at {GOODPUT_MB_PER_S} MB/s; useful are the contents of the files that \
             are read or written, once, and neither names, attributes nor what a compiler writes. \
             *Over the link* is what passed it in both directions, with all framing. {} No \
             further run begins when those of a point have taken {:.0} s. MB are 10^6 bytes. {}",
            limit(settings).as_secs_f64(),
            settings.repetition(),
            limit(settings).as_secs_f64(),
            left_out(),
        );
        text.trim_end().to_owned()
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PROGRAM, DELAY, DOOR] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn least_point_s(&self) -> f64 {
        LIMIT_S
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for program in PROGRAMS {
            for delay in delays_ms(settings) {
                let at = |door: Door| {
                    Point::of([program.name.into(), delay.to_string(), door.name().into()])
                };
                points.extend(Door::ALL.map(at));
            }
        }
        points
    }

    fn words(&self, point: &Point, value: &str, values: &[f64]) -> Option<String> {
        let is_near = point.0.get(1).is_some_and(|delay| delay == "0");
        let was_ended = values.get(CUT_SHORT_AT).is_some_and(|runs| *runs > 0.0);
        let figure = VALUES.iter().position(|one| one.name == value).and_then(|at| values.get(at));
        match value {
            ROUND_TRIPS if is_near => Some("-".to_owned()),
            SECONDS | ROUND_TRIPS if was_ended => Some(format!("over {}", format_rate(*figure?))),
            _ => None,
        }
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |program: &Program, (title, value): (&str, &'static str), door: Door| Line {
            title: title.to_owned(),
            value,
            only: vec![(PROGRAM.name, program.name.into()), (DOOR.name, door.name().into())],
        };
        let lines = |program: &Program| {
            let doors = Door::ALL.map(|door| line(program, (door.name(), SECONDS), door));
            let allowed = line(program, ("what the link allows", LIMIT), Door::Preload);
            doors.into_iter().chain([allowed]).collect()
        };
        let figure = |program: &'static Program| Figure {
            file: program.name,
            title: program.title,
            x: DELAY.name,
            x_title: "added round trip, ms",
            x_scale: Scale::Linear,
            y_title: "seconds",
            y_scale: Scale::Powers,
            lines: lines(program),
        };
        PROGRAMS.iter().map(figure).collect()
    }

    fn source(&self, point: &Point, _settings: &Settings, _dir: &Path) -> Source {
        match Subject::of(point).map(Subject::lacks) {
            Ok(Some(_)) => Source::Missing,
            _ => Source::Measured,
        }
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let hosts = FarHosts::start(settings, 1)?;
        let mut meter = Meter { hosts, settings: *settings, near_s: HashMap::new() };
        Ok(Box::new(move |point| meter.measure(Subject::of(point)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(program: &str, delay: &str, door: Door) -> Point {
        Point::of([program.into(), delay.into(), door.name().into()])
    }

    #[test]
    fn values_go_with_their_columns() {
        let done = |seconds| Outcome { end: End::Done(seconds), link_bytes: 3_000_000 };
        let values = values_of(&[done(1.0), done(3.0)], (SECOND * 9, 0.5), (50, 2_354_000));
        let wanted = [2.0, 1.0, 3.0, 30.0, 0.07, 3.0, 2.354, 0.0];
        assert_eq!(values.len(), VALUES.len());
        for (value, wanted) in values.iter().zip(wanted) {
            assert!((value - wanted).abs() < 1e-9, "{values:?}");
        }
        assert_eq!(VALUES[CUT_SHORT_AT].name, CUT_SHORT);
        assert_eq!(values_of(&[], (SECOND, 0.0), (0, 0)).len(), VALUES.len());
    }

    #[test]
    fn a_run_that_was_ended_is_told_as_a_bound() {
        let ended = Outcome { end: End::CutShort, link_bytes: 1 };
        let values = values_of(&[ended], (SECOND * 9, 1.0), (100, 0));
        let far = at("find", "100", Door::Mount);
        let words = |value| FarPrograms.words(&far, value, &values);
        assert_eq!(words(SECONDS), Some("over 9.00".to_owned()));
        assert_eq!(words(ROUND_TRIPS), Some("over 80.0".to_owned()));
        assert_eq!(words(LIMIT), None);
        let near = at("find", "0", Door::Mount);
        assert_eq!(FarPrograms.words(&near, ROUND_TRIPS, &[0.0; 8]), Some("-".to_owned()));
        assert_eq!(FarPrograms.words(&near, SECONDS, &[0.0; 8]), None);
    }

    #[test]
    fn points_name_what_there_is() {
        for quick in [true, false] {
            let settings = Settings { quick, scale: 1.0, point_s: LIMIT_S };
            let points = FarPrograms.points(&settings);
            assert!(points.iter().all(|point| Subject::of(point).is_ok()));
        }
        assert!(Subject::of(&at("nosuch", "0", Door::Mount)).is_err());
        assert!(Subject::of(&at("find", "x", Door::Mount)).is_err());
    }
}
