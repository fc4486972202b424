//! What all wan experiments stand on: two hosts with a link between them, an engine in one and a
//! reading program in the other. Owns how a point is measured, and the columns that it gives.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura_netlab::{Change, Lab, Topology};
use azekura_posix::TraceRecord;
use azekura_proto::pool_map::Address;

use super::pattern::Pattern;
use super::reader::{READER_COMMAND, Reading};
use crate::chart::Scale;
use crate::experiment::frame::{Cells, Figure, Line, Parameter, Settings, Value};
use crate::experiment::scratch_pool::EngineProcess;

/// Round trips that the link adds, in milliseconds.
const DELAYS_MS: [u64; 6] = [0, 10, 25, 50, 75, 100];
const QUICK_DELAYS_MS: [u64; 2] = [0, 10];
/// What TCP can carry over the link at most, in MB/s (10^6 bytes).
pub(super) const GOODPUT_MB_PER_S: f64 = 117.7;

const TARGETS: u16 = 4;
const LINK: &str = "wan";
const CLIENT: &str = "client";
const SERVER: &str = "server";
const PORT: u16 = 7070;
const LAB: &str = "hosts = ['client', 'server']
    links = [{ name = 'wan', between = ['client', 'server'], rate = '1gbit', queue = 'auto' }]
    sysctl = { 'net.ipv4.tcp_no_metrics_save' = '1' }";

pub(super) const PATTERN: Parameter =
    Parameter { name: "pattern", title: "pattern", cells: Cells::Plain };
pub(super) const DELAY: Parameter =
    Parameter { name: "round_trip_ms", title: "round trip, ms", cells: Cells::Plain };

/// Name of the column of useful bytes per second.
pub(super) const USEFUL: &str = "useful_mb_per_s";
/// The columns of a reading.
pub(super) const VALUES: [Value; 6] = [
    Value { name: USEFUL, title: "useful, MB/s" },
    Value { name: "seconds", title: "seconds" },
    Value { name: "requests", title: "requests" },
    Value { name: "asked_mb", title: "asked for, MB" },
    Value { name: "size_bytes_chosen", title: "size at the end, bytes" },
    Value { name: "round_trip_ms_seen", title: "round trip as the client saw it, ms" },
];

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
        title: pattern.name(),
        x: DELAY.name,
        x_title: "added round trip, ms",
        x_scale: Scale::Linear,
        y_title,
        y_scale,
        lines,
    }
}

/// How the link and the file are, for pages.
pub(super) const METHOD: &str = "A client reads a file over a link of 1 Gbit/s, made by `azekura-lab netlab`, to which a round trip is \
     added (half of it in each direction); TCP then moves at most 117.7 MB/s. The pool is one engine \
     with 4 targets in memory. The file has holes, which the engine reads from its storage and sends \
     as zeros like any bytes. Every point begins cold, with a new process and new connections. A \
     region of up to 8 MiB is read by one call, a longer one by calls of 1 MiB. A point ends with \
     the file, or at the first call after its time that the last request does not answer. Each \
     figure is of one run; MB are 10^6 bytes.";

/// A point's speed and requests as values.
pub(super) fn values_of(reading: &Reading) -> Vec<f64> {
    let useful_mb_per_s = reading.useful_bytes as f64 / 1e6 / reading.seconds.max(1e-9);
    vec![
        useful_mb_per_s,
        reading.seconds,
        reading.requests as f64,
        reading.asked_bytes as f64 / 1e6,
        reading.settled_bytes as f64,
        reading.round_trip_us as f64 / 1000.0,
    ]
}

/// What one reading is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload<'a> {
    pub(super) pattern: Pattern,
    pub(super) round_trip_ms: u64,
    pub(super) policy: &'a str,
    /// The parameter p of sync-adaptive.
    pub(super) p: Option<u32>,
    pub(super) limit_ms: u64,
    pub(super) requests_max: u64,
}

impl<'a> Workload<'a> {
    /// A reading bounded by time alone.
    pub(super) fn new(
        pattern: Pattern,
        round_trip_ms: u64,
        policy: &'a str,
        limit_ms: u64,
    ) -> Self {
        Self { pattern, round_trip_ms, policy, p: None, limit_ms, requests_max: u64::MAX }
    }

    /// The same, from the cells of a point.
    ///
    /// # Errors
    /// If there is no such pattern, or the round trip is no number.
    pub(super) fn of_cells(
        pattern: &str,
        round_trip_ms: &str,
        policy: &'a str,
        limit_ms: u64,
    ) -> Result<Self> {
        let pattern = Pattern::named(pattern).context("no such pattern")?;
        Ok(Self::new(pattern, round_trip_ms.parse()?, policy, limit_ms))
    }
}

/// The hosts, and what runs in them.
pub(super) struct FarPool {
    // The engine and its directory go before the hosts.
    scratch: ScratchDir,
    engine: EngineProcess,
    lab: Lab,
    settings: Settings,
    made: Vec<u64>,
}

impl FarPool {
    /// Makes hosts and link, and starts the engine.
    ///
    /// # Errors
    /// If this process may not, or the engine does not start.
    pub(super) fn start(settings: &Settings) -> Result<Self> {
        let lab = Lab::up(&Topology::parse(LAB, "experiment")?)?;
        let address = Address::Tcp(format!("{}:{PORT}", lab.address(SERVER)?));
        // In the host's network only: the engine outlives the host for a moment, and removes what it
        // has made.
        let engine = EngineProcess::start(TARGETS, Some(&address), |command| {
            Ok(lab.within(SERVER, || command.spawn())??)
        })?;
        let scratch = engine.scratch()?;
        Ok(Self { scratch, engine, lab, settings: *settings, made: Vec::new() })
    }

    /// Reads once. The file is made first, if no point before has read it.
    ///
    /// # Errors
    /// What the reading program said.
    pub(super) fn read(&mut self, workload: Workload<'_>) -> Result<Reading> {
        let file_bytes = workload.pattern.file_bytes(&self.settings);
        if !self.made.contains(&file_bytes) {
            self.delay(0)?;
            self.run_reader(&Workload { limit_ms: 0, ..workload }, file_bytes)?;
            self.made.push(file_bytes);
        }
        self.delay(workload.round_trip_ms)?;
        self.run_reader(&workload, file_bytes)
    }

    /// The requests of the last reading.
    ///
    /// # Errors
    /// If its trace cannot be read.
    pub(super) fn last_requests(&self) -> Result<Vec<TraceRecord>> {
        Ok(TraceRecord::load(self.scratch.path("trace").as_ref())?)
    }

    fn delay(&self, round_trip_ms: u64) -> Result<()> {
        let one_way = format!("delay={}us", round_trip_ms * 500);
        Ok(self.lab.set(LINK, &Change::parse(&[one_way])?)?)
    }

    fn run_reader(&self, workload: &Workload<'_>, file_bytes: u64) -> Result<Reading> {
        let trace = self.scratch.path("trace");
        std::fs::write(&trace, "").with_context(|| format!("cannot write {trace}"))?;
        let mut command = Command::new(programs::own()?);
        command.arg(READER_COMMAND);
        command.args(["--pool", &self.engine.pool_name(), "--trace", &trace]);
        command.args(["--pattern", workload.pattern.name(), "--policy", workload.policy]);
        command.arg(format!("--file-bytes={file_bytes}"));
        command.arg(format!("--limit-ms={}", workload.limit_ms));
        command.arg(format!("--requests={}", workload.requests_max));
        command.args(workload.p.map(|p| format!("--p={p}")));
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
        let reading = Reading {
            useful_bytes: 5_000_000,
            seconds: 0.5,
            requests: 3,
            asked_bytes: 8_000_000,
            settled_bytes: 1 << 20,
            round_trip_us: 50,
        };
        assert_eq!(values_of(&reading), [10.0, 0.5, 3.0, 8.0, 1_048_576.0, 0.05]);
        assert_eq!(values_of(&reading).len(), VALUES.len());
        assert_eq!(VALUES[0].name, USEFUL);
    }

    #[test]
    fn the_lab_is_well_described() {
        assert!(Topology::parse(LAB, "experiment").is_ok());
    }
}
