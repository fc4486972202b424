//! `staging-out`: the bandwidth at which a file of each node comes home, by nodes and by its length, beside nodes
//! that copy theirs to the server: the stage-out figure of the Catwalk paper.

use anyhow::{Result, bail};

use super::copy;
use super::fixture::{LINK_BYTES_PER_S, METHOD, NODES_MAX, StagingLab, median};
use super::job::METHOD_OUT;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const BYTES: Parameter = Parameter { name: "file_bytes", title: "file", cells: Cells::Bytes };
const NODES: Parameter = Parameter { name: "nodes", title: "nodes", cells: Cells::Plain };
const WAY: Parameter = Parameter { name: "way", title: "way", cells: Cells::Plain };
const AGGREGATE: &str = "aggregate_mb_per_s";
/// Several nodes at a time, as many as is usual.
const STAGING: &str = "staging";
/// One node after the other.
const TOKEN: &str = "token";
const COPY: &str = "copy";
const WAYS: [&str; 3] = [STAGING, TOKEN, COPY];

const MIB: u64 = 1 << 20;
const SIZES: [(u64, &str); 3] = [(MIB, "1 MiB"), (4 * MIB, "4 MiB"), (16 * MIB, "16 MiB")];
const COUNTS: [usize; 5] = [1, 2, 4, 8, NODES_MAX];
const QUICK_COUNTS: [usize; 2] = [1, 2];

pub(super) struct StageOut;

fn counts(settings: &Settings) -> &'static [usize] {
    if settings.quick { &QUICK_COUNTS } else { &COUNTS }
}

fn most(settings: &Settings) -> usize {
    counts(settings).iter().copied().max().unwrap_or(1)
}

/// Lengths of files, each with the name of its line.
fn sizes(settings: &Settings) -> Vec<(u64, &'static str)> {
    let sizes = if settings.quick { &SIZES[2..] } else { &SIZES[..] };
    let mut sizes: Vec<_> =
        sizes.iter().map(|(bytes, name)| (settings.scaled(*bytes, 1), *name)).collect();
    sizes.dedup_by_key(|(bytes, _)| *bytes);
    sizes
}

fn measure(lab: &StagingLab, nodes: usize, bytes: u64, way: &str, rounds: usize) -> Result<f64> {
    let concurrency = match way {
        STAGING => None,
        TOKEN => Some(1),
        COPY => return copy::to_server(lab, nodes, bytes),
        _ => bail!("nothing is known of the way '{way}'"),
    };
    let times = (0..rounds).map(|_| lab.stage_out(nodes, bytes, concurrency));
    Ok(median(times.collect::<Result<_>>()?))
}

impl Experiment for StageOut {
    fn name(&self) -> &'static str {
        "staging-out"
    }

    fn about(&self) -> &'static str {
        "Aggregate bandwidth of files that go home, one of each node, by nodes and by length, beside plain \
         copies to one server"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "{METHOD} {METHOD_OUT} Four nodes send at a time; *token* is the same with `--out-concurrency 1`, the \
             order of the paper, where one node sends after the other. {} Aggregate bandwidth is the \
             file's length times the nodes, over the time; its share is of what the link of the server carries in \
             one direction, 12.5 MB/s. MB are 10^6 bytes. Figures of staging and token are medians of {} \
             jobs, each with agents of its own; those of copy are of one run.",
            copy::METHOD_OUT,
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
                Value { name: "share_of_link", title: "share of the link" },
                Value { name: "seconds", title: "seconds" },
            ]
        }
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for (bytes, _) in sizes(settings) {
            for nodes in counts(settings) {
                let at = |way: &str| Point::of([bytes.to_string(), nodes.to_string(), way.into()]);
                points.extend(WAYS.map(at));
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
        vec![
            figure(
                "nodes",
                "Aggregate bandwidth by nodes",
                NODES,
                WAYS.into_iter().flat_map(of_size).collect(),
            ),
            figure(
                "size",
                "Aggregate bandwidth of all nodes by the file's length",
                BYTES,
                WAYS.map(of_way).into(),
            ),
        ]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (lab, rounds) = (StagingLab::start(most(settings))?, settings.rounds());
        Ok(Box::new(move |point| {
            let [bytes, nodes, way] = point.cells()?;
            let (bytes, nodes): (u64, usize) = (bytes.parse()?, nodes.parse()?);
            let time_s = measure(&lab, nodes, bytes, way, rounds)?;
            let aggregate = bytes as f64 * nodes as f64 / time_s;
            Ok(vec![aggregate / 1e6, aggregate / LINK_BYTES_PER_S, time_s])
        }))
    }
}
