//! `azekura fs check`: reads all records of a container and says what does not fit together. Files
//! may be in use meanwhile: what is found is looked at a second time, and counts only if nothing
//! of it has changed in between.

mod analysis;
mod finding;
mod mend;
mod snapshot;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use azekura_client::Pool;
use azekura_proto::message::Container;
use clap::Args;
use serde::Serialize;

use crate::commands::container;
use crate::connect;
use crate::names::{ContainerName, check_name};
use crate::outcome::Verdict;
use crate::report::{self, Progress, format_bytes};
use analysis::{Paths, analyse, orphans};
use finding::Finding;
use mend::Mender;
use snapshot::{Snapshot, read_data, reclaim_backlog, under_way};

/// Recovery and reclaim get this long to finish what is on record.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);
const UNDER_WAY: Duration = Duration::from_millis(200);
/// Repairs that uncover further ones come to an end long before this.
const PASSES_MAX: usize = 6;

/// `azekura fs check`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs check default\n  \
    azekura fs check default --data\n  \
    azekura fs check default --repair --json\n\n\
    The exit code is 0 if the container is in order (or was mended), 1 if not. A container may be \
    in use while it is checked; for --repair it had better not be.")]
pub(crate) struct CheckArgs {
    /// Container: POOL or POOL/CONTAINER
    #[arg(value_name = "POOL", default_value = "default")]
    name: ContainerName,
    /// Container of the pool, if it is not named above
    #[arg(long, value_name = "NAME", value_parser = check_name)]
    container: Option<String>,
    /// Mend what can be mended; what has lost its name goes to /lost+found
    #[arg(long)]
    repair: bool,
    /// Read all data as well, to see whether they can be read
    #[arg(long)]
    data: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ShownFinding {
    kind: &'static str,
    path: Option<String>,
    object: Option<String>,
    detail: String,
    mended: bool,
}

#[derive(Debug, Serialize)]
struct Counts {
    inodes: usize,
    entries: usize,
    directory_shards: usize,
    data_files: usize,
    data_bytes: u64,
    /// With `--data`.
    data_bytes_read: Option<u64>,
    unlinked_but_open: usize,
    waiting_for_reclaim: u64,
}

#[derive(Debug, Serialize)]
struct CheckReport {
    pool: String,
    container: String,
    clean: bool,
    findings: Vec<ShownFinding>,
    counts: Counts,
}

/// Runs the command.
///
/// # Errors
/// If an engine does not answer.
pub(crate) fn run(args: &CheckArgs) -> Result<Verdict> {
    let pool = connect::pool(&args.name.pool)?;
    let name = args.container.as_deref().unwrap_or(args.name.container());
    let container = container::open(&pool, name)?;
    let (mut findings, mut snapshot) = look(&pool, &container)?;
    let mut shown = Vec::new();
    if args.repair {
        let mut mender = Mender::new(&pool, container.root, container.inheritance);
        for _ in 0..PASSES_MAX {
            let mut done = Vec::new();
            for finding in &findings {
                if mender.mend(finding)? {
                    done.push(finding.clone());
                }
            }
            if done.is_empty() {
                break;
            }
            shown.extend(show(&done, &snapshot, true));
            (findings, snapshot) = look(&pool, &container)?;
        }
    }
    let mut data_bytes_read = None;
    if args.data {
        let (bytes, unreadable) = read_data(&pool, container.id)?;
        data_bytes_read = Some(bytes);
        findings.extend(unreadable);
    }
    shown.extend(show(&findings, &snapshot, false));
    let report = CheckReport {
        pool: pool.map().name.clone(),
        container: container.name,
        clean: findings.is_empty(),
        findings: shown,
        counts: Counts {
            inodes: snapshot.inodes.len(),
            entries: snapshot.entries.len(),
            directory_shards: snapshot.dir_shards.len(),
            data_files: snapshot.data.len(),
            data_bytes_read,
            data_bytes: snapshot.data.iter().map(|data| data.bytes).sum(),
            unlinked_but_open: orphans(&snapshot).len(),
            waiting_for_reclaim: reclaim_backlog(&pool)?,
        },
    };
    if args.json {
        report::say_json(&report)?;
    } else {
        print(&report, args.repair);
    }
    Ok(if report.clean { Verdict::Good } else { Verdict::Bad })
}

/// Looks at a container, and again if something does not fit, after recovery and reclaim had time
/// to finish what is on record. What is in both looks, with the same evidence, is wrong and not
/// just under way.
fn look(pool: &Pool, container: &Container) -> Result<(Vec<Finding>, Snapshot)> {
    let first = Snapshot::read(pool, container.id, container.root)?;
    let first_findings = analyse(&first);
    if first_findings.is_empty() {
        return Ok((Vec::new(), first));
    }
    wait_for_background_work(pool, container)?;
    let backlog = reclaim_backlog(pool)?;
    let second = Snapshot::read(pool, container.id, container.root)?;
    let mut findings = analyse(&second);
    let seen: HashSet<String> = first_findings.iter().map(|found| format!("{found:?}")).collect();
    findings.retain(|finding| {
        // As long as objects wait for reclaim, their data may be among these.
        let is_waiting = backlog > 0 && matches!(finding, Finding::DataWithoutInode { .. });
        !is_waiting && seen.contains(&format!("{finding:?}"))
    });
    Ok((findings, second))
}

/// Waits for recovery and reclaim to finish, for a while.
fn wait_for_background_work(pool: &Pool, container: &Container) -> Result<()> {
    let started = Instant::now();
    let mut progress = Progress::waiting("waiting for recovery and reclaim");
    // A request that was under way is over by then.
    std::thread::sleep(UNDER_WAY);
    while under_way(pool, container.id)? > 0 && started.elapsed() < BACKGROUND_TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
        progress.tick();
    }
    Ok(())
}

fn show(findings: &[Finding], snapshot: &Snapshot, mended: bool) -> Vec<ShownFinding> {
    let paths = Paths::of(snapshot);
    let show = |finding: &Finding| ShownFinding {
        kind: finding.kind(),
        path: match finding.entry() {
            Some(at) => Some(paths.of_entry(at)),
            None => finding.object().and_then(|oid| paths.of_object(oid)),
        },
        object: finding.object().map(|oid| oid.to_string()),
        detail: finding.detail(),
        mended,
    };
    findings.iter().map(show).collect()
}

fn print(report: &CheckReport, repair: bool) {
    for finding in &report.findings {
        let subject = finding.path.as_deref().or(finding.object.as_deref()).unwrap_or("-");
        let mended = if finding.mended { "mended: " } else { "" };
        report::say(format_args!("{mended}{}: {subject} {}", finding.kind, finding.detail));
    }
    let counts = &report.counts;
    report::say(format_args!(
        "{}/{}: {} inodes, {} entries, {} in {} data files",
        report.pool,
        report.container,
        counts.inodes,
        counts.entries,
        format_bytes(counts.data_bytes),
        counts.data_files,
    ));
    if let Some(bytes) = counts.data_bytes_read {
        report::say(format_args!("{} of data read", format_bytes(bytes)));
    }
    if counts.unlinked_but_open > 0 {
        report::say(format_args!(
            "{} unlinked but still open; they go with their last holder",
            counts.unlinked_but_open
        ));
    }
    if counts.waiting_for_reclaim > 0 {
        report::say(format_args!(
            "{} removed objects wait to be reclaimed",
            counts.waiting_for_reclaim
        ));
    }
    let left = report.findings.iter().filter(|finding| !finding.mended).count();
    report::say(match (left, report.findings.len(), repair) {
        (0, 0, _) => "in order".to_owned(),
        (0, mended, _) => format!("in order now: {mended} mended"),
        (left, _, true) => {
            format!("{left} could not be mended; start engines that are down, or see the log")
        }
        (left, _, false) => format!("{left} found; 'azekura fs check --repair' mends what can be"),
    });
}
