//! `azekura stage resume`: sends home what a job could not. Starts the agents again on what they have kept; a host
//! that does not answer does not keep the others from sending.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use azekura_stage::front::{Front, FrontOptions, Manifest, OutOptions, Recipients};
use azekura_stage::job::{self, AgentDescription, Keeping};

use super::args::ResumeArgs;
use super::journal::{EventFile, Journal};
use super::launch::{Agents, Needed};
use super::out::{self, CACHE, LAUNCH};
use super::screen::Screen;
use super::summary::{self, OUT_FAILED};
use super::tally::Tally;
use super::words::Launcher;
use super::{addresses, homes, sweeping};
use crate::host::programs;
use crate::outcome::{Verdict, usage};
use crate::report;

/// Sends home what is left.
///
/// # Errors
/// If the manifest is none, or no agent starts.
pub(super) fn run(args: &ResumeArgs) -> Result<Verdict> {
    let manifest = Manifest::read(&args.manifest)?;
    let lost = out::lost(&manifest);
    if manifest.unsent() == 0 {
        return Ok(match lost {
            None => {
                report::say("nothing is left to be sent home");
                Verdict::Good
            }
            Some(lost) => {
                report::note(format_args!("azekura: {lost}"));
                Verdict::Ended(OUT_FAILED)
            }
        });
    }
    let sources =
        homes::sources(&manifest.maps, &homes::noted(&manifest.note, manifest.maps.len())?)?;
    let launch = args.launch.as_deref().or(manifest.note.get(LAUNCH).map(String::as_str));
    let launcher = Launcher::choose(launch)?;
    let (_, secret) = job::draw().context("cannot draw the job's secret")?;
    let descriptions = descriptions(&manifest, &secret, args)?;
    let command = [programs::own()?.into(), "stage".into(), "agent".into()];
    let screen = Arc::new(Screen::new());
    let mut agents = Agents::start(&launcher, &command, &descriptions, Needed::Some, &screen)?;
    let hosts: Vec<String> = manifest.nodes.iter().map(|(_, host)| host.clone()).collect();
    let tally = Tally::new(manifest.job, &hosts);
    let (mut journal, tell) = Journal::listen(tally, hosts, EventFile::create(None)?, &screen)?;
    let options = FrontOptions {
        job: manifest.job,
        secret,
        maps: sources,
        recipients: Recipients::Requesters,
        out: OutOptions {
            concurrency: usize::from(args.out_concurrency),
            on_close: false,
            manifest: None,
            note: BTreeMap::new(),
        },
    };
    let front = Front::start(options, addresses::of(agents.ports())?, tell)?;
    let sent = front.resume(&args.manifest)?;
    // Of a lost node nothing is swept away: what it has is nowhere else.
    let is_right = sent.failed.is_empty() && lost.is_none();
    journal.close(if is_right { 0 } else { OUT_FAILED });
    front.end();
    agents.end();
    if is_right {
        sweeping::sweep(&launcher, &command, &descriptions, &screen);
    }
    report::say(format_args!("{} sent home", summary::files_and_bytes(sent.files, sent.bytes)));
    if let Some(lost) = lost {
        report::note(format_args!("azekura: {lost}"));
    }
    Ok(if is_right { Verdict::Good } else { Verdict::Ended(OUT_FAILED) })
}

/// What the agents have to know. They keep what they have until all of it is at home.
fn descriptions(
    manifest: &Manifest,
    secret: &str,
    args: &ResumeArgs,
) -> Result<Vec<AgentDescription>> {
    let Some(cache) = manifest.note.get(CACHE) else {
        return Err(usage(format!("{} does not name the job's cache", args.manifest.display())));
    };
    let describe = |(node, host): &(_, String)| AgentDescription {
        job: manifest.job,
        secret: secret.to_owned(),
        node: *node,
        host: host.clone(),
        cache: PathBuf::from(cache),
        maps: manifest.maps.clone(),
        keeps_cache: true,
        keeping: Keeping::default(),
        socket_suffix: String::new(),
    };
    Ok(manifest.nodes.iter().map(describe).collect())
}
