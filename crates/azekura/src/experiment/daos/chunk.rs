//! `daos-chunk`: bandwidth by transfer size for two chunk sizes (the paper's figure 6).

use anyhow::Result;

use super::bandwidth::{self, Files, READ, WRITE};
use super::setup::{Ground, PROCESSES, Setup, TARGETS};
use super::transfer::{SHARDING, class_of};
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Parameter, Point, Rig, Scale, Settings, Value,
};
use crate::report::format_bytes;

const CHUNKS_BYTES: [u32; 2] = [256 << 10, 1 << 20];

pub(super) struct Chunk;

struct ChunkRig {
    setup: Setup,
    settings: Settings,
}

impl Rig for ChunkRig {
    fn measure(&mut self, point: &Point) -> Result<Vec<f64>> {
        let [sharding, chunk, transfer] = point.cells()?;
        let ground =
            Ground { class: class_of(sharding)?, chunk_bytes: chunk.parse()?, ..Ground::default() };
        let limit_ms = self.settings.share_ms(2 * self.settings.rounds());
        let (files, transfer_bytes) = (Files::PerProcess, transfer.parse()?);
        bandwidth::measure(&mut self.setup, ground, files, transfer_bytes, &self.settings, limit_ms)
            .map(Vec::from)
    }
}

impl Experiment for Chunk {
    fn name(&self) -> &'static str {
        "daos-chunk"
    }

    fn about(&self) -> &'static str {
        "Bandwidth by transfer size, for chunks of 256 KiB and of 1 MiB"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{PROCESSES} processes write and then read, through the native path, a file each (N-N) \
             of up to {}, sequentially and in transfers of one size. The pool is one engine with \
             {TARGETS} targets in memory, on the same host. A file lies on one target or on all. A \
             phase ends after {:.2} s, whatever was moved by then. {}",
            format_bytes(bandwidth::part_bytes(settings)),
            settings.share_ms(2 * settings.rounds()) as f64 / 1000.0,
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter { name: "sharding", title: "file on", cells: Cells::Plain },
            Parameter { name: "chunk_bytes", title: "chunk size", cells: Cells::Bytes },
            Parameter { name: "transfer_bytes", title: "transfer size", cells: Cells::Bytes },
        ]
    }

    fn values(&self) -> &'static [Value] {
        &bandwidth::VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for (sharding, _) in SHARDING {
            for chunk in CHUNKS_BYTES {
                points.extend(bandwidth::transfer_sizes(settings).iter().map(|bytes| {
                    Point::of([sharding.to_owned(), chunk.to_string(), bytes.to_string()])
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
            lines: CHUNKS_BYTES
                .map(|chunk| Line {
                    title: format!("chunk {}", format_bytes(u64::from(chunk))),
                    value,
                    only: vec![
                        ("chunk_bytes", chunk.to_string()),
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
        Ok(Box::new(ChunkRig { setup: Setup::default(), settings: *settings }))
    }
}
