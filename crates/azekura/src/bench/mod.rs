//! `azekura bench`: how fast a pool or a directory is, held against references measured in the same
//! run. Work is done by the worker processes of `load`; figures and references alternate, and medians
//! are taken.

pub(crate) mod batch;
mod beside;
mod cpu;
mod io;
mod md;
mod passthrough;
mod reference;
mod sheet;
mod site;

use anyhow::Result;
use clap::Subcommand;

use crate::outcome::Verdict;

/// `azekura bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Reading and writing: MiB/s and operations per second
    Io(io::IoArgs),
    /// A batch of processes that copy records from files to files, in seconds
    Batch(batch::BatchArgs),
    /// Many small files: create, stat, open+close and remove per second
    Md(md::MdArgs),
}

/// Runs a bench.
///
/// # Errors
/// If the place cannot be reached or an operation fails.
pub(crate) fn run(command: &BenchCommand) -> Result<Verdict> {
    match command {
        BenchCommand::Io(args) => io::run(args),
        BenchCommand::Batch(args) => return batch::run(args),
        BenchCommand::Md(args) => md::run(args),
    }
    .map(|()| Verdict::Good)
}
