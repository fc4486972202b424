//! `azekura stage`: a job's programs open files of their home directory as if they were on every node. Owns the
//! command line: hosts and maps, how agents are started and ended, the job's command, what people see. How
//! files travel is the business of `azekura_stage`.

mod addresses;
mod agent;
mod args;
mod asking;
mod command;
mod desk;
mod front;
mod homes;
mod hosts;
mod inside;
mod journal;
mod launch;
mod maps;
mod neighbour;
mod out;
mod resuming;
mod screen;
mod summary;
mod sweeping;
mod tally;
#[cfg(not(feature = "services"))]
mod without_services;
mod words;

use anyhow::Result;

pub(crate) use self::args::StageCommand;
pub(crate) use self::hosts::find as find_hosts;
pub(crate) use self::words::Launcher;
use crate::outcome::Verdict;

/// Runs the command.
///
/// # Errors
/// What failed, on what, and the next step.
pub(crate) fn run(command: StageCommand, verbose: u8) -> Result<Verdict> {
    match command {
        StageCommand::Run(args) => return front::run(&args, verbose),
        StageCommand::Inside(args) => return inside::run(&args, verbose),
        StageCommand::Sync(args) => return asking::sync(&args),
        StageCommand::Resume(args) => return resuming::run(&args),
        StageCommand::In(args) => asking::bring_in(&args),
        StageCommand::Status(args) => asking::status(&args),
        StageCommand::Agent(args) => agent::run(&args),
    }
    .map(|()| Verdict::Good)
}
