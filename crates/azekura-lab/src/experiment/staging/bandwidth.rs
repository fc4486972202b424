//! `staging-in`: the aggregate bandwidth of one file that goes to all nodes, by nodes and by its length,
//! beside all nodes reading it from one server: the stage-in figure of the Catwalk paper.

use anyhow::Result;

use super::copy;
use super::fixture::{LINK_BYTES_PER_S, METHOD, NODES_MAX, StagingLab, median};
use super::job::METHOD_IN;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const BYTES: Parameter = Parameter { name: "file_bytes", title: "file", cells: Cells::Bytes };
const NODES: Parameter = Parameter { name: "nodes", title: "nodes", cells: Cells::Plain };
const WAY: Parameter = Parameter { name: "way", title: "way", cells: Cells::Plain };
const AGGREGATE: &str = "aggregate_mb_per_s";
const STAGING: &str = "staging";
const COPY: &str = "copy";

const MIB: u64 = 1 << 20;
const SIZES: [(u64, &str); 4] =
    [(MIB, "1 MiB"), (4 * MIB, "4 MiB"), (16 * MIB, "16 MiB"), (64 * MIB, "64 MiB")];
const COUNTS: [usize; 5] = [1, 2, 4, 8, NODES_MAX];
const QUICK_COUNTS: [usize; 2] = [1, 2];

pub(super) struct StageIn;

fn counts(settings: &Settings) -> &'static [usize] {
    if settings.quick { &QUICK_COUNTS } else { &COUNTS }
}

fn most(settings: &Settings) -> usize {
    counts(settings).iter().copied().max().unwrap_or(1)
}

/// Lengths of files, each with the name of its line.
fn sizes(settings: &Settings) -> Vec<(u64, &'static str)> {
    let sizes = if settings.quick { &SIZES[3..] } else { &SIZES[..] };
    let mut sizes: Vec<_> =
        sizes.iter().map(|(bytes, name)| (settings.scaled(*bytes, 1), *name)).collect();
    sizes.dedup_by_key(|(bytes, _)| *bytes);
    sizes
}

impl Experiment for StageIn {
    fn name(&self) -> &'static str {
        "staging-in"
    }

    fn about(&self) -> &'static str {
        "Aggregate bandwidth of a file that is staged to all nodes, by nodes and by length, beside plain \
         copies from one server"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{METHOD} {METHOD_IN} {} Aggregate bandwidth is the file's length times the nodes, over the time; its share \
             is of what the links of the nodes carry in one direction, 12.5 MB/s each. MB are 10^6 \
             bytes. Figures of staging are medians of {} jobs, each with agents of its own; those of \
             copy are of one run.",
            copy::METHOD_IN,
            settings.rounds()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[BYTES, NODES, WAY] }
    }

    fn values(&self) -> &'static [Value] {
        const {
            &[
                Value { name: AGGREGATE, title: "aggregate, MB/s" },
                Value { name: "share_of_links", title: "share of the links" },
                Value { name: "seconds", title: "seconds" },
            ]
        }
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for (bytes, _) in sizes(settings) {
            for nodes in counts(settings) {
                let at = |way: &str| Point::of([bytes.to_string(), nodes.to_string(), way.into()]);
                points.extend([STAGING, COPY].map(at));
            }
        }
        points
    }

    fn figures(&self, settings: &Settings) -> Vec<Figure> {
        let of_size = |way: &'static str| {
            sizes(settings).into_iter().map(move |(bytes, name)| Line {
                title: format!("{way}, {name}"),
                value: AGGREGATE,
                only: vec![(BYTES.name, bytes.to_string()), (WAY.name, way.to_owned())],
            })
        };
        let all = most(settings).to_string();
        let of_way = |way: &str| Line {
            title: way.to_owned(),
            value: AGGREGATE,
            only: vec![(NODES.name, all.clone()), (WAY.name, way.to_owned())],
        };
        let figure = |file, title, x: Parameter, lines| Figure {
            file,
            title,
            x: x.name,
            x_title: x.title,
            x_scale: Scale::Powers,
            y_title: "aggregate MB/s",
            y_scale: Scale::Linear,
            lines,
        };
        let by_nodes = of_size(STAGING).chain(of_size(COPY)).collect();
        vec![
            figure("nodes", "Aggregate bandwidth by nodes", NODES, by_nodes),
            figure(
                "size",
                "Aggregate bandwidth to all nodes by the file's length",
                BYTES,
                vec![of_way(STAGING), of_way(COPY)],
            ),
        ]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (lab, rounds) = (StagingLab::start(most(settings))?, settings.rounds());
        Ok(Box::new(move |point| {
            let [bytes, nodes, way] = point.cells()?;
            let (bytes, nodes): (u64, usize) = (bytes.parse()?, nodes.parse()?);
            let home = lab.files(1, bytes)?;
            let time_s = if way == COPY {
                copy::from_server(&lab, nodes, &home.join("0/0"))?
            } else {
                let times = (0..rounds).map(|_| lab.stage_in(nodes, &home, 1));
                median(times.collect::<Result<_>>()?)
            };
            let aggregate = bytes as f64 * nodes as f64 / time_s;
            Ok(vec![aggregate / 1e6, aggregate / (nodes as f64 * LINK_BYTES_PER_S), time_s])
        }))
    }
}
