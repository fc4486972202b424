//! `staging-small`: many small files beside one large file of the same bytes, to all nodes.

use anyhow::Result;

use super::fixture::{METHOD, NODES_MAX, StagingLab, median};
use super::job::METHOD_IN;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const NODES: Parameter = Parameter { name: "nodes", title: "nodes", cells: Cells::Plain };
const SMALL: &str = "small_s";
const LARGE: &str = "large_s";

const FILES: u64 = 5000;
const QUICK_FILES: u64 = 100;
const FILE_BYTES: u64 = 8 << 10;
const COUNTS: [usize; 5] = [1, 2, 4, 8, NODES_MAX];
const QUICK_COUNTS: [usize; 1] = [2];

pub(super) struct Small;

fn counts(settings: &Settings) -> &'static [usize] {
    if settings.quick { &QUICK_COUNTS } else { &COUNTS }
}

fn files(settings: &Settings) -> u64 {
    settings.scaled(FILES, QUICK_FILES)
}

impl Experiment for Small {
    fn name(&self) -> &'static str {
        "staging-small"
    }

    fn about(&self) -> &'static str {
        "Time of many small files to all nodes, beside one file of the same bytes"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{METHOD} {METHOD_IN} {} files of 8 KiB, a hundred in a directory, and one file as long as all of them. \
             Figures are medians of {} jobs.",
            files(settings),
            settings.rounds()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[NODES] }
    }

    fn values(&self) -> &'static [Value] {
        const {
            &[
                Value { name: SMALL, title: "small files, s" },
                Value { name: LARGE, title: "one file, s" },
                Value { name: "large_over_small", title: "one file / small files" },
            ]
        }
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        counts(settings).iter().map(|nodes| Point::of([nodes.to_string()])).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let line =
            |(title, value): (&str, _)| Line { title: title.to_owned(), value, only: Vec::new() };
        vec![Figure {
            file: "seconds",
            title: "Time to all nodes by nodes",
            x: NODES.name,
            x_title: NODES.title,
            x_scale: Scale::Powers,
            y_title: "seconds",
            y_scale: Scale::Linear,
            lines: [("files of 8 KiB", SMALL), ("one file", LARGE)].map(line).into(),
        }]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let most = counts(settings).iter().copied().max().unwrap_or(1);
        let (lab, rounds, files) = (StagingLab::start(most)?, settings.rounds(), files(settings));
        Ok(Box::new(move |point| {
            let [nodes] = point.cells()?;
            let nodes = nodes.parse()?;
            let measure = |files, bytes| -> Result<f64> {
                let home = lab.files(files, bytes)?;
                let times = (0..rounds).map(|_| lab.stage_in(nodes, &home, files));
                Ok(median(times.collect::<Result<_>>()?))
            };
            let small_s = measure(files, FILE_BYTES)?;
            let large_s = measure(1, files * FILE_BYTES)?;
            Ok(vec![small_s, large_s, large_s / small_s])
        }))
    }
}
