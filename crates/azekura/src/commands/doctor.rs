//! `azekura doctor`: looks whether this machine lets its user do what the commands do, and says what to do
//! where it does not. Changes nothing.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow};
use azekura_client::{ClientConfig, Pool};
use azekura_proto::EngineId;
use clap::Args;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::status;
use crate::host::{mounts, places, programs};
use crate::outcome::Verdict;
use crate::report::{self, Table, format_bytes};
use crate::{asking, connect, run};

/// Less than this is soon full.
const SPACE_MIN_BYTES: u64 = 1 << 30;
/// Thousands of clients need thousands of descriptors.
const FILES_MIN: u64 = 4_096;
/// The port that the documents use for engines.
const USUAL_PORT: u16 = 7070;
/// From this round trip on, in microseconds, a pool is far away.
const FAR_US: u64 = 1_000;
/// Whether a connection that was idle has to find out anew what it can carry (RFC 5681, 4.1).
const SLOW_AFTER_IDLE: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";

/// `azekura doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura doctor\n\n\
    The exit code is 1 if something does not work; what is worth a look alone does not count.")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only try to make namespaces, and end
    #[arg(long, hide = true)]
    probe_namespaces: bool,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// Worth a look.
    Look,
    Bad,
}

/// What was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    /// How it is, and what to do if that is not well.
    text: String,
}

fn good(what: &'static str, text: impl Into<String>) -> Finding {
    Finding { what, state: State::Good, text: text.into() }
}

fn look(what: &'static str, text: impl Into<String>) -> Finding {
    Finding { what, state: State::Look, text: text.into() }
}

fn bad(what: &'static str, text: impl Into<String>) -> Finding {
    Finding { what, state: State::Bad, text: text.into() }
}

/// Runs the command.
///
/// # Errors
/// Only for the form of what is printed: what is not well is a finding.
pub(crate) fn run(args: &DoctorArgs) -> Result<Verdict> {
    if args.probe_namespaces {
        return run::probe_namespaces().map(|()| Verdict::Good);
    }
    let mut findings = vec![
        fuse_device(),
        io_uring(),
        passthrough(),
        fusermount(),
        namespaces(),
        library(),
        runtime_dir(),
        port(),
        files(),
    ];
    findings.extend(space());
    findings.extend(pools());
    findings.extend(dead_mounts());
    if args.json {
        report::say_json(&serde_json::json!({ "findings": findings }))?;
    } else {
        let mut table = Table::new(&["", "what", "how it is"]);
        for finding in &findings {
            let sign = match finding.state {
                State::Good => "ok",
                State::Look => "look",
                State::Bad => "BAD",
            };
            table.row([sign.to_owned(), finding.what.to_owned(), finding.text.clone()]);
        }
        report::say(table);
    }
    let is_bad = findings.iter().any(|finding| finding.state == State::Bad);
    Ok(if is_bad { Verdict::Bad } else { Verdict::Good })
}

fn fuse_device() -> Finding {
    let what = "/dev/fuse";
    match std::fs::OpenOptions::new().read(true).write(true).open(what) {
        Ok(_) => good(what, "can be opened: mounts and 'run --via fuse' work"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bad(
            what,
            "is not there: 'modprobe fuse' as root, or in a container start it with \
             '--device /dev/fuse'; until then 'azekura run' takes dynamic programs only",
        ),
        Err(error) => bad(
            what,
            format!("cannot be opened ({error}): 'chmod 666 /dev/fuse' as root, as udev does it"),
        ),
    }
}

/// Nothing is bad without it: mounts are slower.
fn io_uring() -> Finding {
    let what = "FUSE over io_uring";
    match azekura_fuse::uring_refusal() {
        None => good(what, "mounts use it"),
        Some(reason) => look(what, format!("mounts go over /dev/fuse, which is slower: {reason}")),
    }
}

/// Likewise.
fn passthrough() -> Finding {
    let what = "FUSE passthrough";
    match azekura_fuse::passthrough_refusal() {
        None => good(what, "the kernel reads and writes files of one shard on this host by itself"),
        Some(reason) => {
            look(what, format!("all data of mounts go through their processes: {reason}"))
        }
    }
}

fn fusermount() -> Finding {
    let what = "fusermount3";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(what)).find(|file| file.is_file());
    let is_root = rustix::process::geteuid().is_root();
    match found {
        Some(file) => match std::fs::metadata(&file) {
            Ok(found) if found.mode() & 0o4000 == 0 && !is_root => bad(
                what,
                format!("{} is not setuid root: install the package fuse3 anew", file.display()),
            ),
            _ => good(what, file.display().to_string()),
        },
        None if is_root => {
            look(what, "is not in PATH: ordinary users mount with it (package fuse3)")
        }
        None => bad(what, "is not in PATH: install the package fuse3; 'azekura mount' needs it"),
    }
}

/// In a process of its own, which is in other namespaces afterwards.
fn namespaces() -> Finding {
    let what = "namespaces";
    let tried = programs::own().and_then(|program| {
        let mut probe = Command::new(program);
        let done = probe.args(["doctor", "--probe-namespaces"]).output()?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(anyhow!("{}", said.trim().trim_start_matches("azekura: ")))
    });
    match tried {
        Ok(()) => good(what, "can be made: 'run --via fuse' works"),
        Err(error) => bad(what, format!("{error}; 'azekura run --via preload' does without")),
    }
}

fn library() -> Finding {
    let what = "preload library";
    match run::library() {
        Ok(path) => good(what, path.display().to_string()),
        Err(error) => bad(what, report::explain(&error)),
    }
}

fn runtime_dir() -> Finding {
    let what = "runtime directory";
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match (places::socket_dir(), named) {
        (Err(error), _) => bad(what, report::explain(&error)),
        (Ok(dir), Some(named)) if dir.starts_with(&named) => good(what, dir.display().to_string()),
        (Ok(dir), Some(named)) => look(
            what,
            format!(
                "XDG_RUNTIME_DIR is {}, which is not there: {} stands in for it",
                named.display(),
                dir.display()
            ),
        ),
        (Ok(dir), None) => good(what, format!("{} (XDG_RUNTIME_DIR is not set)", dir.display())),
    }
}

fn port() -> Finding {
    let what = "ports";
    match TcpListener::bind(("127.0.0.1", USUAL_PORT)) {
        Ok(_) => good(what, format!("{USUAL_PORT} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => look(
            what,
            format!("{USUAL_PORT} is taken: by an engine, or choose another for 'serve --listen'"),
        ),
        Err(error) => bad(what, format!("cannot listen at 127.0.0.1: {error}")),
    }
}

fn files() -> Finding {
    let what = "open files";
    // None: no limit.
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if limit < FILES_MIN {
        let advice = "'ulimit -Hn', or LimitNOFILE= of a unit: an engine needs one for each client";
        return look(what, format!("at most {limit}: raise {advice}"));
    }
    good(what, if limit == u64::MAX { "no limit".to_owned() } else { format!("up to {limit}") })
}

fn space() -> Vec<Finding> {
    let data = places::data_dir().map(|dir| ("space for pools", dir));
    let state = places::state_dir().map(|dir| ("space for logs", dir));
    let memory = Ok(("memory for pools", PathBuf::from("/dev/shm")));
    [data, state, memory]
        .into_iter()
        .map(|place| match place {
            Ok((what, dir)) => space_at(what, &dir),
            Err(error) => bad("home directory", report::explain(&error)),
        })
        .collect()
}

/// The space at a directory, or at the nearest above that is there.
fn space_at(what: &'static str, dir: &Path) -> Finding {
    let Some((place, found)) =
        dir.ancestors().find_map(|dir| Some((dir, rustix::fs::statvfs(dir).ok()?)))
    else {
        return bad(what, format!("nothing of {} is there", dir.display()));
    };
    let free = found.f_bavail * found.f_frsize;
    let text = format!("{} free at {}", format_bytes(free), place.display());
    if free < SPACE_MIN_BYTES { look(what, format!("only {text}")) } else { good(what, text) }
}

fn pools() -> Vec<Finding> {
    let what = "pools";
    let names = match status::known_pools() {
        Ok(names) if names.is_empty() => return vec![good(what, "none is known here")],
        Ok(names) => names,
        Err(error) => return vec![bad(what, report::explain(&error))],
    };
    let mut findings: Vec<_> = names
        .iter()
        .map(|name| {
            pool(name)
                .unwrap_or_else(|error| bad(what, format!("'{name}': {}", report::explain(&error))))
        })
        .collect();
    if names.iter().any(|name| is_far(name)) {
        findings.extend(pauses());
    }
    findings
}

/// Whether a pool is on record as one that is far away.
fn is_far(name: &str) -> bool {
    let round_trip_us = || {
        let pool = Pool::connect(&connect::pool_file(name).ok()?, ClientConfig::default()).ok()?;
        pool.remembered_round_trip_us()
    };
    round_trip_us().is_some_and(|us| us >= FAR_US)
}

/// What connections over long ways lose by pauses of a program: by BBR nothing, and it is not known which control
/// the engines' hosts have.
fn pauses() -> Option<Finding> {
    let what = "far pools";
    let setting = std::fs::read_to_string(SLOW_AFTER_IDLE).ok()?;
    Some(match setting.trim() {
        "0" => good(what, "connections stay as fast as they were over pauses"),
        _ => look(
            what,
            "connections begin slowly again after each pause: 'sysctl -w \
             net.ipv4.tcp_slow_start_after_idle=0' as root, on the engines' hosts for reading, here for \
             writing",
        ),
    })
}

/// Mounts whose process was killed: whoever comes there gets nothing but errors.
fn dead_mounts() -> Vec<Finding> {
    let what = "mounts";
    let mounted = match mounts::list() {
        Ok(mounted) => mounted,
        Err(error) => return vec![bad(what, report::explain(&error))],
    };
    let dead = mounted.iter().filter(|mount| mounts::is_dead(&mount.dir));
    dead.map(|mount| {
        let dir = mount.dir.display();
        let text =
            format!("the process of that at {dir} has died: 'azekura umount {dir}' takes it away");
        look(what, text)
    })
    .collect()
}

fn pool(name: &str) -> Result<Finding> {
    let file = connect::pool_file(name)?;
    let secret = file.secret()?;
    for engine in (0..file.map.engines.len() as u16).map(EngineId) {
        if let Err(error) = asking::ask_engine(&file.map, engine, &secret) {
            let text = format!(
                "engine {} of '{name}' is down ({error}): see 'azekura status {name}' and 'azekura \
                 logs {name}'",
                engine.0
            );
            return Ok(bad("pools", text));
        }
    }
    Ok(good("pools", format!("'{name}' answers")))
}
