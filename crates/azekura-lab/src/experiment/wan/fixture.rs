//! What all wan experiments stand on: two hosts with a link between them, an engine in one and a
//! reading program in the other. Owns how a point is measured, and the columns that it gives.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura_netlab::{Change, Lab, Topology};
use azekura_posix::TraceRecord;
use azekura_proto::pool_map::Address;
use clap::ValueEnum as _;

use super::pattern::{Extent, Made, Pattern};
use super::reader::{READER_COMMAND, Reading, Task, path_of};
use crate::chart::Scale;
use crate::experiment::frame::{Cells, Figure, Line, Parameter, Settings, Value};
use crate::experiment::scratch_pool::{EngineProcess, EngineProcesses};

/// Round trips that the link adds, in milliseconds.
const DELAYS_MS: [u64; 6] = [0, 10, 25, 50, 75, 100];
const QUICK_DELAYS_MS: [u64; 2] = [0, 10];
/// What TCP can carry over the link of 1 Gbit/s at most, in MB/s (10^6 bytes).
pub(crate) const GOODPUT_MB_PER_S: f64 = 117.7;
const GIGABIT: u64 = 1000;

const TARGETS: u16 = 4;
const CLIENT: &str = "client";
const PORT: u16 = 7070;
/// Where the system says which congestion controls it gives to anybody.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

pub(super) const PATTERN: Parameter =
    Parameter { name: "pattern", title: "pattern", cells: Cells::Plain };
pub(crate) const DELAY: Parameter =
    Parameter { name: "round_trip_ms", title: "round trip, ms", cells: Cells::Plain };
pub(super) const POLICY: Parameter =
    Parameter { name: "policy", title: "policy", cells: Cells::Plain };

/// Name of the column of useful bytes per second.
pub(super) const USEFUL: &str = "useful_mb_per_s";
/// Names of the columns of its extremes.
pub(super) const USEFUL_RANGE: [&str; 2] = ["useful_mb_per_s_min", "useful_mb_per_s_max"];
/// The columns of a point.
pub(super) const VALUES: [Value; 8] = [
    Value { name: USEFUL, title: "useful, MB/s" },
    Value { name: USEFUL_RANGE[0], title: "least" },
    Value { name: USEFUL_RANGE[1], title: "most" },
    Value { name: "seconds", title: "seconds" },
    Value { name: "requests", title: "requests" },
    Value { name: "asked_mb", title: "asked for, MB" },
    Value { name: SIZE, title: "size at the end, bytes" },
    Value { name: "round_trip_ms_seen", title: "round trip as the client saw it, ms" },
];
/// Name of the column of the size that a reading comes to.
pub(super) const SIZE: &str = "size_bytes_chosen";
/// Where it stands among the values.
pub(super) const SIZE_AT: usize = 6;

/// The round trips of a run, in milliseconds.
pub(super) fn delays_ms(settings: &Settings) -> &'static [u64] {
    if settings.quick { &QUICK_DELAYS_MS } else { &DELAYS_MS }
}

/// A pattern's figure over the round trips.
pub(super) fn figure_by_delay(
    pattern: Pattern,
    (y_title, y_scale): (&'static str, Scale),
    lines: Vec<Line>,
) -> Figure {
    Figure {
        file: pattern.name(),
        title: pattern.title(),
        x: DELAY.name,
        x_title: "added round trip, ms",
        x_scale: Scale::Linear,
        y_title,
        y_scale,
        lines,
    }
}

/// The congestion control of a link's connections: one that goes by losses, as the paper's. Small requests never
/// show what a link can do to one that paces (BBR).
pub(crate) fn congestion_control() -> &'static str {
    let allowed = std::fs::read_to_string(ALLOWED).unwrap_or_default();
    if allowed.split_whitespace().any(|name| name == "cubic") { "cubic" } else { "reno" }
}

/// How the link and the file are, for pages.
pub(super) fn method() -> String {
    format!(
        "A client reads a file over a link of 1 Gbit/s, made by `azekura-lab netlab`, to which a round trip is \
         added (half of it in each direction); TCP ({}, with buffers for the longest round trip) then \
         moves at most 117.7 MB/s. The pool is one engine with 4 targets in memory. The file has holes, \
         which the engine reads from its storage and sends as zeros like any bytes. `sync-adaptive` and \
         `fixed=SIZE` read a file on one target (class S1): a window is one request over one connection, as \
         in the paper. `predictive` and `sync-adaptive-striped` are Azekura's own way: a file over all \
         targets, read in parts over several connections. Every run begins cold, with a new process and new \
         connections. A region of up to 8 MiB is read by one call, a longer one by calls of 1 MiB. A run is \
         whole turns of the pattern, whatever time that takes. MB are 10^6 bytes.",
        congestion_control()
    )
}

/// Runs of a point as values: the mean, and the extremes of the speed. The size is the one of the middle.
pub(super) fn values_of(readings: &[Reading]) -> Vec<f64> {
    let count = readings.len().max(1) as f64;
    let mean = |of: fn(&Reading) -> f64| readings.iter().map(of).sum::<f64>() / count;
    let speeds = || readings.iter().map(Reading::mb_per_s);
    let mut sizes: Vec<u64> = readings.iter().map(|reading| reading.settled_bytes).collect();
    sizes.sort_unstable();
    vec![
        mean(Reading::mb_per_s),
        speeds().reduce(f64::min).unwrap_or(0.0),
        speeds().reduce(f64::max).unwrap_or(0.0),
        mean(|reading| reading.seconds),
        mean(|reading| reading.requests as f64),
        mean(|reading| reading.asked_bytes as f64 / 1e6),
        sizes.get(sizes.len() / 2).copied().unwrap_or(0) as f64,
        mean(|reading| reading.round_trip_us as f64 / 1000.0),
    ]
}

/// A link, alike in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkShape {
    pub(super) rate_mbit: u64,
    pub(super) round_trip_ms: u64,
}

impl LinkShape {
    /// The paper's.
    pub(super) const fn gigabit(round_trip_ms: u64) -> Self {
        Self { rate_mbit: GIGABIT, round_trip_ms }
    }

    /// What TCP can carry over it, in MB/s.
    pub(super) fn goodput_mb_per_s(self) -> f64 {
        GOODPUT_MB_PER_S * self.rate_mbit as f64 / GIGABIT as f64
    }

    /// What one of so many links has to become for their round trips to differ by that much, and to share the rate.
    fn change(self, spread_ms: u64, number: usize, links: usize) -> Result<Change> {
        let first_us = (self.round_trip_ms * 1000).saturating_sub(spread_ms * 500);
        let step_us = spread_ms * 1000 * number as u64 / (links.max(2) as u64 - 1);
        let delay = format!("delay={}us", u64::midpoint(first_us, step_us));
        Ok(Change::parse(&[delay, format!("rate={}mbit", self.rate_mbit / links.max(1) as u64)])?)
    }
}

/// What one run is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload<'a> {
    pub(super) pattern: Pattern,
    pub(super) extent: Extent,
    pub(super) link: LinkShape,
    pub(super) policy: &'a str,
    /// By how much the round trip to the last engine is longer than that to the first, where there are several:
    /// those of `link` are the mean, and its rate is that of all links together.
    pub(super) spread_ms: u64,
    /// The parameter p of sync-adaptive.
    pub(super) p: Option<u32>,
    /// It may end early: after so many requests, or so much time.
    pub(super) requests_max: Option<u64>,
    pub(super) limit_ms: Option<u64>,
}

impl<'a> Workload<'a> {
    /// A whole point of a pattern over the paper's link.
    pub(super) fn new(
        pattern: Pattern,
        round_trip_ms: u64,
        policy: &'a str,
        settings: &Settings,
    ) -> Self {
        Self {
            pattern,
            extent: pattern.extent(settings),
            link: LinkShape::gigabit(round_trip_ms),
            spread_ms: 0,
            policy,
            p: None,
            requests_max: None,
            limit_ms: None,
        }
    }

    /// The same, from the cells of a point.
    ///
    /// # Errors
    /// If there is no such pattern, or the round trip is no number.
    pub(super) fn of_cells(
        pattern: &str,
        round_trip_ms: &str,
        policy: &'a str,
        settings: &Settings,
    ) -> Result<Self> {
        let pattern = Pattern::named(pattern).context("no such pattern")?;
        Ok(Self::new(pattern, round_trip_ms.parse()?, policy, settings))
    }
}

/// The engines of a pool.
enum Engines {
    One(EngineProcess),
    Several(EngineProcesses),
}

impl Engines {
    fn pool_name(&self) -> String {
        match self {
            Self::One(engine) => engine.pool_name(),
            Self::Several(engines) => engines.pool_name(),
        }
    }
}

fn server(number: usize) -> String {
    format!("server{}", number + 1)
}

fn link(number: usize) -> String {
    format!("wan{}", number + 1)
}

/// A client, and servers on a link each.
fn topology(servers: usize) -> Result<Topology> {
    let mut text = format!("hosts = ['{CLIENT}'");
    for number in 0..servers {
        // Text in a string always has room.
        let _ = write!(text, ", '{}'", server(number));
    }
    let _ = writeln!(text, "]\n[tcp]\ncongestion = '{}'", congestion_control());
    for number in 0..servers {
        let _ = writeln!(
            text,
            "[[links]]\nname = '{}'\nbetween = ['{CLIENT}', '{}']\nrate = '1gbit'\nqueue = 'auto'",
            link(number),
            server(number)
        );
    }
    Ok(Topology::parse(&text, "experiment")?)
}

fn address(lab: &Lab, number: usize) -> Result<Address> {
    Ok(Address::Tcp(format!("{}:{PORT}", lab.address(&server(number))?)))
}

/// The hosts, and what runs in them.
pub(super) struct FarPool {
    // The engines and their directory go before the hosts.
    scratch: ScratchDir,
    engines: Engines,
    lab: Lab,
    links: usize,
    rounds: usize,
    /// The files that are there.
    made: Vec<String>,
}

impl FarPool {
    /// Makes hosts and link, and starts the engine.
    ///
    /// # Errors
    /// If this process may not, or the engine does not start.
    pub(super) fn start(settings: &Settings) -> Result<Self> {
        let lab = Lab::up(&topology(1)?)?;
        // In the host's network only: the engine outlives the host for a moment, and removes what it
        // has made.
        let engine = EngineProcess::start(TARGETS, Some(&address(&lab, 0)?), |command| {
            Ok(lab.within(&server(0), || command.spawn())??)
        })?;
        let scratch = engine.scratch()?;
        Ok(Self::of(lab, 1, scratch, Engines::One(engine), settings))
    }

    /// The same with an engine for each target, each behind a link of its own.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub(super) fn start_several(settings: &Settings) -> Result<Self> {
        let servers = usize::from(TARGETS);
        let lab = Lab::up(&topology(servers)?)?;
        let addresses: Vec<Address> =
            (0..servers).map(|number| address(&lab, number)).collect::<Result<_>>()?;
        let engines = EngineProcesses::start(&addresses, 1, |number, command| {
            Ok(lab.within(&server(number), || command.spawn())??)
        })?;
        let scratch = ScratchDir::make_in(engines.dir().dir().as_ref(), "mount")?;
        Ok(Self::of(lab, servers, scratch, Engines::Several(engines), settings))
    }

    fn of(
        lab: Lab,
        links: usize,
        scratch: ScratchDir,
        engines: Engines,
        settings: &Settings,
    ) -> Self {
        Self { scratch, engines, lab, links, rounds: settings.rounds(), made: Vec::new() }
    }

    /// Makes all links such.
    fn shape(&self, shape: LinkShape, spread_ms: u64) -> Result<()> {
        for number in 0..self.links {
            self.lab.set(&link(number), &shape.change(spread_ms, number, self.links)?)?;
        }
        Ok(())
    }

    /// The values of a point: of as many runs as there are to be.
    ///
    /// # Errors
    /// What the reading program said.
    pub(super) fn values(&mut self, workload: &Workload<'_>) -> Result<Vec<f64>> {
        let readings: Result<Vec<_>> = (0..self.rounds).map(|_| self.read(workload)).collect();
        Ok(values_of(&readings?))
    }

    /// Reads once.
    ///
    /// # Errors
    /// What the reading program said.
    pub(super) fn read(&mut self, workload: &Workload<'_>) -> Result<Reading> {
        self.read_while(workload, &[])
    }

    /// The same, over a link that changes so long after the beginning.
    ///
    /// # Errors
    /// What the reading program said, or if the link cannot be changed.
    pub(super) fn read_while(
        &mut self,
        workload: &Workload<'_>,
        changes: &[(Duration, LinkShape)],
    ) -> Result<Reading> {
        self.make(workload)?;
        self.shape(workload.link, workload.spread_ms)?;
        if workload.pattern.made() == Made::EachTime {
            self.run_reader(workload, Task::Write)?;
        }
        let trace = self.scratch.path("trace");
        std::fs::write(&trace, "").with_context(|| format!("cannot write {trace}"))?;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let this = &*self;
            let reader = scope.spawn(move || this.run_reader(workload, Task::Read));
            for (after, shape) in changes {
                let left = after.saturating_sub(begun.elapsed());
                std::thread::sleep(left);
                self.shape(*shape, workload.spread_ms)?;
            }
            reader.join().ok().context("the reading program is lost")?
        })
    }

    /// The requests of the last run.
    ///
    /// # Errors
    /// If its trace cannot be read.
    pub(super) fn last_requests(&self) -> Result<Vec<TraceRecord>> {
        Ok(TraceRecord::load(self.scratch.path("trace").as_ref())?)
    }

    /// Makes the file, if no run before has read it.
    fn make(&mut self, workload: &Workload<'_>) -> Result<()> {
        let path = path_of(workload.pattern, workload.extent.file_bytes);
        if !self.made.contains(&path) {
            self.shape(LinkShape::gigabit(0), 0)?;
            self.run_reader(workload, Task::Make)?;
            self.made.push(path);
        }
        Ok(())
    }

    fn run_reader(&self, workload: &Workload<'_>, task: Task) -> Result<Reading> {
        let mut command = Command::new(programs::own()?);
        command.arg(READER_COMMAND);
        command.args(["--pool", &self.engines.pool_name(), "--trace", &self.scratch.path("trace")]);
        command.args(["--pattern", workload.pattern.name(), "--policy", workload.policy]);
        command.arg(format!("--file-bytes={}", workload.extent.file_bytes));
        command.arg(format!("--turns={}", workload.extent.turns));
        command.args(workload.limit_ms.map(|ms| format!("--limit-ms={ms}")));
        command.args(workload.requests_max.map(|requests| format!("--requests={requests}")));
        command.args(workload.p.map(|p| format!("--p={p}")));
        let task = task.to_possible_value();
        command.args(task.map(|task| format!("--task={}", task.get_name())));
        for variable in ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"] {
            command.env(variable, self.scratch.dir());
        }
        let done = self.lab.exec(CLIENT, &mut command)?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            bail!("the reading program ended with {}, and said: {last}", done.status);
        }
        serde_json::from_slice(&done.stdout).context("cannot understand the reading program")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_with_their_columns() {
        let reading = |seconds: f64, settled_bytes| Reading {
            useful_bytes: 5_000_000,
            seconds,
            requests: 3,
            asked_bytes: 8_000_000,
            settled_bytes,
            round_trip_us: 50,
            by_second: Vec::new(),
        };
        let values = values_of(&[reading(0.5, 1), reading(1.0, 4), reading(0.25, 2)]);
        let mean = 35.0 / 3.0;
        let seconds = 1.75 / 3.0;
        for (value, wanted) in values.iter().zip([mean, 5.0, 20.0, seconds, 3.0, 8.0, 2.0, 0.05]) {
            assert!((value - wanted).abs() < 1e-9, "{values:?}");
        }
        assert_eq!(values.len(), VALUES.len());
        assert_eq!((VALUES[0].name, VALUES[SIZE_AT].name), (USEFUL, SIZE));
        assert_eq!(values_of(&[]).len(), VALUES.len());
    }

    #[test]
    fn the_lab_is_well_described() {
        assert!(topology(1).is_ok() && topology(4).is_ok());
    }

    #[test]
    fn links_share_the_rate_and_differ_in_delay() {
        let shape = LinkShape::gigabit(50);
        let change = |words: [&str; 2]| Change::parse(&words).unwrap();
        let of = |spread_ms, number, links| shape.change(spread_ms, number, links).unwrap();
        assert_eq!(of(0, 0, 1), change(["delay=25000us", "rate=1000mbit"]));
        assert_eq!(of(60, 0, 4), change(["delay=10000us", "rate=250mbit"]));
        assert_eq!(of(60, 1, 4), change(["delay=20000us", "rate=250mbit"]));
        assert_eq!(of(60, 3, 4), change(["delay=40000us", "rate=250mbit"]));
    }
}
