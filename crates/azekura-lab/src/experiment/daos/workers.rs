//! `daos-workers`: bandwidth and busy cores by the number of processes, each of which has a thread of its own in
//! the engine. It says why `daos-targets` is flat on a machine of few cores: what is busy, and since when.

use std::time::Instant;

use anyhow::{Context as _, Result};
use azekura::report::format_bytes;
use azekura_proto::ObjectClass;

use super::bandwidth::{self, Files, READ, WRITE};
use super::fixture::{BY_REQUESTS, Conditions, Fixture, PROCESSES};
use super::phase;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, ROUNDS, Settings, Value,
};
use crate::experiment::spread::join;

const TARGETS: Parameter = Parameter { name: "targets", title: "targets", cells: Cells::Plain };
const COUNT: Parameter = Parameter { name: "processes", title: "processes", cells: Cells::Plain };
const ENGINE: Value = Value { name: "engine_cores", title: "busy cores, engine" };
const ALL: Value = Value { name: "busy_cores", title: "busy cores, all" };
/// One target, and as many as the paper's server had where it stopped growing.
const TARGET_COUNTS: [u16; 2] = [1, 8];
/// As in `daos-targets`.
const TRANSFER_BYTES: u64 = 64 << 10;

pub(super) struct Workers;

/// In what `/proc` counts processor time.
fn ticks_per_s() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Seconds of processor time that a process has had so far.
fn process_cpu_s(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which stands in brackets, may have spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / ticks_per_s())
}

/// Seconds of processor time that everybody on this machine has had so far.
fn machine_cpu_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
    // User, nice and system; then idle and waiting for disks; then interrupts.
    let busy: f64 = ticks.iter().take(3).chain(ticks.iter().skip(5).take(2)).sum();
    Some(busy / ticks_per_s())
}

/// Processor time so far: of the engine, with its process id, and of all.
fn cpu_s(fixture: &Fixture) -> Result<(Option<(u32, f64)>, f64)> {
    let engine = fixture.engine_pid().and_then(|pid| Some((pid, process_cpu_s(pid)?)));
    Ok((engine, machine_cpu_s().context("cannot read /proc/stat")?))
}

impl Experiment for Workers {
    fn name(&self) -> &'static str {
        "daos-workers"
    }

    fn about(&self) -> &'static str {
        "Bandwidth and busy cores by the number of processes, with one target and with eight"
    }

    fn method(&self, settings: &Settings) -> String {
        format!(
            "As in daos-targets: processes write and then read, through the native path, a file each \
             (N-N) on one target, in transfers of {}, {} in all; the engine, on the same host, serves \
             the connection of each with a thread of its own. Busy cores are processor time over \
             time, as /proc tells them, from the start of a point to its end: those of the engine, \
             and those of everybody on the machine. {BY_REQUESTS} {} {}",
            format_bytes(TRANSFER_BYTES),
            format_bytes(bandwidth::part_bytes(settings) * PROCESSES as u64),
            phase::described(settings, bandwidth::PHASES),
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[TARGETS, COUNT] }
    }

    fn values(&self) -> &'static [Value] {
        const COLUMNS: [Value; 8] = join(bandwidth::VALUES, [ENGINE, ALL]);
        &COLUMNS
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let counts: &[u16] = if settings.quick { &[1, 2] } else { &[1, 2, 4, 8, 16, 32] };
        let at = |targets: u16| {
            counts.iter().map(move |count| Point::of([targets.to_string(), count.to_string()]))
        };
        TARGET_COUNTS.into_iter().flat_map(at).collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let figure = |file, title, y_title, values: [(&str, &'static str); 2]| Figure {
            file,
            title,
            x: COUNT.name,
            x_title: "processes",
            x_scale: Scale::Powers,
            y_title,
            y_scale: Scale::Linear,
            lines: values
                .into_iter()
                .flat_map(|(name, value)| {
                    TARGET_COUNTS.map(|targets| Line {
                        title: format!("{name}, {targets} targets"),
                        value,
                        only: vec![(TARGETS.name, targets.to_string())],
                    })
                })
                .collect(),
        };
        vec![
            figure(
                "bandwidth",
                "Bandwidth by processes",
                "MiB/s",
                [("read", READ), ("write", WRITE)],
            ),
            figure("cores", "Busy cores", "cores", [("engine", ENGINE.name), ("all", ALL.name)]),
        ]
    }

    fn least_point_s(&self) -> f64 {
        phase::least_point_s(bandwidth::PHASES, ROUNDS)
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut fixture, settings) = (Fixture::default(), *settings);
        let limit_ms = settings.share_ms(bandwidth::PHASES * settings.rounds());
        Ok(Box::new(move |point| {
            let [targets, processes] = point.cells()?;
            let (targets, processes) = (targets.parse()?, processes.parse()?);
            let class = ObjectClass::S1;
            let conditions = Conditions { targets, class, processes, ..Conditions::default() };
            let (before, began) = (cpu_s(&fixture)?, Instant::now());
            let (files, bytes) = (Files::PerProcess, TRANSFER_BYTES);
            let mut values =
                bandwidth::measure(&mut fixture, conditions, files, bytes, &settings, limit_ms)?;
            let (after, seconds) = (cpu_s(&fixture)?, began.elapsed().as_secs_f64());
            let (pid, engine_s) = after.0.context("the engine is not there any more")?;
            // An engine that was started for this point has had nothing before.
            let had_s = before.0.filter(|(same, _)| *same == pid).map_or(0.0, |(_, had_s)| had_s);
            values.extend([(engine_s - had_s) / seconds, (after.1 - before.1) / seconds]);
            Ok(values)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_known_and_grows() {
        let (own, all) = (process_cpu_s(std::process::id()).unwrap(), machine_cpu_s().unwrap());
        assert!(own <= all, "{own} {all}");
        let begun = Instant::now();
        while begun.elapsed().as_millis() < 60 {}
        assert!(machine_cpu_s().unwrap() > all);
    }
}
