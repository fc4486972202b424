//! `azekura fs`: files of a container without a mount. Each module has one family of commands; this
//! one has what they share: how a place in a container is opened.

mod attributes;
mod change;
mod content;
mod copy;
mod listing;
mod side;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use azekura_posix::{CachePolicy, Credentials, FileSystem, Namespace};
use clap::Subcommand;

use crate::check::{self, CheckArgs};
use crate::cli::Verdict;
use crate::reach::{self, ContainerName, Location};
use crate::reading::ReadArgs;

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
        FsCommand::Put(args) => copy::put(args),
        FsCommand::Get(args) => copy::get(args),
        FsCommand::Cp(args) => copy::cp(&args),
        FsCommand::Mkdir(args) => change::mkdir(&args),
        FsCommand::Mv(args) => change::mv(&args),
        FsCommand::Rm(args) => change::rm(&args),
        FsCommand::SetAttr(args) => attributes::set(&args),
        FsCommand::GetAttr(args) => attributes::get(&args),
        FsCommand::Check(args) => return check::run(&args),
    }
    .map(|()| Verdict::Good)
}

/// A container in use by a command.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) name: ContainerName,
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) names: Namespace,
    pub(crate) caller: Credentials,
}

/// Commands are short, and walk the same directories again and again.
const CACHE_LIFE: Duration = Duration::from_secs(1);

impl Opened {
    /// Opens a container for the user of this process.
    pub(crate) fn open(name: &ContainerName, reading: &ReadArgs) -> Result<Self> {
        let pool = reach::connect(&name.pool)?;
        let cache = CachePolicy::Auto { ttl: CACHE_LIFE };
        let fs = reach::file_system(pool, name.container(), cache, reading)?;
        let caller = Credentials::of_process();
        let names = Namespace::new(Arc::clone(&fs), caller.clone());
        Ok(Self { name: name.clone(), fs, names, caller })
    }
}

/// Containers that the places of one command lie in, each opened once.
#[derive(Default)]
pub(crate) struct OpenedOnce {
    opened: Vec<Opened>,
    reading: ReadArgs,
}

impl OpenedOnce {
    /// Containers whose files are read as these options say.
    pub(crate) fn reading(reading: &ReadArgs) -> Self {
        Self { opened: Vec::new(), reading: reading.clone() }
    }

    /// The container of a place.
    pub(crate) fn of(&mut self, place: &Location) -> Result<Opened> {
        if let Some(opened) = self.opened.iter().find(|opened| opened.name == place.container) {
            return Ok(opened.clone());
        }
        let opened = Opened::open(&place.container, &self.reading)?;
        self.opened.push(opened.clone());
        Ok(opened)
    }
}

/// What keeps new files from having permissions that the user never gives.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok())
        .unwrap_or(0o022)
}

/// A path split into the directory above and the last name. `None` for the root.
fn split_last(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let (above, name) = path.rsplit_once('/')?;
    Some((if above.is_empty() { "/" } else { above }, name))
}

/// The path of `name` in the directory `dir`.
fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart_and_together() {
        assert_eq!(split_last("/a/b/"), Some(("/a", "b")));
        assert_eq!(split_last("/a"), Some(("/", "a")));
        assert_eq!(split_last("/"), None);
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
    }
}
