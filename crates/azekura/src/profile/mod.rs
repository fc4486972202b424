//! `azekura profile`: the I/O of a real run, and the job that it comes to. [`record`] runs the command under
//! the preload library's recording mode, [`darshan`] reads what Darshan has recorded; both give a [`usage`],
//! which [`job`] turns into a `JOB.toml` and [`listing`] into tables. Changes nothing about the command: its
//! streams, signals and exit code are its own.

mod args;
mod darshan;
mod job;
mod listing;
mod record;
mod usage;

use anyhow::{Context as _, Result, bail};

pub(crate) use args::ProfileArgs;

use self::usage::Usage;
use crate::outcome::Verdict;
use crate::report;

/// Records the command, or reads a log, and writes the job.
///
/// # Errors
/// If the command cannot be recorded. If it has moved no data that could be seen, or a file cannot be written,
/// and it has not failed itself.
pub(crate) fn run(args: &ProfileArgs) -> Result<Verdict> {
    for file in [&args.csv, &args.json, &args.output].into_iter().flatten() {
        report::check_result_file(file)?;
    }
    let (usage, verdict) = match &args.darshan {
        Some(log) => (darshan::read(log)?, Verdict::Good),
        None => match record::run(&args.command, &args.under)? {
            record::Outcome::Recorded(usage, code) => (usage, Verdict::Ended(code)),
            record::Outcome::NotStarted(verdict) => return Ok(verdict),
        },
    };
    match keep(args, &usage) {
        // Who runs the command asks first how that has ended.
        Err(error) if !matches!(verdict, Verdict::Good | Verdict::Ended(0)) => {
            report::note(format_args!("azekura: {}", report::explain(&error)));
            Ok(verdict)
        }
        kept => kept.map(|()| verdict),
    }
}

/// Writes what was asked for of what was recorded: one file also where another cannot be written.
fn keep(args: &ProfileArgs, usage: &Usage) -> Result<()> {
    let tables = keep_tables(args, usage);
    let missing = listing::remarks(usage);
    for line in &missing {
        report::note(format_args!("azekura: {line}"));
    }
    keep_job(args, usage, &missing).and(tables)
}

/// What needs no judgement, and is there when there is no job in it.
fn keep_tables(args: &ProfileArgs, usage: &Usage) -> Result<()> {
    if let Some(path) = &args.csv {
        report::write_result_file(path, &listing::csv(usage))?;
    }
    if let Some(path) = &args.json {
        report::write_result_file(path, &serde_json::to_string_pretty(usage)?)?;
    }
    Ok(())
}

fn keep_job(args: &ProfileArgs, usage: &Usage, missing: &[String]) -> Result<()> {
    let text = match job::of(usage) {
        Ok(job) => job::text(&job, usage, missing),
        Err(why) => bail!("{}", listing::no_job(usage, why)),
    };
    let written = args.output.as_deref().map(|path| report::write_result_file(path, &text));
    if !matches!(written, Some(Ok(()))) {
        // The run may have taken hours.
        report::say(text.trim_end());
    }
    written.unwrap_or(Ok(())).context("the job is on standard output instead")
}
