//! `daos-transfer`: bandwidth by transfer size, shared file and file per process, without and with
//! sharding (the paper's figures 4 and 5).

use anyhow::{Context as _, Result};
use azekura_proto::ObjectClass;

use super::bandwidth::{self, Files, READ, WRITE};
use super::setup::{Ground, PROCESSES, Setup, TARGETS};
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Parameter, Point, Rig, Scale, Settings, Value,
};
use crate::report::format_bytes;

/// Whether a file lies on one target or on all.
pub(super) const SHARDING: [(&str, ObjectClass); 2] =
    [("one target", ObjectClass::S1), ("all targets", ObjectClass::SX)];

pub(super) struct Transfer;

struct TransferRig {
    setup: Setup,
    settings: Settings,
}

/// The class that a cell of the column `sharding` means.
pub(super) fn class_of(cell: &str) -> Result<ObjectClass> {
    let found = SHARDING.iter().find(|(name, _)| *name == cell);
    found.map(|(_, class)| *class).context("no such sharding")
}

impl Rig for TransferRig {
    fn measure(&mut self, point: &Point) -> Result<Vec<f64>> {
        let [sharding, pattern, transfer] = point.cells()?;
        let files = Files::ALL.into_iter().find(|files| files.name() == pattern);
        let files = files.context("no such pattern")?;
        let ground = Ground { class: class_of(sharding)?, ..Ground::default() };
        let limit_ms = self.settings.share_ms(2 * self.settings.rounds());
        let transfer_bytes = transfer.parse()?;
        bandwidth::measure(&mut self.setup, ground, files, transfer_bytes, &self.settings, limit_ms)
            .map(Vec::from)
    }
}

impl Experiment for Transfer {
    fn name(&self) -> &'static str {
        "daos-transfer"
    }

    fn about(&self) -> &'static str {
        "Bandwidth by transfer size, for a shared file and a file per process, each on one target \
         and on all"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{PROCESSES} processes write and then read, through the native path, up to {} each, \
             sequentially and in transfers of one size: all their parts of one file (N-1), or a \
             file each (N-N). The pool is one engine with {TARGETS} targets in memory, on the same \
             host; the chunk size is 1 MiB. A file lies on one target (no sharding) or on all. A \
             phase ends after {:.2} s, whatever was moved by then. {}",
            format_bytes(bandwidth::part_bytes(settings)),
            settings.share_ms(2 * settings.rounds()) as f64 / 1000.0,
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter { name: "sharding", title: "file on", cells: Cells::Plain },
            Parameter { name: "pattern", title: "pattern", cells: Cells::Plain },
            Parameter { name: "transfer_bytes", title: "transfer size", cells: Cells::Bytes },
        ]
    }

    fn values(&self) -> &'static [Value] {
        &bandwidth::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for (sharding, _) in SHARDING {
            for files in Files::ALL {
                points.extend(bandwidth::transfer_sizes(settings).iter().map(|bytes| {
                    Point::of([sharding.to_owned(), files.name().to_owned(), bytes.to_string()])
                }));
            }
        }
        points
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, sharding: usize, value| Figure {
            file,
            title,
            x: "transfer_bytes",
            x_title: "transfer size",
            x_scale: Scale::Sizes,
            y_title: "MiB/s",
            y_scale: Scale::Linear,
            lines: Files::ALL
                .map(|files| Line {
                    title: files.name().to_owned(),
                    value,
                    only: vec![
                        ("pattern", files.name().to_owned()),
                        ("sharding", SHARDING[sharding].0.to_owned()),
                    ],
                })
                .into(),
        };
        vec![
            figure("read", "Read, no sharding", 0, READ),
            figure("write", "Write, no sharding", 0, WRITE),
            figure("read-sharded", "Read, sharded over all targets", 1, READ),
            figure("write-sharded", "Write, sharded over all targets", 1, WRITE),
        ]
    }

    fn rig(&self, settings: &Settings) -> Result<Box<dyn Rig>> {
        Ok(Box::new(TransferRig { setup: Setup::default(), settings: *settings }))
    }
}
