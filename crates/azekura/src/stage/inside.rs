//! `azekura stage inside`: a command of a job, on whatever node it is started, by the way that suits it. What the
//! library does not serve is trapped: this process stays beside it and answers its calls.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use azekura_proto::staging::{JOB_VARIABLE, JobId};
use azekura_stage::trap;
use rustix::process::{Pid, kill_process};

use super::args::{InsideArgs, Via};
use super::command;
use crate::outcome::Verdict;
use crate::run::{self, LD_PRELOAD, Program};

/// Runs the command, or becomes it.
///
/// # Errors
/// If there is no job around it, or its calls cannot be trapped and have to be.
pub(super) fn run(args: &InsideArgs, verbose: u8) -> Result<Verdict> {
    let job = std::env::var(JOB_VARIABLE).ok().and_then(|text| JobId::from_hex(&text));
    let Some(job) = job else {
        bail!("{JOB_VARIABLE} names no job: this command is for programs of 'azekura stage run'");
    };
    let program = Program { words: args.command.clone(), argv0: None };
    let variables = command::environment(job)?;
    // The kernel finds a program that lies in a map only if it is told where: nothing is preloaded yet here.
    let is_found = program.words.first().is_none_or(|name| run::is_on_host(name));
    let is_away = args.via == Via::Auto && !is_found;
    if !is_away && command::suits_library(&program.words, args.via, verbose) {
        return Ok(run::become_program(&program, &variables));
    }
    match trapped(&program, job) {
        // A host that is none of the job's nodes, as the front's often is, has nothing to be trapped for.
        Err(trap::Error::NoAgent { .. }) if args.anywhere || args.via == Via::Auto => {
            Ok(run::become_program(&program, &variables))
        }
        Err(trap::Error::CannotRun { source, .. }) => Ok(run::not_started(&program, &source)),
        Err(error) => Err(error.into()),
        Ok(code) => Ok(Verdict::Ended(code)),
    }
}

/// Runs a command with its calls trapped, and passes signals on to it.
fn trapped(program: &Program, job: JobId) -> Result<u8, trap::Error> {
    let mut variables = command::environment(job).map_err(lost("prepare its environment"))?;
    // One of the two is enough.
    let others = run::not_preloaded().map_err(lost("find the preload library"))?;
    variables.retain(|(name, _)| *name != LD_PRELOAD);
    variables.push((LD_PRELOAD, others));
    let caught = run::catch_signals().map_err(lost("wait for signals"))?;
    let mut started = trap::start(command::to_start(program, &variables), job)?;
    let pid = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
    let running = Arc::new(Mutex::new(pid));
    let told = Arc::clone(&running);
    caught
        .give_to(move |signal, came_to_all| {
            if let Some(pid) = *told.lock().unwrap_or_else(PoisonError::into_inner)
                && !came_to_all
            {
                // It may have ended in the meantime.
                let _ = kill_process(pid, signal);
            }
        })
        .map_err(lost("pass signals on"))?;
    let status = started.wait()?;
    *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    started.wait_for_rest()?;
    Ok(command::exit_code(status))
}

fn lost(what: &'static str) -> impl FnOnce(anyhow::Error) -> trap::Error {
    move |error| trap::Error::System { what, source: io::Error::other(format!("{error:#}")) }
}
