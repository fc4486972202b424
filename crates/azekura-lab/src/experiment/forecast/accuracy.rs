//! `forecast-accuracy`: forecasts held against runs of the batch I/O program, on four kinds of storage. Each
//! is calibrated first, with batches other than those that are forecast.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura::report;
use azekura_forecast::{Calibration, Model, Run, Runs, forecast};
use azekura_netlab::{Lab, Topology};
use azekura_proto::pool_map::Address;

use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};
use crate::experiment::scratch_pool::EngineProcess;

const PLACE: Parameter = Parameter { name: "place", title: "place", cells: Cells::Plain };
const CASE: Parameter = Parameter { name: "case", title: "case", cells: Cells::Plain };
const PATTERN: Parameter = Parameter { name: "pattern", title: "pattern", cells: Cells::Plain };
const ORDER: Parameter = Parameter { name: "order", title: "order", cells: Cells::Plain };
const FILES: Parameter = Parameter { name: "files", title: "files", cells: Cells::Plain };
const RATIO: Parameter = Parameter { name: "ratio", title: "ratio", cells: Cells::Plain };
const PROCESSES: Parameter =
    Parameter { name: "processes", title: "processes", cells: Cells::Plain };

const MEASURED: Value = Value { name: "measured_s", title: "measured, s" };
const FULL: Value = Value { name: "full_s", title: "full, s" };
const LOW: Value = Value { name: "low_s", title: "low, s" };
const HIGH: Value = Value { name: "high_s", title: "high, s" };
const PAPER: Value = Value { name: "paper_s", title: "paper, s" };
const CONVENTIONAL: Value = Value { name: "equation_1_s", title: "equation 1, s" };
const FULL_OFF: Value = Value { name: "full_error_percent", title: "full, error %" };
const PAPER_OFF: Value = Value { name: "paper_error_percent", title: "paper, error %" };
const CONVENTIONAL_OFF: Value =
    Value { name: "equation_1_error_percent", title: "equation 1, error %" };
const INSIDE: Value = Value { name: "inside", title: "inside" };
const OTHERS: Value = Value { name: "others_percent", title: "others, %" };

/// Pattern, order, files, ratio, processes: none of them is a batch of the calibration.
const CASES: [(&str, &str, &str, &str, &str); 16] = [
    ("simple", "sequential", "1", "0.5", "1"),
    ("simple", "sequential", "1", "0.75", "2"),
    ("simple", "sequential", "1", "0.5", "5"),
    ("simple", "sequential", "1", "1.5", "7"),
    ("simple", "sequential", "1", "0.25", "6"),
    ("split", "sequential", "32", "1", "1"),
    ("split", "sequential", "128", "0.5", "1"),
    ("split", "sequential", "100", "1", "2"),
    ("split", "sequential", "32", "1", "5"),
    ("split", "sequential", "24", "0.5", "6"),
    ("merge", "sequential", "32", "1", "1"),
    ("merge", "sequential", "128", "0.5", "2"),
    ("merge", "sequential", "32", "1", "5"),
    ("merge", "sequential", "24", "0.5", "6"),
    ("split", "round-robin", "16", "1", "1"),
    ("merge", "round-robin", "24", "1", "1"),
];

/// Title, name, and how it is told in the method.
const PLACES: [(&str, &str); 4] = [
    ("disk", "file system of the directory where the command was run"),
    ("memory", "memory-backed directory"),
    ("fuse", "FUSE mount of a pool in memory"),
    ("link", "pool over a link of 400 Mbit/s, natively"),
];

/// Time of each calibration; its batches, and with them those that are forecast, grow with it.
const BUDGET_S: u64 = 120;
const QUICK_BUDGET_S: u64 = 3;
const QUICK_BYTES: u64 = 4 << 20;
/// Runs of which the middle is taken.
const RUNS: usize = 5;
/// Input of a case over that of the calibration's usual batch.
const SHARE: f64 = 0.75;

/// So long it is watched, before the runs of a case, what other programs have of the processors.
const WATCH: Duration = Duration::from_millis(100);
/// Where they have more than this share, figures say little.
const OTHERS_MOST: f64 = 0.1;

const TARGETS: u16 = 4;
const CONTAINER: &str = "default";
const CLIENT: &str = "client";
const SERVER: &str = "server";
const PORT: u16 = 7070;
const LAB: &str = "hosts = ['client', 'server']
    links = [{ between = ['client', 'server'], rate = '400mbit', delay = '0.2ms', queue = 'auto' }]";

pub(super) struct Accuracy;

/// A calibrated place. What stands first goes first.
struct Place {
    name: String,
    /// The options that name it for `bench batch`, and the word that does for `calibrate`.
    options: [String; 2],
    calibration: Option<Calibration>,
    _mount: Option<Mount>,
    scratch: ScratchDir,
    _engine: Option<EngineProcess>,
    lab: Option<Lab>,
}

/// A mount, unmounted when dropped.
struct Mount {
    azekura: PathBuf,
    dir: String,
    home: String,
}

/// Files of the programs that are started lie with everything else that goes.
fn at_home(command: &mut Command, home: &str) {
    for variable in ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"] {
        command.env(variable, home);
    }
}

fn last_words(done: &std::process::Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned()
}

impl Mount {
    fn make(pool: &str, dir: String, home: String) -> Result<Self> {
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {dir}"))?;
        let mount = Self { azekura: programs::beside("azekura")?, dir, home };
        let done = mount.command(&["mount", pool, &mount.dir]).output()?;
        if !done.status.success() {
            bail!("cannot mount: {}", last_words(&done));
        }
        Ok(mount)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.azekura);
        command.args(words);
        at_home(&mut command, &self.home);
        command
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that is gone need not be unmounted.
        let _ = self.command(&["umount", &self.dir]).output();
    }
}

impl Place {
    fn start(name: &str) -> Result<Self> {
        let place = |options: [&str; 2], scratch| Self {
            name: name.to_owned(),
            options: options.map(ToOwned::to_owned),
            calibration: None,
            _mount: None,
            scratch,
            _engine: None,
            lab: None,
        };
        match name {
            "disk" => {
                let scratch = ScratchDir::make_in(&std::env::current_dir()?, "accuracy")?;
                Ok(place(["--path", &scratch.dir()], scratch))
            }
            "memory" => {
                let scratch = ScratchDir::make("accuracy")?;
                Ok(place(["--path", &scratch.dir()], scratch))
            }
            "fuse" => {
                let engine = EngineProcess::start(TARGETS, None, |command| Ok(command.spawn()?))?;
                let scratch = engine.scratch()?;
                let (files, home) = (scratch.path("files"), scratch.dir());
                let place = place(["--path", &files], scratch);
                place.container(&engine.pool_name())?;
                let mount = Mount::make(&engine.pool_name(), files, home)?;
                Ok(Self { _mount: Some(mount), _engine: Some(engine), ..place })
            }
            "link" => {
                let lab = Lab::up(&Topology::parse(LAB, "experiment")?)?;
                let address = Address::Tcp(format!("{}:{PORT}", lab.address(SERVER)?));
                let engine = EngineProcess::start(TARGETS, Some(&address), |command| {
                    Ok(lab.within(SERVER, || command.spawn())??)
                })?;
                let scratch = engine.scratch()?;
                let mut place = place(["--pool", &engine.pool_name()], scratch);
                place.lab = Some(lab);
                place.container(&engine.pool_name())?;
                Ok(Self { _engine: Some(engine), ..place })
            }
            _ => bail!("there is no place '{name}'"),
        }
    }

    /// Makes the container of the pool.
    fn container(&self, pool: &str) -> Result<()> {
        self.run(&["container", "create", "--pool", pool, CONTAINER]).map(drop)
    }

    fn run(&self, words: &[&str]) -> Result<Vec<u8>> {
        let mut command = Command::new(programs::beside("azekura")?);
        command.args(words);
        at_home(&mut command, &self.scratch.dir());
        let done = match &self.lab {
            Some(lab) => lab.exec(CLIENT, &mut command)?,
            None => command.output()?,
        };
        if !done.status.success() {
            bail!("azekura {} on {}: {}", words[0], self.name, last_words(&done));
        }
        Ok(done.stdout)
    }

    fn calibrate(&mut self, settings: &Settings) -> Result<&Calibration> {
        if self.calibration.is_none() {
            let file = self.scratch.path("fs.toml");
            let budget = format!("{}s", budget_s(settings));
            let mut words = vec!["calibrate", &self.options[1], "-o", &file, "--budget", &budget];
            let size = QUICK_BYTES.to_string();
            if settings.quick {
                words.extend(["--size", &size]);
            }
            self.run(&words)?;
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            self.calibration = Some(Calibration::parse(&text, Path::new(&file))?);
        }
        self.calibration.as_ref().context("not calibrated")
    }

    fn measure(&self, case: &[&str; 5], bytes: u64, runs: usize) -> Result<Run> {
        let [pattern, order, files, ratio, processes] = case;
        let (bytes, runs) = (bytes.to_string(), runs.to_string());
        let words = [
            "bench",
            "batch",
            &self.options[0],
            &self.options[1],
            "--pattern",
            pattern,
            "--order",
            order,
            "--files",
            files,
            "--ratio",
            ratio,
            "--processes",
            processes,
            "--size",
            &bytes,
            "--runs",
            &runs,
            "--json",
        ];
        let text = String::from_utf8(self.run(&words)?)?;
        let runs = Runs::parse(&text, Path::new("bench batch"))?;
        runs.runs.into_iter().next().context("bench batch has measured nothing")
    }
}

fn budget_s(settings: &Settings) -> u64 {
    if settings.quick { QUICK_BUDGET_S } else { settings.scaled(BUDGET_S, QUICK_BUDGET_S) }
}

/// What processors have done since the machine started, in all and without waiting for work.
fn ticks(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let all: Vec<f64> =
        line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let idle = all.get(3)? + all.get(4)?;
    let total: f64 = all.iter().sum();
    Some((total, total - idle))
}

/// The share of the processors that is in use while this program uses none.
fn in_use_by_others() -> Option<f64> {
    let look = || ticks(&std::fs::read_to_string("/proc/stat").ok()?);
    let (total, busy) = look()?;
    std::thread::sleep(WATCH);
    let (total_then, busy_then) = look()?;
    (total_then > total).then(|| (busy_then - busy) / (total_then - total))
}

fn middle(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The columns, from a run and its forecasts.
fn values_of(calibration: &Calibration, run: &Run, others: f64) -> Result<Vec<f64>> {
    let measured = middle(&run.seconds);
    let full = forecast(calibration, &run.job, Model::Full)?;
    let paper = forecast(calibration, &run.job, Model::Paper)?.seconds.0;
    let conventional = forecast(calibration, &run.job, Model::Conventional)?.seconds.0;
    let off = |seconds: f64| 100.0 * (seconds - measured) / measured;
    let inside = (full.low.0..=full.high.0).contains(&measured);
    Ok(vec![
        measured,
        full.seconds.0,
        full.low.0,
        full.high.0,
        paper,
        conventional,
        off(full.seconds.0),
        off(paper),
        off(conventional),
        f64::from(u8::from(inside)),
        100.0 * others,
    ])
}

impl Experiment for Accuracy {
    fn name(&self) -> &'static str {
        "forecast-accuracy"
    }

    fn about(&self) -> &'static str {
        "How far forecasts of the batch I/O program are from its times, on four kinds of storage"
    }

    fn method(&self, settings: &Settings) -> String {
        let places: Vec<String> =
            PLACES.iter().map(|(name, what)| format!("*{name}* is a {what}")).collect();
        let budget = budget_s(settings);
        format!(
            "Each place is calibrated with `azekura calibrate --budget {budget}s`, and then 16 batches are \
             run by `azekura bench batch` that the calibration has not run: other numbers of files and \
             processes, other ratios, and {SHARE} of its input. {}. *measured* is the middle of {RUNS} runs, \
             with cold caches, after one that does not count; *full*, with its interval of 90 % from *low* to *high*, is what `azekura \
             forecast` says, *paper* what it says with `--model paper`, *equation 1* the conventional \
             estimate. An error is forecast less measured, over measured; *inside* is 1 where the measured \
             time lies in the interval. *others* is what other programs had of the processors just before the \
             runs: where it is more than {:.0} %, or was during a calibration, figures say little.",
            places.join(", "),
            100.0 * OTHERS_MOST
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PLACE, CASE, PATTERN, ORDER, FILES, RATIO, PROCESSES] }
    }

    fn values(&self) -> &'static [Value] {
        const {
            &[
                MEASURED,
                FULL,
                LOW,
                HIGH,
                PAPER,
                CONVENTIONAL,
                FULL_OFF,
                PAPER_OFF,
                CONVENTIONAL_OFF,
                INSIDE,
                OTHERS,
            ]
        }
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let cases = if settings.quick { 2 } else { CASES.len() };
        PLACES
            .iter()
            .flat_map(|(place, _)| {
                CASES.iter().take(cases).enumerate().map(|(index, case)| {
                    let (pattern, order, files, ratio, processes) = *case;
                    let number = (index + 1).to_string();
                    let cells = [*place, &number, pattern, order, files, ratio, processes];
                    Point::of(cells.map(ToOwned::to_owned))
                })
            })
            .collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line = |place: &str, title: &str, value: Value| Line {
            title: title.to_owned(),
            value: value.name,
            only: vec![(PLACE.name, place.to_owned())],
        };
        PLACES
            .iter()
            .map(|(place, _)| Figure {
                file: place,
                title: place,
                x: CASE.name,
                x_title: "case",
                x_scale: Scale::Linear,
                y_title: "time, s",
                y_scale: Scale::Linear,
                lines: vec![
                    line(place, "measured", MEASURED),
                    line(place, "full", FULL),
                    line(place, "full, low", LOW),
                    line(place, "full, high", HIGH),
                    line(place, "paper", PAPER),
                    line(place, "equation 1", CONVENTIONAL),
                ],
            })
            .collect()
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let settings = *settings;
        let mut at: Option<Place> = None;
        let mut warned = false;
        Ok(Box::new(move |point| {
            let [place, _, pattern, order, files, ratio, processes] = point.cells()?;
            if at.as_ref().is_none_or(|at| at.name != place) {
                // One place at a time: they would get in each other's way.
                at = None;
                at = Some(Place::start(place)?);
            }
            let here = at.as_mut().context("there is no place")?;
            // Its usual batch writes as much as it reads, which is the most.
            let most = here.calibrate(&settings)?.range.bytes.most;
            let bytes = (most as f64 / 2.0 * SHARE) as u64;
            let runs = if settings.quick { 1 } else { RUNS };
            let others = in_use_by_others().unwrap_or(f64::NAN);
            if others > OTHERS_MOST && !warned {
                report::note(format_args!(
                    "azekura-lab: other programs have {:.0} % of the processors: figures say little",
                    100.0 * others
                ));
                warned = true;
            }
            let run = here.measure(&[pattern, order, files, ratio, processes], bytes, runs)?;
            values_of(here.calibrate(&settings)?, &run, others)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_cases_enough_and_the_lab_is_well_described() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        assert!(Accuracy.points(&settings).len() >= 60);
        assert!(Topology::parse(LAB, "experiment").is_ok());
    }

    #[test]
    fn processors_that_wait_for_storage_do_not_work() {
        let stat = "cpu  10 1 20 60 5 1 2 1 99 0\ncpu0 1 1 1 1\n";
        assert_eq!(ticks(stat), Some((100.0, 35.0)));
        assert_eq!(ticks("intr 5\n"), None);
        assert!(in_use_by_others().is_some_and(|share| (0.0..=1.0).contains(&share)));
    }
}
