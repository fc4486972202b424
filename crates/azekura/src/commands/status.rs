//! `azekura status`: how pools are. Owns the JSON form that other programs read. Asks every engine
//! by itself, so that one that is down keeps nothing from being said about the others.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use azekura_client::pools_dir;
use azekura_proto::EngineId;
use azekura_proto::message::{EngineReport, SpaceStat, TargetReport};
use azekura_proto::pool_map::PoolMap;
use azekura_wire::Secret;
use clap::Args;
use serde::Serialize;

use super::serve;
use crate::host::gateways::{self, GatewayStatus};
use crate::host::mounts::{self, MountEntry};
use crate::host::records::{self, LocalPool};
use crate::outcome::Verdict;
use crate::report::{self, Table, format_bytes, format_duration_s, format_rate};
use crate::{asking, connect};

/// `azekura status`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura status                   all pools known here\n  \
    azekura status default --json    one pool, for programs\n\n\
    JSON has {\"pools\": [...]} in both cases. The exit code is 1 if an engine is down.")]
pub(crate) struct StatusArgs {
    /// Name, file or URL of the pool [default: all known here]
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How an engine is; a pool is as the worst of its engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Up,
    Stopping,
    #[default]
    Down,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Stopping => "stopping",
            Self::Down => "down",
        }
    }
}

#[derive(Debug, Serialize)]
struct TargetStatus {
    id: u16,
    path: String,
    total_bytes: u64,
    available_bytes: u64,
    objects: u64,
    reclaim_backlog: u64,
    transactions: u64,
    set_aside: u64,
}

impl From<&TargetReport> for TargetStatus {
    fn from(target: &TargetReport) -> Self {
        Self {
            id: target.target.0,
            path: target.path.clone(),
            total_bytes: target.space.total_bytes,
            available_bytes: target.space.available_bytes,
            objects: target.space.objects,
            reclaim_backlog: target.reclaim_backlog,
            transactions: target.transactions,
            set_aside: target.set_aside,
        }
    }
}

#[allow(clippy::struct_field_names)] // Names that programs read carry their unit.
#[derive(Debug, Default, Serialize)]
struct Rates {
    requests_per_s: u64,
    read_bytes_per_s: u64,
    written_bytes_per_s: u64,
}

impl Rates {
    fn add(&mut self, other: &Self) {
        self.requests_per_s += other.requests_per_s;
        self.read_bytes_per_s += other.read_bytes_per_s;
        self.written_bytes_per_s += other.written_bytes_per_s;
    }
}

#[derive(Debug, Default, Serialize)]
struct EngineStatus {
    id: u16,
    pid: Option<u32>,
    addresses: Vec<String>,
    state: State,
    /// Why it is taken to be down.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// It runs and cannot be reached: what to do.
    #[serde(skip)]
    lost: Option<String>,
    uptime_s: u64,
    targets: Vec<TargetStatus>,
    sessions: u64,
    connections: u64,
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
    resident_bytes: u64,
    rates: Rates,
}

#[derive(Debug, Default, Serialize)]
struct Space {
    total_bytes: u64,
    available_bytes: u64,
}

/// How a pool is.
#[derive(Debug, Serialize)]
pub(crate) struct PoolStatus {
    name: String,
    pool: String,
    state: State,
    engines: Vec<EngineStatus>,
    /// Targets of the whole pool.
    targets: u16,
    space: Space,
    objects: u64,
    rates: Rates,
    mounts: Vec<String>,
    /// Those whose process has died: `azekura umount` cleans up.
    dead_mounts: Vec<String>,
    /// NFS gateways that run here.
    gateways: Vec<GatewayStatus>,
}

impl EngineStatus {
    fn down(id: u16, addresses: Vec<String>, error: &anyhow::Error) -> Self {
        Self { id, addresses, error: Some(report::explain(error)), ..Self::default() }
    }

    fn up(id: u16, addresses: Vec<String>, report: &EngineReport) -> Self {
        Self {
            id,
            pid: Some(report.pid),
            addresses,
            state: if report.stopping { State::Stopping } else { State::Up },
            error: None,
            lost: None,
            uptime_s: report.uptime_s,
            targets: report.targets.iter().map(TargetStatus::from).collect(),
            sessions: report.sessions,
            connections: report.connections,
            requests: report.requests,
            read_bytes: report.read_bytes,
            written_bytes: report.written_bytes,
            resident_bytes: report.resident_bytes,
            rates: Rates {
                requests_per_s: report.requests_per_s,
                read_bytes_per_s: report.read_bytes_per_s,
                written_bytes_per_s: report.written_bytes_per_s,
            },
        }
    }
}

/// Space of a pool; targets that share a file system count it once.
fn space_of(reports: &[(EngineId, EngineReport)]) -> Space {
    let mut devices: BTreeMap<(u16, u64), SpaceStat> = BTreeMap::new();
    for (engine, report) in reports {
        for target in &report.targets {
            devices.insert((engine.0, target.space.device), target.space);
        }
    }
    Space {
        total_bytes: devices.values().map(|space| space.total_bytes).sum(),
        available_bytes: devices.values().map(|space| space.available_bytes).sum(),
    }
}

impl PoolStatus {
    /// Asks all engines of a pool.
    fn ask(map: &PoolMap, secret: &Secret) -> Self {
        let mut reports = Vec::new();
        let mut engines = Vec::new();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..map.engines.len() as u16)
                .map(|id| scope.spawn(move || asking::ask_engine(map, EngineId(id), secret)))
                .collect();
            asked.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        for (index, (engine, answer)) in map.engines.iter().zip(answers).enumerate() {
            let id = index as u16;
            let addresses = engine.addresses.iter().map(ToString::to_string).collect();
            let answer = answer.unwrap_or_else(|_| Err(anyhow::anyhow!("asking it failed")));
            engines.push(match answer {
                Ok((_, report)) => {
                    let status = EngineStatus::up(id, addresses, &report);
                    reports.push((EngineId(id), report));
                    status
                }
                Err(error) => EngineStatus {
                    lost: lost(map, EngineId(id)),
                    ..EngineStatus::down(id, addresses, &error)
                },
            });
        }
        let mut rates = Rates::default();
        for engine in &engines {
            rates.add(&engine.rates);
        }
        let state = engines.iter().map(|engine| engine.state).max().unwrap_or(State::Up);
        let mounted = mounts::of(map).unwrap_or_default();
        let shown = |mount: &MountEntry| mount.dir.display().to_string();
        Self {
            name: map.name.clone(),
            pool: map.pool.to_string(),
            state,
            targets: map.target_count(),
            space: space_of(&reports),
            objects: engines.iter().flat_map(|engine| &engine.targets).map(|t| t.objects).sum(),
            rates,
            mounts: mounted.iter().map(shown).collect(),
            dead_mounts: mounted.iter().filter(|m| mounts::is_dead(&m.dir)).map(shown).collect(),
            gateways: gateways::of(map).unwrap_or_default(),
            engines,
        }
    }
}

impl PoolStatus {
    /// The mounts, dead ones with that said behind them.
    fn shown_mounts(&self, dead: &str) -> Vec<String> {
        let mark = |dir: &String| if self.dead_mounts.contains(dir) { dead } else { "" };
        self.mounts.iter().map(|dir| format!("{dir}{}", mark(dir))).collect()
    }
}

/// What to do about an engine of this machine that runs and has lost its sockets.
fn lost(map: &PoolMap, engine: EngineId) -> Option<String> {
    let gone = asking::without_sockets(map, engine)?;
    let record: LocalPool = records::load(&map.name).ok().flatten()?;
    let pid = serve::running_engine(record.pid)?.as_raw_pid();
    let name = &map.name;
    Some(format!(
        "pool '{name}' runs (process {pid}) but cannot be reached: {gone}; 'azekura down {name}' and \
         'azekura up --name {name}' start it anew"
    ))
}

/// Names of the pools that have a pool file here.
pub(crate) fn known_pools() -> Result<Vec<String>> {
    let dir = pools_dir();
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", dir.display())),
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Runs the command.
///
/// # Errors
/// If a pool file cannot be used.
pub(crate) fn run(args: &StatusArgs) -> Result<Verdict> {
    let names = match &args.pool {
        Some(pool) => vec![pool.clone()],
        None => known_pools()?,
    };
    let mut all = Vec::new();
    for name in &names {
        let found = connect::pool_file(name).and_then(|file| Ok((file.secret()?, file.map)));
        match found {
            Ok((secret, map)) => all.push(PoolStatus::ask(&map, &secret)),
            Err(error) if args.pool.is_none() => {
                report::note(format_args!(
                    "azekura: {error}; if pool '{name}' is lost, run 'azekura pool forget {name}'"
                ));
            }
            Err(error) => return Err(error),
        }
    }
    let good = all.iter().all(|pool| pool.state != State::Down);
    match (args.json, args.pool.is_some(), all.first()) {
        // One form, however many pools were asked for: programs need not know which.
        (true, _, _) => report::say_json(&serde_json::json!({ "pools": all }))?,
        (false, true, Some(only)) => show_one(only),
        (false, _, None) => {
            report::say("no pool is known here; 'azekura up' starts one");
        }
        (false, _, Some(_)) => show_all(&all),
    }
    Ok(if good { Verdict::Good } else { Verdict::Bad })
}

fn show_all(all: &[PoolStatus]) {
    let mut table =
        Table::new(&["pool", "state", ">engines", ">targets", ">free", ">of", "mounted at"]);
    for pool in all {
        let up = pool.engines.iter().filter(|engine| engine.state == State::Up).count();
        table.row([
            pool.name.clone(),
            pool.state.name().to_owned(),
            format!("{up}/{}", pool.engines.len()),
            pool.targets.to_string(),
            format_bytes(pool.space.available_bytes),
            format_bytes(pool.space.total_bytes),
            pool.shown_mounts(" (dead)").join(", "),
        ]);
    }
    report::say(table);
}

fn show_gateways(gateways: &[GatewayStatus]) {
    if gateways.is_empty() {
        return;
    }
    let mut table = Table::new(&[
        "gateway",
        ">pid",
        ">up for",
        ">clients",
        ">connections",
        ">calls/s",
        ">received/s",
        ">sent/s",
        "container",
        "exports",
    ]);
    for gateway in gateways {
        table.row([
            gateway.identity.address.clone(),
            gateway.identity.pid.to_string(),
            format_duration_s(gateway.uptime_s),
            gateway.clients.len().to_string(),
            gateway.connections.to_string(),
            format_rate(gateway.rates.calls_per_s as f64),
            format_bytes(gateway.rates.received_bytes_per_s),
            format_bytes(gateway.rates.sent_bytes_per_s),
            gateway.identity.container.clone(),
            gateway.exports.join(" "),
        ]);
    }
    report::say(table);
}

fn show_one(pool: &PoolStatus) {
    report::say(format_args!(
        "pool '{}' is {}: {} targets at {} engine{}, {} of {} free, {} objects",
        pool.name,
        pool.state.name(),
        pool.targets,
        pool.engines.len(),
        if pool.engines.len() == 1 { "" } else { "s" },
        format_bytes(pool.space.available_bytes),
        format_bytes(pool.space.total_bytes),
        pool.objects,
    ));
    for dir in pool.shown_mounts(" (dead: 'azekura umount' cleans up)") {
        report::say(format_args!("mounted at {dir}"));
    }
    let mut table = Table::new(&[
        "engine",
        "state",
        ">pid",
        ">up for",
        ">sessions",
        ">memory",
        ">requests/s",
        ">read/s",
        ">written/s",
        "address",
    ]);
    for engine in &pool.engines {
        table.row([
            engine.id.to_string(),
            engine.state.name().to_owned(),
            engine.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            format_duration_s(engine.uptime_s),
            engine.sessions.to_string(),
            format_bytes(engine.resident_bytes),
            format_rate(engine.rates.requests_per_s as f64),
            format_bytes(engine.rates.read_bytes_per_s),
            format_bytes(engine.rates.written_bytes_per_s),
            engine.addresses.join(" "),
        ]);
    }
    report::say(table);
    let mut table = Table::new(&["target", ">engine", ">objects", ">to reclaim", "path"]);
    let mut any = false;
    for engine in &pool.engines {
        for target in &engine.targets {
            any = true;
            table.row([
                target.id.to_string(),
                engine.id.to_string(),
                target.objects.to_string(),
                target.reclaim_backlog.to_string(),
                target.path.clone(),
            ]);
        }
    }
    if any {
        report::say(table);
    }
    show_gateways(&pool.gateways);
    for engine in &pool.engines {
        for target in engine.targets.iter().filter(|target| target.set_aside > 0) {
            report::say(format!(
                "target {}: {} records cannot be dealt with and wait; the log of engine {} says why, 'azekura fs check' looks for damage",
                target.id, target.set_aside, engine.id,
            ));
        }
    }
    for engine in pool.engines.iter().filter(|engine| engine.state == State::Down) {
        if let Some(lost) = &engine.lost {
            report::note(format_args!("azekura: {lost}"));
            continue;
        }
        report::note(format_args!(
            "azekura: engine {} of pool '{}' is down: {}; 'azekura up --name {}' starts a pool \
             of this machine, 'azekura serve' an engine",
            engine.id,
            pool.name,
            engine.error.as_deref().unwrap_or("it does not answer"),
            pool.name,
        ));
    }
}
