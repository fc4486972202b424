//! How labs are, and how exact: tables, and JSON for programs.

use anyhow::{Context as _, Result, bail};
use azekura::outcome::Verdict;
use azekura::report::{self, Table, format_duration_s};
use azekura_netlab::control::{self, Answer, Request};
use azekura_netlab::selftest::{self, Figure};
use azekura_netlab::{DirectionStatus, LabStatus, quantity};
use serde::Serialize;

use super::args::{SelftestArgs, StatusArgs};
use super::which::scope;

pub(super) fn status(args: &StatusArgs) -> Result<()> {
    let scope = scope()?;
    let names = match &args.which.lab {
        Some(name) => vec![name.clone()],
        None => control::names(&scope).context("cannot read /proc/net/unix")?,
    };
    let mut labs = Vec::new();
    for name in names {
        match control::ask(&scope, &name, &Request::Status) {
            Ok(Answer::Status(lab)) => labs.push(*lab),
            Ok(_) => bail!("lab '{name}' gave no status"),
            // One that was only found in the list may have ended since.
            Err(_) if args.which.lab.is_none() && !control::names(&scope)?.contains(&name) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if args.json {
        return report::say_json(&labs);
    }
    if labs.is_empty() {
        report::say("no lab is running");
    }
    for (index, lab) in labs.iter().enumerate() {
        if index > 0 {
            report::say("");
        }
        show(lab);
    }
    Ok(())
}

fn show(lab: &LabStatus) {
    report::say(format_args!(
        "lab '{}': up for {}, process {}, {:.1} % of a core{}",
        lab.name,
        format_duration_s(lab.uptime_s as u64),
        lab.pid,
        100.0 * lab.relay_cpu_s / lab.uptime_s.max(1e-3),
        if lab.real_time { "" } else { " (no real-time priority: less exact when others work)" }
    ));
    let mut hosts = Table::new(&["HOST", "ADDRESS", "STATE"]);
    for host in &lab.hosts {
        hosts.row([host.name.clone(), host.address.to_string(), host.state.name().to_owned()]);
    }
    report::say(format_args!("\n{hosts}"));
    if lab.links.is_empty() {
        return;
    }
    let mut links = Table::new(&[
        "LINK",
        "DIRECTION",
        "STATE",
        ">DELAY",
        ">JITTER",
        ">RATE",
        ">LOSS",
        ">QUEUE",
        ">PACKETS",
        ">DROPPED",
        ">LOST",
    ]);
    for (name, direction) in
        lab.links.iter().flat_map(|l| l.directions.iter().map(|d| (&l.name, d)))
    {
        links.row(direction_row(name, direction));
    }
    report::say(format_args!("\n{links}"));
}

fn direction_row(link: &str, direction: &DirectionStatus) -> [String; 11] {
    let delay = |us: f64| quantity::format_delay((us * 1e3) as u64);
    let counters = &direction.counters;
    let dropped = counters.queue_drops + counters.down_drops + counters.memory_drops;
    [
        link.to_owned(),
        format!("{}->{}", direction.from, direction.to),
        if direction.up { "up" } else { "down" }.to_owned(),
        delay(direction.delay_us),
        delay(direction.jitter_us),
        quantity::format_rate(direction.rate_bits_per_s),
        quantity::format_share(direction.loss),
        direction.queue.clone(),
        counters.packets.to_string(),
        dropped.to_string(),
        counters.lost.to_string(),
    ]
}

#[derive(Serialize)]
struct FigureReport<'a> {
    #[serde(flatten)]
    figure: &'a Figure,
    good: bool,
}

pub(super) fn selftest(args: &SelftestArgs) -> Result<Verdict> {
    let mut all: Vec<Figure> = Vec::new();
    let ran = selftest::run(|figure| {
        if !args.json {
            let bound = if figure.at_most {
                format!("at most {:.3}", figure.expected + figure.tolerance)
            } else {
                format!("{:.3} +- {:.3}", figure.expected, figure.tolerance)
            };
            let verdict = if figure.is_good() { "good" } else { "BAD" };
            report::say(format_args!(
                "{:<58} {:>9.3} {:<5}  ({bound})  {verdict}",
                figure.what, figure.measured, figure.unit
            ));
        }
        all.push(figure);
    });
    ran?;
    if args.json {
        let told: Vec<_> =
            all.iter().map(|figure| FigureReport { good: figure.is_good(), figure }).collect();
        report::say_json(&told)?;
    }
    Ok(if all.iter().all(Figure::is_good) { Verdict::Good } else { Verdict::Bad })
}
