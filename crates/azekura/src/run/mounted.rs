//! What is run where a mount serves it. Knows neither who waits for it nor who serves the mount.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::args::Cache;
use super::environment::Variables;
use super::launch::Program;
use crate::names::ContainerName;
use crate::reading::ReadArgs;

/// What is to be run, and how.
#[derive(Debug)]
pub(super) struct MountedCommand {
    pub(super) name: ContainerName,
    pub(super) prefix: PathBuf,
    pub(super) cache: Cache,
    /// The library reads and writes data, past the mount.
    pub(super) beside_library: bool,
    /// The process of an engine serves the mount.
    pub(super) with_engine: bool,
    pub(super) reading: ReadArgs,
    pub(super) program: Program,
    /// For the command; where it has `LD_PRELOAD`, only the command gets that.
    pub(super) variables: Variables,
    /// Where the command starts, if not here.
    pub(super) cwd: Option<PathBuf>,
    /// Files of the mount to be opened under given numbers.
    pub(super) reopen: Vec<OsString>,
    /// How much is said of what goes on.
    pub(super) verbose: u8,
}

impl MountedCommand {
    /// What the command is likely to look at first, by its words: below the prefix.
    pub(super) fn first_path(&self) -> Option<&Path> {
        let mut words = self.program.words.iter();
        words.find_map(|word| Path::new(word).strip_prefix(&self.prefix).ok())
    }
}
