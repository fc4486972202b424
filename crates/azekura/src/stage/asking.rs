//! `azekura stage in`, `sync`, `status`: what is asked of a job that runs, on its host or on a node.

use std::os::unix::ffi::OsStringExt as _;

use anyhow::{Context as _, Result, bail};
use azekura_proto::staging::{JOB_VARIABLE, JobId};

use super::args::{InArgs, StatusArgs, SyncArgs, WhichJob};
use super::desk::{self, Answer, Question};
use super::neighbour::Neighbour;
use super::summary::{self, OUT_FAILED};
use crate::outcome::{Verdict, usage};
use crate::report;

/// The job that is meant.
fn find(which: &WhichJob) -> Result<JobId> {
    let variable = || std::env::var(JOB_VARIABLE).ok();
    if let Some(text) = which.job.clone().or_else(variable) {
        return JobId::from_hex(&text)
            .ok_or_else(|| usage(format!("'{text}' is not a job: it has 32 hexadecimal digits")));
    }
    let jobs = desk::jobs_here().context("cannot read /proc/net/unix")?;
    match jobs.as_slice() {
        [only] => Ok(*only),
        [] => bail!("no staging job is on this host: 'azekura stage run' starts one"),
        several => {
            let names: Vec<String> = several.iter().map(|job| job.to_hex()).collect();
            Err(usage(format!(
                "several jobs are on this host, name one by --job: {}",
                names.join(", ")
            )))
        }
    }
}

fn ask(which: &WhichJob, question: &Question) -> Result<Answer> {
    let job = find(which)?;
    let answer = desk::ask(job, question).with_context(|| {
        format!(
            "cannot ask the staging job {}: is this one of its hosts, and does it run?",
            job.to_hex()
        )
    })?;
    match answer {
        Answer::Failed(why) => bail!(why),
        answer => Ok(answer),
    }
}

/// `azekura stage in`.
///
/// # Errors
/// If there is no such job here.
pub(super) fn bring_in(args: &InArgs) -> Result<()> {
    let mut paths = Vec::with_capacity(args.paths.len());
    for path in &args.paths {
        let full =
            std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))?;
        paths.push(full.into_os_string().into_vec());
    }
    let job = find(&args.which)?;
    match Neighbour::find(job)
        .and_then(|found| found.map(|agent| agent.prefetch(paths.clone())).transpose())
    {
        Ok(Some(())) => Ok(()),
        Ok(None) => ask(&args.which, &Question::In(paths)).map(drop),
        Err(error) => Err(error).context("cannot tell the agent on this node"),
    }
}

/// `azekura stage sync`.
///
/// # Errors
/// If there is no such job here.
pub(super) fn sync(args: &SyncArgs) -> Result<Verdict> {
    let Answer::Sent { files, bytes, failures } = ask(&args.which, &Question::Sync)? else {
        bail!("the job did not say what was sent home");
    };
    for failure in &failures {
        report::note(failure);
    }
    report::say(format_args!("{} sent home", summary::files_and_bytes(files, bytes)));
    Ok(if failures.is_empty() { Verdict::Good } else { Verdict::Ended(OUT_FAILED) })
}

/// `azekura stage status`.
///
/// # Errors
/// If there is no such job here.
pub(super) fn status(args: &StatusArgs) -> Result<()> {
    let Answer::Status(status) = ask(&args.which, &Question::Status)? else {
        bail!("the job did not say how it is");
    };
    if args.json {
        return report::say_json(&status);
    }
    report::say(summary::table(&status));
    Ok(())
}
