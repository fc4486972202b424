//! `daos-transfer` and `daos-chunk`: bandwidth by transfer size, without and with sharding; for a shared
//! file and a file per process (the paper's figures 4 and 5), and for two chunk sizes (its figure 6).

use anyhow::{Context as _, Result};
use azekura::report::format_bytes;
use azekura_proto::ObjectClass;

use super::bandwidth::{self, Files, READ, WRITE};
use super::fixture::{BY_REQUESTS, Conditions, Fixture, PROCESSES, TARGETS};
use super::phase;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Value,
};

/// Whether a file lies on one target or on all.
const SHARDING: [(&str, ObjectClass); 2] =
    [("one target", ObjectClass::S1), ("all targets", ObjectClass::SX)];
const CHUNKS_BYTES: [u32; 2] = [256 << 10, 1 << 20];

const ON: Parameter = Parameter { name: "sharding", title: "file on", cells: Cells::Plain };
const PATTERN: Parameter = Parameter { name: "pattern", title: "pattern", cells: Cells::Plain };
const CHUNK: Parameter =
    Parameter { name: "chunk_bytes", title: "chunk size", cells: Cells::Bytes };
const SIZE: Parameter =
    Parameter { name: "transfer_bytes", title: "transfer size", cells: Cells::Bytes };

/// Which of the two, by what varies besides sharding and transfer size.
#[derive(Clone, Copy)]
pub(super) enum Transfer {
    /// A shared file, or a file for each process.
    ByFiles,
    /// The chunk size of a file for each process.
    ByChunk,
}

impl Transfer {
    /// The column of what varies.
    fn varied(self) -> Parameter {
        match self {
            Self::ByFiles => PATTERN,
            Self::ByChunk => CHUNK,
        }
    }

    /// Its cells, each with its title in legends.
    fn variants(self) -> Vec<(String, String)> {
        match self {
            Self::ByFiles => {
                Files::ALL.map(|files| (files.name().to_owned(), files.name().to_owned())).into()
            }
            Self::ByChunk => CHUNKS_BYTES
                .map(|chunk| {
                    (chunk.to_string(), format!("chunk {}", format_bytes(u64::from(chunk))))
                })
                .into(),
        }
    }

    /// What a point is measured under, and on which files.
    fn conditions(self, sharding: &str, variant: &str) -> Result<(Conditions, Files)> {
        let found = SHARDING.iter().find(|(name, _)| *name == sharding);
        let (_, class) = *found.context("no such sharding")?;
        let conditions = Conditions { class, ..Conditions::default() };
        Ok(match self {
            Self::ByFiles => {
                let files = Files::ALL.into_iter().find(|files| files.name() == variant);
                (conditions, files.context("no such pattern")?)
            }
            Self::ByChunk => {
                (Conditions { chunk_bytes: variant.parse()?, ..conditions }, Files::PerProcess)
            }
        })
    }

    /// The lines of a figure of one sharding.
    fn lines(self, sharding: &str, value: &'static str) -> Vec<Line> {
        let line = |(cell, title)| Line {
            title,
            value,
            only: vec![(self.varied().name, cell), (ON.name, sharding.to_owned())],
        };
        self.variants().into_iter().map(line).collect()
    }
}

impl Experiment for Transfer {
    fn name(&self) -> &'static str {
        match self {
            Self::ByFiles => "daos-transfer",
            Self::ByChunk => "daos-chunk",
        }
    }

    fn about(&self) -> &'static str {
        match self {
            Self::ByFiles => {
                "Bandwidth by transfer size, for a shared file and a file per process, each on one \
                 target and on all"
            }
            Self::ByChunk => "Bandwidth by transfer size, for chunks of 256 KiB and of 1 MiB",
        }
    }

    fn method(&self, settings: &Settings) -> String {
        let part = format_bytes(bandwidth::part_bytes(settings));
        let phase = phase::described(settings, bandwidth::PHASES);
        let repetition = settings.repetition();
        match self {
            Self::ByFiles => format!(
                "{PROCESSES} processes write and then read, through the native path, up to {part} \
                 each, sequentially and in transfers of one size: all their parts of one file \
                 (N-1), or a file each (N-N). The pool is one engine with {TARGETS} targets in \
                 memory, on the same host; the chunk size is 1 MiB. A file lies on one target (no \
                 sharding) or on all. {BY_REQUESTS} The paper's processes move 2 GiB each. {phase} \
                 {repetition}"
            ),
            Self::ByChunk => format!(
                "{PROCESSES} processes write and then read, through the native path, a file each \
                 (N-N) of up to {part}, sequentially and in transfers of one size. The pool is one \
                 engine with {TARGETS} targets in memory, on the same host. A file lies on one \
                 target or on all. {BY_REQUESTS} The paper's processes move 2 GiB each. {phase} \
                 {repetition}"
            ),
        }
    }

    fn parameters(&self) -> &'static [Parameter] {
        match self {
            Self::ByFiles => const { &[ON, PATTERN, SIZE] },
            Self::ByChunk => const { &[ON, CHUNK, SIZE] },
        }
    }

    fn values(&self) -> &'static [Value] {
        &bandwidth::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for (sharding, _) in SHARDING {
            for (variant, _) in self.variants() {
                points.extend(bandwidth::transfer_sizes(settings).iter().map(|bytes| {
                    Point::of([sharding.to_owned(), variant.clone(), bytes.to_string()])
                }));
            }
        }
        points
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let [(one, _), (all, _)] = SHARDING;
        let figure = |file, title, sharding, value| Figure {
            file,
            title,
            x: SIZE.name,
            x_title: "transfer size",
            x_scale: Scale::Sizes,
            y_title: "MiB/s",
            y_scale: Scale::Linear,
            lines: self.lines(sharding, value),
        };
        vec![
            figure("read", "Read, no sharding", one, READ),
            figure("write", "Write, no sharding", one, WRITE),
            figure("read-sharded", "Read, sharded over all targets", all, READ),
            figure("write-sharded", "Write, sharded over all targets", all, WRITE),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(bandwidth::PHASES, ROUNDS)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings, varies) = (Fixture::default(), *settings, *self);
        let limit_ms = settings.share_ms(bandwidth::PHASES * settings.rounds());
        Ok(Box::new(move |point| {
            let [sharding, variant, transfer] = point.cells()?;
            let (conditions, files) = varies.conditions(sharding, variant)?;
            let bytes = transfer.parse()?;
            bandwidth::measure(&mut fixture, conditions, files, bytes, &settings, limit_ms)
        }))
    }
}
