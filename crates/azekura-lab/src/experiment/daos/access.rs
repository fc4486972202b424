//! `daos-access` and `daos-access-metadata`: the ways to reach a pool held against each other (the
//! paper's figure 9, and the same for metadata).

use anyhow::{Context as _, Result};
use azekura::load::AccessPath;
use azekura::report::format_bytes;

use super::bandwidth::{self, Files, READ, WRITE};
use super::fixture::{Conditions, Fixture, PROCESSES, Reads};
use super::{phase, rates};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Value,
};

const TARGETS: u16 = 1;
const PATH: Parameter = Parameter { name: "path", title: "access path", cells: Cells::Plain };
const PATHS: &str = "The paths are the library within the program (native), a FUSE mount (fuse), \
                     that mount with data calls intercepted by a preloaded library (fuse+data), and \
                     all calls intercepted by it (preload).";

pub(super) struct Access;

pub(super) struct AccessMetadata;

fn as_usual() -> Conditions {
    Conditions { reads: Reads::AsUsual, ..Conditions::default() }
}

fn access_of(cell: &str) -> Result<AccessPath> {
    AccessPath::ALL.into_iter().find(|path| path.name() == cell).context("no such access path")
}

/// One line for each path.
fn lines(value: &'static str) -> Vec<Line> {
    AccessPath::ALL
        .map(|path| Line {
            title: path.name().to_owned(),
            value,
            only: vec![(PATH.name, path.name().to_owned())],
        })
        .into()
}

impl Experiment for Access {
    fn name(&self) -> &'static str {
        "daos-access"
    }

    fn about(&self) -> &'static str {
        "Bandwidth by transfer size, for each way to reach a pool"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{PROCESSES} processes write and then read a file each (N-N) of up to {}, sequentially \
             and in transfers of one size. {PATHS} All but the mount read and write through descriptors \
             that the engine passes, past it; for the mount the kernel does so, where root has made \
             it and Linux is 6.9 or later. The pool is one engine with one target in memory, on \
             the same host; the chunk size is 1 MiB. Pages that the kernel keeps of a \
             mount's files are dropped before reading. The paper's processes move 5 GiB each. {} {}",
            format_bytes(bandwidth::part_bytes(settings)),
            phase::described(settings, bandwidth::PHASES),
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const {
            &[
                PATH,
                Parameter { name: "transfer_bytes", title: "transfer size", cells: Cells::Bytes },
            ]
        }
    }

    fn values(&self) -> &'static [Value] {
        &bandwidth::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let sizes = bandwidth::transfer_sizes(settings);
        let at = |path: AccessPath| {
            sizes.iter().map(move |bytes| Point::of([path.name().to_owned(), bytes.to_string()]))
        };
        AccessPath::ALL.into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, value| Figure {
            file,
            title,
            x: "transfer_bytes",
            x_title: "transfer size",
            x_scale: Scale::Sizes,
            y_title: "MiB/s",
            y_scale: Scale::Linear,
            lines: lines(value),
        };
        vec![
            figure("read", "Read by access path", READ),
            figure("write", "Write by access path", WRITE),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(bandwidth::PHASES, ROUNDS)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = settings.share_ms(bandwidth::PHASES * settings.rounds());
        Ok(Box::new(move |point| {
            let [path, transfer] = point.cells()?;
            let conditions =
                Conditions { targets: TARGETS, access: access_of(path)?, ..as_usual() };
            let (files, bytes) = (Files::PerProcess, transfer.parse()?);
            bandwidth::measure(&mut fixture, conditions, files, bytes, &settings, limit_ms)
        }))
    }
}

impl Experiment for AccessMetadata {
    fn name(&self) -> &'static str {
        "daos-access-metadata"
    }

    fn about(&self) -> &'static str {
        "Create, stat, read and delete per second, for each way to reach a pool, by processes"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "All processes work in one directory: they make empty files (up to {} in all), stat \
             them, open and close them for reading, and remove them. {PATHS} The pool is one engine \
             with one target in memory, on the same host. What the kernel remembers of a mount's \
             names is dropped before each turn. {} Making and removing are one turn. {}",
            rates::file_count(settings),
            phase::described(settings, rates::PHASES),
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PATH, Parameter { name: "processes", title: "processes", cells: Cells::Plain }] }
    }

    fn values(&self) -> &'static [Value] {
        &rates::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u16] = if settings.quick { &[1] } else { &[1, 2, 4] };
        let at = |path: AccessPath| {
            counts
                .iter()
                .map(move |processes| Point::of([path.name().to_owned(), processes.to_string()]))
        };
        AccessPath::ALL.into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, value: usize| Figure {
            file,
            title,
            x: "processes",
            x_title: "processes",
            x_scale: Scale::Powers,
            y_title: "operations/s",
            y_scale: Scale::Linear,
            lines: lines(rates::VALUES[value].name),
        };
        vec![
            figure("create", "Create by access path", 0),
            figure("stat", "Stat by access path", 1),
            figure("read", "Read (open and close) by access path", 2),
            figure("delete", "Delete by access path", 3),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(rates::PHASES, ROUNDS)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = settings.share_ms(rates::PHASES * settings.rounds());
        Ok(Box::new(move |point| {
            let [path, processes] = point.cells()?;
            let (access, processes) = (access_of(path)?, processes.parse()?);
            let conditions = Conditions { targets: TARGETS, access, processes, ..as_usual() };
            rates::measure(&mut fixture, conditions, &settings, limit_ms)
        }))
    }
}
