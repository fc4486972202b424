//! The options of `azekura run`, as they are typed.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use azekura_fuse::CacheMode;
use azekura_posix::CachePolicy;
use clap::{Args, ValueEnum};

use crate::connect;
use crate::names::{ContainerName, check_name};
use crate::reading::{ReadArgs, WriteArgs};

/// How the command reaches the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Via {
    /// Choose by looking at the program
    Auto,
    /// A library that is loaded into dynamic programs; the fastest
    Preload,
    /// A mount that only the command sees; for every program
    Fuse,
    /// Such a mount, and the library for reading and writing
    #[value(name = "fuse+data")]
    FuseData,
}

/// What the mount may answer from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Cache {
    /// Ask the engines for everything
    None,
    /// Believe attributes and names for a second, and data while a file has not changed
    Auto,
}

impl Cache {
    pub(super) fn policy(self) -> CachePolicy {
        match self {
            Self::None => CachePolicy::None,
            Self::Auto => connect::behind_kernel().cache,
        }
    }

    pub(super) fn of_mount(self) -> CacheMode {
        match self {
            Self::None => CacheMode::None,
            Self::Auto => CacheMode::Auto,
        }
    }
}

/// `azekura run`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura run -- cp -r results /azekura/\n  \
    azekura run --pool big/scratch --prefix /scratch -- ./simulate /scratch/input\n  \
    azekura run --via fuse -- bash\n\n\
    The command finds the container's files below the prefix, which need not exist on this machine; \
    nobody else sees them there. -v says which way was taken, and why. The exit code is the command's; 128 and the signal's number if a \
    signal ended it; 127 if it is not there, 126 if it cannot be run.")]
pub(crate) struct RunArgs {
    /// Pool: a name, a pool file or a URL; POOL/CONTAINER does as well
    #[arg(long, value_name = "POOL", default_value = "default")]
    pub(super) pool: ContainerName,
    /// Container of the pool
    #[arg(long, value_name = "NAME", value_parser = check_name)]
    pub(super) container: Option<String>,
    /// Where the command finds the container
    #[arg(long, value_name = "DIR", default_value = "/azekura", value_parser = parse_prefix)]
    pub(super) prefix: PathBuf,
    /// How the command reaches it
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) via: Via,
    /// What a mount may answer from memory [default: auto; with fuse+data: none]
    #[arg(long, value_enum)]
    pub(super) cache: Option<Cache>,
    /// File for what the preload library has counted; %p in it stands for the process
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Have the process of the pool's engine on this host serve the mount itself, by calls and without messages;
    /// the mount ends with the engine. Without --via, a mount it is
    #[arg(long)]
    pub(super) with_engine: bool,
    #[command(flatten)]
    pub(super) reading: ReadArgs,
    #[command(flatten)]
    pub(super) write: WriteArgs,
    /// What the command is told as its own name
    #[arg(long, hide = true)]
    pub(super) argv0: Option<OsString>,
    /// Directory in which the command starts
    #[arg(long, hide = true)]
    pub(super) cwd: Option<PathBuf>,
    /// A file of the mount to be open in the command: FD[,FD...]:FLAGS:OFFSET:PATH
    #[arg(long, hide = true)]
    pub(super) reopen: Vec<OsString>,
    /// The command and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(super) command: Vec<OsString>,
}

/// The prefix in its plain form: absolute, without `.` and double slashes.
fn parse_prefix(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let is_plain = path.is_absolute()
        && path.components().count() > 1
        && !path.components().any(|part| part == Component::ParentDir);
    if is_plain {
        return Ok(path.components().collect());
    }
    Err(format!("'{text}' must be an absolute path below /, without '..'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_absolute_and_plain() {
        for (text, plain) in [("/azekura", "/azekura"), ("//mnt/./x//y/", "/mnt/x/y")] {
            assert_eq!(parse_prefix(text).unwrap().as_os_str(), plain);
        }
        for text in ["", "/", "azekura", "/a/../b", "./a", "//"] {
            assert!(parse_prefix(text).is_err(), "{text}");
        }
    }
}
