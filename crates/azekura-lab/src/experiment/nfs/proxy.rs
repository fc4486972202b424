//! `nfs-paper`: a gateway that behaves as the paper's proxy did, beside the gateway as it ships: blocks of
//! 8 KiB, each write sent on by itself, and answers in two small writes to a socket without
//! `TCP_NODELAY`, of which the second waits until the client acknowledges the first.

use anyhow::{Context as _, Result};

use super::fixture::{Cluster, NfsLab};
use super::load_client::{Load, mb_per_s};
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const RATE: &str = "1gbit";
const ONE_OF_EACH: Cluster = Cluster { engines: 1, gateways: 1, clients: 1 };
const BLOCK: &str = "1MiB";
const GATEWAY: Parameter = Parameter { name: "gateway", title: "gateway", cells: Cells::Plain };
const IN_FLIGHT: Parameter =
    Parameter { name: "in_flight", title: "requests in flight", cells: Cells::Plain };
const WRITE: &str = "write_mb_per_s";
const READ: &str = "read_mb_per_s";
const CREATE: &str = "create_per_s";

/// A gateway: its name, its options, and how much it is given to do by each request in flight.
struct Kind {
    name: &'static str,
    options: &'static [&'static str],
    /// Of the file.
    bytes: u64,
    files: u64,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "paper",
        options: &["--block", "8KiB", "--coalesce", "off"],
        bytes: 512 << 10,
        files: 64,
    },
    Kind { name: "8KiB", options: &["--block", "8KiB"], bytes: 4 << 20, files: 1000 },
    Kind { name: "shipped", options: &[], bytes: 16 << 20, files: 1000 },
];

pub(super) struct Proxy;

impl Experiment for Proxy {
    fn name(&self) -> &'static str {
        "nfs-paper"
    }

    fn about(&self) -> &'static str {
        "The stall of a proxy with small blocks and small writes to its sockets, and the gateway without it"
    }

    fn method(&self, _settings: &Settings) -> String {
        "One engine with one target, one gateway and one client, hosts of their own, made by `azekura-lab \
         netlab`, on links of 1 Gbit/s to one switch. The client asks for blocks of 1 MiB, or as large \
         as the gateway takes. *paper* is a gateway with `--block 8KiB --coalesce off`: FSINFO says 8 KiB, \
         each write goes to the engine by itself, and an answer is two small writes to a socket without \
         TCP_NODELAY. Then the end of an answer waits for the acknowledgement of its beginning (Nagle's \
         algorithm), which the client's kernel delays by about 40 ms when it has nothing to send; the \
         answer to a READ fills whole segments, and those do not wait. *8KiB* is a gateway with `--block \
         8KiB` only, and *shipped* one without options. Latencies are medians of single requests. MB are 10^6 bytes; each figure is of one run, and of little data where it is \
         slow."
            .to_owned()
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[GATEWAY, IN_FLIGHT] }
    }

    fn values(&self) -> &'static [Value] {
        const {
            &[
                Value { name: WRITE, title: "write, MB/s" },
                Value { name: READ, title: "read, MB/s" },
                Value { name: CREATE, title: "create, files/s" },
                Value { name: "write_ms", title: "a WRITE, ms" },
                Value { name: "read_ms", title: "a READ, ms" },
                Value { name: "create_ms", title: "a CREATE, ms" },
            ]
        }
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u16] = if settings.quick { &[1] } else { &[1, 2, 4, 8] };
        KINDS
            .iter()
            .flat_map(|kind| counts.iter().map(|n| Point::of([kind.name.into(), n.to_string()])))
            .collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, value, y_title| Figure {
            file,
            title,
            x: IN_FLIGHT.name,
            x_title: IN_FLIGHT.title,
            x_scale: Scale::Powers,
            y_title,
            y_scale: Scale::Linear,
            lines: KINDS
                .iter()
                .map(|kind| Line {
                    title: kind.name.to_owned(),
                    value,
                    only: vec![(GATEWAY.name, kind.name.to_owned())],
                })
                .collect(),
        };
        vec![
            figure("write", "Write by requests in flight", WRITE, "MB/s"),
            figure("read", "Read by requests in flight", READ, "MB/s"),
            figure("create", "Create by requests in flight", CREATE, "files/s"),
        ]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut lab, settings) = (NfsLab::start(ONE_OF_EACH, RATE)?, *settings);
        let phases = [format!("write:{BLOCK}"), format!("read:{BLOCK}"), "create".to_owned()];
        Ok(Box::new(move |point| {
            let [gateway, in_flight] = point.cells()?;
            let kind = KINDS.iter().find(|kind| kind.name == gateway).context("no such gateway")?;
            let in_flight: u16 = in_flight.parse()?;
            let load = Load {
                phases: &phases,
                file_bytes: settings.scaled(kind.bytes * u64::from(in_flight), 128 << 10),
                files: settings.scaled(kind.files * u64::from(in_flight), 16),
                in_flight,
            };
            let measured = lab.measure(ONE_OF_EACH, kind.options, load)?;
            let phases = measured.first().context("no client told anything")?;
            let [write, read, create] = phases.as_slice() else {
                anyhow::bail!("the client told of {} phases", phases.len());
            };
            Ok(vec![
                mb_per_s(&measured, 0),
                mb_per_s(&measured, 1),
                create.operations as f64 / create.seconds.max(1e-9),
                write.latency_us.p50 / 1000.0,
                read.latency_us.p50 / 1000.0,
                create.latency_us.p50 / 1000.0,
            ])
        }))
    }
}
