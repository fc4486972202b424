//! `daos-ior` and `daos-mdtest`: the paper's own programs, IOR and mdtest, on the same pool as our load (its
//! figures 4, 5, 8 and 9 again). Where they are not found, their points are left out and the page says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura::names::ContainerName;
use azekura_proto::ObjectClass;
use serde_json::Value as Json;

use super::bandwidth::{self, Files};
use super::fixture::{CHUNK_BYTES, Conditions, Fixture, PROCESSES, Reads, TARGETS};
use super::{phase, rates};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Source, Value,
};
use crate::experiment::scratch_pool::ScratchPool;

const PROGRAM: Parameter = Parameter { name: "program", title: "program", cells: Cells::Plain };
const PATTERN: Parameter = Parameter { name: "pattern", title: "pattern", cells: Cells::Plain };
const SIZE: Parameter =
    Parameter { name: "transfer_bytes", title: "transfer size", cells: Cells::Bytes };
const COUNT: Parameter = Parameter { name: "processes", title: "processes", cells: Cells::Plain };

/// Our own load, and the paper's programs by the DFS backend and by POSIX calls on two access paths.
const OURS: &str = "our load";
const DFS: &str = "DFS";
const POSIX: [(&str, &str); 2] = [("POSIX by FUSE", "fuse"), ("POSIX by preload", "preload")];
/// Where `azekura run` shows the container.
const PREFIX: &str = "/azekura";

/// Programs of the paper.
#[derive(Clone, Copy, Debug)]
enum Tool {
    Ior,
    Mdtest,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Ior => "ior",
            Self::Mdtest => "mdtest",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Ior => "AZEKURA_IOR",
            Self::Mdtest => "AZEKURA_MDTEST",
        }
    }

    /// Its file: what the variable says, or what lies in a directory of PATH.
    fn found(self) -> Option<PathBuf> {
        if let Some(file) = std::env::var_os(self.variable()) {
            return Some(PathBuf::from(file)).filter(|file| file.is_file());
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(self.name())).find(|file| file.is_file())
    }

    /// What a page says of it.
    fn told(self) -> String {
        let (name, variable) = (self.name(), self.variable());
        if self.found().is_some() {
            format!("{name} runs under `mpirun`, three repetitions, unchanged.")
        } else {
            format!(
                "{name} was not found (in PATH, or as {variable}), so that its points are left out."
            )
        }
    }

    /// Runs it with that many processes, and gives what it printed.
    fn run(
        self,
        variant: &str,
        container: &ContainerName,
        processes: usize,
        options: &[String],
    ) -> Result<String> {
        let file = self.found().with_context(|| format!("there is no {}", self.name()))?;
        let via = POSIX.iter().find(|(name, _)| *name == variant).map(|(_, via)| *via);
        let mut command = match via {
            None => Command::new("mpirun"),
            Some(via) => {
                let mut command = Command::new(programs::beside("azekura")?);
                command.args(["run", "--via", via, "--prefix", PREFIX]);
                command.arg("--pool").arg(container.to_string()).args(["--", "mpirun"]);
                command
            }
        };
        command.args(["--oversubscribe", "--allow-run-as-root", "-np", &processes.to_string()]);
        command.arg(&file);
        if via.is_some() {
            command.args(["-a", "POSIX"]);
        } else {
            let whole = container.to_string();
            let name = whole.rsplit('/').next().unwrap_or_default();
            command.args(["-a", "DFS", "--dfs.pool", &container.pool, "--dfs.cont", name]);
        }
        let done = command.args(options).output().context("cannot start mpirun")?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            bail!("{} ends with {}: {last}", self.name(), done.status);
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Where files of a variant lie.
    fn place(variant: &str, name: &str) -> String {
        let is_posix = POSIX.iter().any(|(posix, _)| *posix == variant);
        if is_posix { format!("{PREFIX}/{name}") } else { format!("/{name}") }
    }
}

/// Names of all variants, ours first.
fn variants() -> Vec<&'static str> {
    [OURS, DFS].into_iter().chain(POSIX.map(|(name, _)| name)).collect()
}

fn source_of(point: &Point, tool: Tool) -> Source {
    let is_ours = point.0.first().is_some_and(|program| program == OURS);
    if is_ours || tool.found().is_some() { Source::Measured } else { Source::Missing }
}

/// Means, and the least and the most, of what IOR wrote in JSON: reading and writing.
fn ior_values(json: &Json) -> Result<Vec<f64>> {
    let tests = json["tests"].as_array().context("IOR gave no results")?;
    let mut found: Vec<&Json> =
        tests.iter().filter_map(|test| test["Results"].as_array()).flatten().collect();
    while found.iter().any(|entry| entry.is_array()) {
        let inner = found.iter().flat_map(|entry| match entry.as_array() {
            Some(entries) => entries.iter().collect(),
            None => vec![*entry],
        });
        found = inner.collect();
    }
    let of = |access: &str| -> Vec<f64> {
        let is_that = |entry: &&&Json| entry["access"] == access;
        found.iter().filter(is_that).filter_map(|entry| entry["bwMiB"].as_f64()).collect()
    };
    let (read, write) = (of("read"), of("write"));
    if read.is_empty() || write.is_empty() {
        bail!("IOR gave no bandwidth");
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    Ok(vec![mean(&read), mean(&write), least(&read), most(&read), least(&write), most(&write)])
}

/// Means, and the least and the most, of the summary that mdtest printed, in the order of our columns.
fn mdtest_values(said: &str) -> Result<Vec<f64>> {
    let (mut means, mut ranges) = (Vec::new(), Vec::new());
    for kind in ["File creation", "File stat", "File read", "File removal"] {
        let line = said
            .lines()
            .rfind(|line| line.trim_start().starts_with(kind))
            .with_context(|| format!("mdtest gave no '{kind}'"))?;
        let figures: Vec<f64> = line.trim_start()[kind.len()..]
            .split_whitespace()
            .filter_map(|f| f.parse().ok())
            .collect();
        let [most, least, mean, ..] = figures[..] else {
            bail!("mdtest's '{kind}' has not the figures of a summary");
        };
        means.push(mean);
        ranges.extend([least, most]);
    }
    Ok(means.into_iter().chain(ranges).collect())
}

pub(super) struct Ior;

impl Experiment for Ior {
    fn name(&self) -> &'static str {
        "daos-ior"
    }

    fn about(&self) -> &'static str {
        "Bandwidth by transfer size as IOR measures it, beside what our own load measures"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{PROCESSES} processes write and then read up to {} each, sequentially, their parts of \
             one file (N-1) or a file each (N-N), which lies on all of {TARGETS} targets of one \
             engine in memory on the same host; the chunk size is 1 MiB. All but the mount read \
             and write through descriptors that the engine passes, past it. {} Of our load: {} IOR moves all \
             of it once in each repetition.",
            azekura::report::format_bytes(bandwidth::part_bytes(settings)),
            Tool::Ior.told(),
            phase::described(settings, bandwidth::PHASES),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PROGRAM, PATTERN, SIZE] }
    }

    fn values(&self) -> &'static [Value] {
        &bandwidth::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let sizes = bandwidth::transfer_sizes(settings);
        let mut points = Vec::new();
        for program in variants() {
            for files in Files::ALL {
                points.extend(sizes.iter().map(|bytes| {
                    Point::of([program.to_owned(), files.name().to_owned(), bytes.to_string()])
                }));
            }
        }
        points
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, files: Files, value| Figure {
            file,
            title,
            x: SIZE.name,
            x_title: "transfer size",
            x_scale: Scale::Sizes,
            y_title: "MiB/s",
            y_scale: Scale::Linear,
            lines: variants()
                .into_iter()
                .map(|program| Line {
                    title: program.to_owned(),
                    value,
                    only: vec![
                        (PROGRAM.name, program.to_owned()),
                        (PATTERN.name, files.name().to_owned()),
                    ],
                })
                .collect(),
        };
        let [shared, own] = Files::ALL;
        vec![
            figure("read-n-1", "Read, one shared file", shared, bandwidth::READ),
            figure("write-n-1", "Write, one shared file", shared, bandwidth::WRITE),
            figure("read-n-n", "Read, a file per process", own, bandwidth::READ),
            figure("write-n-n", "Write, a file per process", own, bandwidth::WRITE),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(bandwidth::PHASES, ROUNDS)
    }

    fn source(&self, point: &Point, _settings: &Settings, _dir: &Path) -> Source {
        source_of(point, Tool::Ior)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = settings.share_ms(bandwidth::PHASES * settings.rounds());
        let (mut pool, scratch) = (ScratchPool::start(TARGETS)?, ScratchDir::make("ior")?);
        Ok(Box::new(move |point| {
            let [program, pattern, transfer] = point.cells()?;
            let files = Files::ALL.into_iter().find(|files| files.name() == pattern);
            let (files, bytes) = (files.context("no such pattern")?, transfer.parse()?);
            if program == OURS {
                let conditions = Conditions { reads: Reads::AsUsual, ..Conditions::default() };
                return bandwidth::measure(
                    &mut fixture,
                    conditions,
                    files,
                    bytes,
                    &settings,
                    limit_ms,
                );
            }
            let summary = scratch.path("summary.json");
            let whole = bandwidth::part_bytes(&settings) / bytes * bytes;
            let mut options = vec!["-o".to_owned(), Tool::place(program, "ior")];
            for (option, value) in [("-b", whole), ("-t", bytes), ("-i", settings.rounds() as u64)]
            {
                options.extend([option.to_owned(), value.to_string()]);
            }
            options.extend(["-w", "-r", "-O", "summaryFormat=JSON"].map(str::to_owned));
            options.extend(["-O".to_owned(), format!("summaryFile={summary}")]);
            if files == Files::PerProcess {
                options.push("-F".to_owned());
            }
            if program == DFS {
                options.extend(["--dfs.oclass", "SX"].map(str::to_owned));
            }
            let container = pool.container(ObjectClass::SX, CHUNK_BYTES)?;
            Tool::Ior.run(program, &container, PROCESSES, &options)?;
            ior_values(&serde_json::from_str(&std::fs::read_to_string(&summary)?)?)
        }))
    }
}

pub(super) struct Mdtest;

impl Experiment for Mdtest {
    fn name(&self) -> &'static str {
        "daos-mdtest"
    }

    fn about(&self) -> &'static str {
        "Create, stat, read and delete per second as mdtest measures them, beside our own load"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "All processes work in one directory: they make empty files (up to {} in all), stat \
             them, open and close them for reading, and remove them. The pool is one engine with \
             {TARGETS} targets in memory, on the same host. {} It stops making files after {:.2} s \
             (`-W`), and does the rest with those that it has. Of our load: {} Making and removing \
             are one turn.",
            rates::file_count(settings),
            Tool::Mdtest.told(),
            stonewall_s(settings),
            phase::described(settings, rates::PHASES),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PROGRAM, COUNT] }
    }

    fn values(&self) -> &'static [Value] {
        &rates::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u16] = if settings.quick { &[1, 2] } else { &[1, 2, 4, 8, 16, 32, 64] };
        let at = |program: &'static str| {
            counts.iter().map(move |count| Point::of([program.to_owned(), count.to_string()]))
        };
        variants().into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, value: usize| Figure {
            file,
            title,
            x: COUNT.name,
            x_title: "processes",
            x_scale: Scale::Powers,
            y_title: "operations/s",
            y_scale: Scale::Linear,
            lines: variants()
                .into_iter()
                .map(|program| Line {
                    title: program.to_owned(),
                    value: rates::VALUES[value].name,
                    only: vec![(PROGRAM.name, program.to_owned())],
                })
                .collect(),
        };
        vec![
            figure("create", "Create", 0),
            figure("stat", "Stat", 1),
            figure("read", "Read (open and close)", 2),
            figure("delete", "Delete", 3),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(rates::PHASES, ROUNDS)
    }

    fn source(&self, point: &Point, _settings: &Settings, _dir: &Path) -> Source {
        source_of(point, Tool::Mdtest)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = settings.share_ms(rates::PHASES * settings.rounds());
        let mut pool = ScratchPool::start(TARGETS)?;
        Ok(Box::new(move |point| {
            let [program, processes] = point.cells()?;
            let processes: usize = processes.parse()?;
            if program == OURS {
                let conditions = Conditions { processes, ..Conditions::default() };
                return rates::measure(&mut fixture, conditions, &settings, limit_ms);
            }
            let files = (rates::file_count(&settings) / processes as u64).max(1);
            let mut options = vec!["-F".to_owned(), "-C".to_owned(), "-T".to_owned()];
            options.extend(["-E", "-r"].map(str::to_owned));
            let rounds = settings.rounds() as u64;
            for (option, value) in [("-n", files), ("-i", rounds), ("-W", stonewall_s(&settings))] {
                options.extend([option.to_owned(), value.to_string()]);
            }
            options.extend(["-d".to_owned(), Tool::place(program, "md")]);
            let container = pool.container(ObjectClass::SX, CHUNK_BYTES)?;
            mdtest_values(&Tool::Mdtest.run(program, &container, processes, &options)?)
        }))
    }
}

/// Whole seconds after which mdtest stops making files.
fn stonewall_s(settings: &Settings) -> u64 {
    settings.share_ms(rates::PHASES * settings.rounds()).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_programs_say_is_understood() {
        let json = serde_json::json!({ "tests": [{ "Results": [[
            { "access": "write", "bwMiB": 100.0 }, { "access": "read", "bwMiB": 300.0 },
        ], [
            { "access": "write", "bwMiB": 200.0 }, { "access": "read", "bwMiB": 500.0 },
        ]] }] });
        assert_eq!(ior_values(&json).unwrap(), [400.0, 150.0, 300.0, 500.0, 100.0, 200.0]);
        assert!(ior_values(&serde_json::json!({})).is_err());
        let said = "SUMMARY rate (in ops/sec): (of 2 iterations)\n\
            \x20  Operation     Max     Min     Mean    Std Dev\n\
            \x20  File creation   30.5  10.5  20.5  1.0\n   File stat  4 2 3 1\n\
            \x20  File read  8 6 7 1\n   File removal  2 1 1.5 0.5\n";
        let values = mdtest_values(said).unwrap();
        assert_eq!(values[..4], [20.5, 3.0, 7.0, 1.5]);
        assert_eq!(values[4..], [10.5, 30.5, 2.0, 4.0, 6.0, 8.0, 1.0, 2.0]);
        assert!(mdtest_values("File stat 1 2").is_err());
    }

    #[test]
    fn points_of_programs_that_are_not_there_are_left_out() {
        let ours = Point::of([OURS.to_owned(), "1".to_owned()]);
        assert_eq!(source_of(&ours, Tool::Mdtest), Source::Measured);
        assert_eq!(Tool::place(POSIX[0].0, "x"), "/azekura/x");
        assert_eq!(Tool::place(DFS, "x"), "/x");
    }
}
