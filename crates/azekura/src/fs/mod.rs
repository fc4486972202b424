//! `azekura fs`: files of a container without a mount. Each module has one family of commands.

mod archive;
mod attributes;
mod change;
mod content;
mod copy;
mod copying;
mod draft;
mod listing;
mod opened;
mod paths;
mod streams;
mod tree;

pub(crate) use opened::OpenedOnce;

use anyhow::Result;
use clap::Subcommand;

use crate::check::{self, CheckArgs};
use crate::outcome::Verdict;

/// `azekura fs`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Places are written POOL:/path or POOL/CONTAINER:/path, such as default:/dir."
)]
pub(crate) enum FsCommand {
    /// List directories
    Ls(listing::LsArgs),
    /// Show all that is known about files
    Stat(listing::StatArgs),
    /// Show the space of a pool
    Df(listing::DfArgs),
    /// Print files
    Cat(content::CatArgs),
    /// Copy files of this machine into a container
    Put(copy::PutArgs),
    /// Copy files of a container to this machine
    Get(copy::GetArgs),
    /// Copy between this machine and containers, in any direction
    Cp(copy::CpArgs),
    /// Make directories
    Mkdir(change::MkdirArgs),
    /// Move or rename within a container
    Mv(change::MvArgs),
    /// Remove files and directories
    Rm(change::RmArgs),
    /// Set how files are striped
    SetAttr(attributes::SetAttrArgs),
    /// Show how files are striped
    GetAttr(attributes::GetAttrArgs),
    /// Check a container, and mend it
    Check(CheckArgs),
}

/// Runs a command.
///
/// # Errors
/// What failed, on which file, and the next step.
pub(crate) fn run(command: FsCommand) -> Result<Verdict> {
    match command {
        FsCommand::Ls(args) => listing::ls(&args),
        FsCommand::Stat(args) => listing::stat(&args),
        FsCommand::Df(args) => listing::df(&args),
        FsCommand::Cat(args) => content::cat(&args),
        FsCommand::Put(args) => return copy::put(args),
        FsCommand::Get(args) => return copy::get(args),
        FsCommand::Cp(args) => return copy::cp(&args),
        FsCommand::Mkdir(args) => change::mkdir(&args),
        FsCommand::Mv(args) => change::mv(&args),
        FsCommand::Rm(args) => change::rm(&args),
        FsCommand::SetAttr(args) => attributes::set(&args),
        FsCommand::GetAttr(args) => attributes::get(&args),
        FsCommand::Check(args) => return check::run(&args),
    }
    .map(|()| Verdict::Good)
}
