//! `staging-plan`: the tree of suppliers that the policy plans, on up to ten thousand simulated nodes
//! of which some stall, die or come late, beside what the links allow.

use anyhow::{Context as _, Result};
use azekura_policy::simulation::{Staging, StagingOutcome};
use azekura_policy::spread::{Link, Shape};

use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};

const BYTES: Parameter = Parameter { name: "content_bytes", title: "content", cells: Cells::Bytes };
const NODES: Parameter = Parameter { name: "nodes", title: "nodes", cells: Cells::Plain };
const CASE: Parameter = Parameter { name: "case", title: "case", cells: Cells::Plain };
const OVER_LIMIT: &str = "last_byte_over_limit";

const VALUES: [Value; 9] = [
    Value { name: OVER_LIMIT, title: "last byte / limit" },
    Value { name: "last_byte_ms", title: "last byte, ms" },
    Value { name: "slow_over_limit", title: "slow ones / limit" },
    Value { name: "late_over_limit", title: "late ones / limit" },
    Value { name: "source_contents", title: "contents that the source sent" },
    Value { name: "moved_nodes", title: "moved nodes" },
    Value { name: "fan_out", title: "fan-out" },
    Value { name: "source_fan_out", title: "fan-out of the source" },
    Value { name: "piece_bytes", title: "piece, bytes" },
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Contents, each with its figure.
const CONTENTS: [(u64, &str, &str); 3] = [
    (8 * KIB, "8-kib", "8 KiB by nodes"),
    (MIB, "1-mib", "1 MiB by nodes"),
    (64 * MIB, "64-mib", "64 MiB by nodes"),
];
const COUNTS: [u32; 10] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000];
const QUICK_COUNTS: [u32; 2] = [16, 128];
/// Planned, and nothing happens; the same with trouble; and a chain whatever the size.
const CASES: [&str; 6] = ["planned", "slow", "dying", "late", "all", "chain"];
const UNTROUBLED: [&str; 2] = ["planned", "chain"];
/// 100 Mbit/s and 0.2 ms, as in the lab.
const LINK: Link = Link { bytes_per_second: 12_500_000, delay_us: 200, message_us: 20 };
/// Nodes of a thousand in trouble.
const SHARE_PER_MILLE: u32 = 63;
const SHARE_OF_EACH_PER_MILLE: u32 = 21;

pub(super) struct Plan;

fn counts(settings: &Settings) -> &'static [u32] {
    if settings.quick { &QUICK_COUNTS } else { &COUNTS }
}

fn staging(bytes: u64, nodes: u32, case: &str, seed: u64) -> Staging {
    let quiet = Staging { seed, ..Staging::new(bytes, nodes, LINK) };
    match case {
        "slow" => Staging { slow_per_mille: SHARE_PER_MILLE, ..quiet },
        "dying" => Staging { dying_per_mille: SHARE_PER_MILLE, ..quiet },
        "late" => Staging { late_per_mille: SHARE_PER_MILLE, ..quiet },
        "all" => Staging {
            slow_per_mille: SHARE_OF_EACH_PER_MILLE,
            dying_per_mille: SHARE_OF_EACH_PER_MILLE,
            late_per_mille: SHARE_OF_EACH_PER_MILLE,
            ..quiet
        },
        _ => quiet,
    }
}

fn shape_of(staging: &Staging, case: &str) -> Shape {
    let late = staging.nodes * staging.late_per_mille / 1000;
    let shape = Shape::choose(staging.bytes, (staging.nodes - late) as usize, 0, staging.links);
    match case {
        "chain" => Shape { fan_out: 1, source_fan_out: 1, ..shape },
        _ => shape,
    }
}

fn values(staging: &Staging, shape: Shape, outcome: &StagingOutcome) -> Vec<f64> {
    let limit_us = staging.physical_limit_us();
    vec![
        outcome.last_byte_us / limit_us,
        outcome.last_byte_us / 1e3,
        outcome.slow_last_byte_us / limit_us,
        outcome.late_longest_us / limit_us,
        outcome.source_sent_bytes as f64 / staging.bytes as f64,
        f64::from(outcome.moved),
        f64::from(shape.fan_out),
        f64::from(shape.source_fan_out),
        shape.piece_bytes as f64,
    ]
}

fn measure(point: &Point, rounds: usize) -> Result<Vec<f64>> {
    let [bytes, nodes, case] = point.cells()?;
    let (bytes, nodes) = (bytes.parse()?, nodes.parse()?);
    // Without trouble nothing is left to chance.
    let rounds = if UNTROUBLED.contains(&case) { 1 } else { rounds };
    let mut sums = vec![0.0; VALUES.len()];
    for seed in 1..=rounds as u64 {
        let staging = staging(bytes, nodes, case, seed);
        let shape = shape_of(&staging, case);
        let outcome = staging.run_with(shape);
        let reached = (outcome.without == 0).then_some(());
        reached.with_context(|| format!("{} nodes never got the content", outcome.without))?;
        for (sum, value) in sums.iter_mut().zip(values(&staging, shape, &outcome)) {
            *sum += value / rounds as f64;
        }
    }
    Ok(sums)
}

impl Experiment for Plan {
    fn name(&self) -> &'static str {
        "staging-plan"
    }

    fn about(&self) -> &'static str {
        "Time until the last node has the last byte, over what is physically possible, by nodes; in \
         simulation"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "No sockets: every machine, the source among them, is a full-duplex link of 100 Mbit/s \
             with a delay of 0.2 ms and 20 us a piece, and the policy that agents use says who asks \
             whom. The limit is max(S/F, S/B) + a ceil(log2 n) for a content of S bytes, rates F of \
             the source and B of the nodes and delay a. *planned* is the shape that the policy \
             chooses, *chain* one chain through all. In *slow*, *dying* and *late* that befalls \
             6.3 % of the nodes, one of 16, in *all* 2.1 % each, one of 48, at random times of the \
             transfer; slow links fall to a quarter; deaths and slow links are noticed after 0.5 s. \
             The last byte is that of nodes which are neither slow nor late; those have columns of \
             their own (late ones from their coming on). Figures with trouble are the mean of {} \
             draws.",
            settings.rounds()
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[BYTES, NODES, CASE] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let mut points = Vec::new();
        for (bytes, ..) in CONTENTS {
            for nodes in counts(settings) {
                let at =
                    |case: &str| Point::of([bytes.to_string(), nodes.to_string(), case.into()]);
                points.extend(CASES.map(at));
            }
        }
        points
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |(bytes, file, title): (u64, &'static str, &'static str)| {
            let line = |case: &str| Line {
                title: case.to_owned(),
                value: OVER_LIMIT,
                only: vec![(BYTES.name, bytes.to_string()), (CASE.name, case.to_owned())],
            };
            Figure {
                file,
                title,
                x: NODES.name,
                x_title: "nodes",
                x_scale: Scale::Powers,
                y_title: "last byte / limit",
                y_scale: Scale::Powers,
                lines: CASES.map(line).into(),
            }
        };
        CONTENTS.map(figure).into()
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let rounds = settings.rounds();
        Ok(Box::new(move |point| measure(point, rounds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_measured_and_the_planned_ones_are_near_the_limit() {
        let settings = Settings { quick: true, scale: 1.0, point_s: 1.0 };
        for point in Plan.points(&settings) {
            let values = measure(&point, 1).unwrap();
            assert!(values.iter().all(|value| value.is_finite()));
            let [_, _, case] = point.cells().unwrap();
            assert!(
                values[0] >= 1.0 && (case != "planned" || values[0] < 3.0),
                "{point:?} {values:?}"
            );
        }
    }
}
