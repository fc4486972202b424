//! `nfs-bandwidth`: what clients write and read through gateways, by the number of engines, gateways and
//! clients, with the block size of the old protocol and a large one (the paper's figures 5 and 6).

use anyhow::Result;

use super::fixture::{Cluster, NfsLab};
use super::load_client::{Load, mb_per_s};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

/// A fifth of Gigabit Ethernet: the links are the limit, not the machine that all hosts share.
const RATE: &str = "200mbit";
const MOST: usize = 4;
const FILE_BYTES: u64 = 16 << 20;
const QUICK_FILE_BYTES: u64 = 1 << 20;
const IN_FLIGHT: u16 = 8;
const BLOCKS: [(&str, &str); 2] = [("8192", "8 KiB"), ("1048576", "1 MiB")];

const ENGINES: Parameter = Parameter { name: "engines", title: "engines", cells: Cells::Plain };
const GATEWAYS: Parameter = Parameter { name: "gateways", title: "gateways", cells: Cells::Plain };
const CLIENTS: Parameter = Parameter { name: "clients", title: "clients", cells: Cells::Plain };
const BLOCK: Parameter =
    Parameter { name: "block_bytes", title: "block size", cells: Cells::Bytes };
const WRITE: &str = "write_mb_per_s";
const READ: &str = "read_mb_per_s";
/// What a page shows along the x axis.
const AXES: [Parameter; 3] = [ENGINES, GATEWAYS, CLIENTS];

pub(super) struct Bandwidth;

/// One of the three numbers runs from 1 to 4, while the others are 4.
fn clusters(settings: &Settings) -> Vec<[usize; 3]> {
    let counts: &[usize] = if settings.quick { &[1, MOST] } else { &[1, 2, 3, MOST] };
    let mut clusters = Vec::new();
    for axis in 0..AXES.len() {
        for &count in counts {
            let mut cluster = [MOST; 3];
            cluster[axis] = count;
            if !clusters.contains(&cluster) {
                clusters.push(cluster);
            }
        }
    }
    // A pool stays as long as the number of its engines.
    clusters.sort_unstable();
    clusters
}

fn file_bytes(settings: &Settings) -> u64 {
    settings.scaled(FILE_BYTES, QUICK_FILE_BYTES)
}

impl Experiment for Bandwidth {
    fn name(&self) -> &'static str {
        "nfs-bandwidth"
    }

    fn about(&self) -> &'static str {
        "Bandwidth of NFS clients by engines, gateways and clients, with blocks of 8 KiB and of 1 MiB"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "Engines with one target each, gateways and clients are hosts of their own, made by \
             `azekura-lab netlab` around one switch; each is on a link of 200 Mbit/s (23.5 MB/s of TCP), \
             so that the links and not the processors of this machine are the limit. What a gateway \
             moves passes its link twice, in different directions. Client i uses gateway i, modulo \
             their number. All clients begin together: each writes a file of its own of {} KiB three \
             times, with COMMIT at the end, of which the second time counts, then reads it three \
             times, likewise. {IN_FLIGHT} requests of a client are in flight; it has no cache. MB are \
             10^6 bytes, summed over the clients; each figure is of one run.",
            file_bytes(settings) >> 10,
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[ENGINES, GATEWAYS, CLIENTS, BLOCK] }
    }

    fn values(&self) -> &'static [Value] {
        const {
            &[
                Value { name: WRITE, title: "write, MB/s" },
                Value { name: READ, title: "read, MB/s" },
            ]
        }
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let at = |[engines, gateways, clients]: [usize; 3]| {
            BLOCKS.map(|(bytes, _)| {
                Point::of([
                    engines.to_string(),
                    gateways.to_string(),
                    clients.to_string(),
                    bytes.to_owned(),
                ])
            })
        };
        clusters(settings).into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |axis: usize, (file, title), value| Figure {
            file,
            title,
            x: AXES[axis].name,
            x_title: AXES[axis].title,
            x_scale: Scale::Linear,
            y_title: "MB/s",
            y_scale: Scale::Linear,
            lines: BLOCKS
                .map(|(bytes, title)| {
                    let others = AXES.iter().filter(|other| other.name != AXES[axis].name);
                    let mut only: Vec<_> =
                        others.map(|other| (other.name, MOST.to_string())).collect();
                    only.push((BLOCK.name, bytes.to_owned()));
                    Line { title: format!("blocks of {title}"), value, only }
                })
                .into(),
        };
        vec![
            figure(0, ("write-engines", "Write by engines, 4 gateways and 4 clients"), WRITE),
            figure(0, ("read-engines", "Read by engines, 4 gateways and 4 clients"), READ),
            figure(1, ("write-gateways", "Write by gateways, 4 engines and 4 clients"), WRITE),
            figure(1, ("read-gateways", "Read by gateways, 4 engines and 4 clients"), READ),
            figure(2, ("write-clients", "Write by clients, 4 engines and 4 gateways"), WRITE),
            figure(2, ("read-clients", "Read by clients, 4 engines and 4 gateways"), READ),
        ]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let most = Cluster { engines: MOST, gateways: MOST, clients: MOST };
        let (mut lab, file_bytes) = (NfsLab::start(most, RATE)?, file_bytes(settings));
        Ok(Box::new(move |point| {
            let [engines, gateways, clients, block] = point.cells()?;
            let cluster = Cluster {
                engines: engines.parse()?,
                gateways: gateways.parse()?,
                clients: clients.parse()?,
            };
            let phases: Vec<String> = ["write", "rewrite", "rewrite", "read", "read", "read"]
                .map(|phase| format!("{phase}:{block}"))
                .into();
            let load = Load { phases: &phases, file_bytes, files: 1, in_flight: IN_FLIGHT };
            let measured = lab.measure(cluster, &[], load)?;
            Ok(vec![mb_per_s(&measured, 1), mb_per_s(&measured, 4)])
        }))
    }
}
