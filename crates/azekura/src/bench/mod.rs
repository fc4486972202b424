//! `azekura bench`: how fast a pool or a directory is, held against references measured in the same
//! run. Work is done by the worker processes of `load`; figures and references alternate, and medians
//! are taken.

mod io;
mod md;
mod reference;
mod sheet;
mod site;

use anyhow::Result;
use clap::Subcommand;

/// `azekura bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Reading and writing: MiB/s and operations per second
    Io(io::IoArgs),
    /// Many small files: create, stat, open+close and remove per second
    Md(md::MdArgs),
}

/// Runs a bench.
///
/// # Errors
/// If the place cannot be reached or an operation fails.
pub(crate) fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Io(args) => io::run(args),
        BenchCommand::Md(args) => md::run(args),
    }
}
