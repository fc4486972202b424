//! `azekura run`: runs a command that finds a container below a prefix, without a mount that others
//! see. By the preload library the command takes this process's place ([`launch`]); by FUSE this
//! process serves a mount ([`front`]) that a child makes in a namespace of its own ([`inside`])
//! before it becomes the command.

mod choice;
mod descriptors;
mod elf;
mod environment;
mod front;
mod handover;
mod inside;
mod launch;
mod namespace;
mod root;
mod signals;

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_fuse::CacheMode;
use azekura_posix::{CachePolicy, FileSystem, FsConfig, MountError};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use self::choice::{Chooser, Way};
use self::environment::Intercept;
use self::front::Job;
use self::launch::Program;
use crate::cli::{Verdict, usage};
use crate::reach::{ContainerName, DEFAULT_CONTAINER, check_name};
use crate::reading::{ReadArgs, WriteArgs};
use crate::report;

pub(crate) use inside::{INSIDE_COMMAND, InsideArgs, run as run_inside};

/// How long attributes of directories and names of them are believed.
const CACHE_LIFE: Duration = Duration::from_secs(1);
/// How long a pool may take to say whether it has a container, before the command is run anyway.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// How the command reaches the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Via {
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
enum Cache {
    /// Ask the engines for everything
    None,
    /// Believe attributes and names for a second, and data while a file has not changed
    Auto,
}

impl Cache {
    fn policy(self) -> CachePolicy {
        match self {
            Self::None => CachePolicy::None,
            Self::Auto => CachePolicy::Auto { ttl: CACHE_LIFE },
        }
    }

    fn of_mount(self) -> CacheMode {
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
    pool: ContainerName,
    /// Container of the pool
    #[arg(long, value_name = "NAME", value_parser = check_name)]
    container: Option<String>,
    /// Where the command finds the container
    #[arg(long, value_name = "DIR", default_value = "/azekura", value_parser = parse_prefix)]
    prefix: PathBuf,
    /// How the command reaches it
    #[arg(long, value_enum, default_value = "auto")]
    via: Via,
    /// What a mount may answer from memory [default: auto; with fuse+data: none]
    #[arg(long, value_enum)]
    cache: Option<Cache>,
    /// File for what the preload library has counted; %p in it stands for the process
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// What the command is told as its own name
    #[arg(long, hide = true)]
    argv0: Option<OsString>,
    /// Directory in which the command starts
    #[arg(long, hide = true)]
    cwd: Option<PathBuf>,
    /// A file of the mount to be open in the command: FD[,FD...]:FLAGS:OFFSET:PATH
    #[arg(long, hide = true)]
    reopen: Vec<OsString>,
    /// The command and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
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

/// Runs the command.
///
/// # Errors
/// If it could not be started for a reason that is not its own: no pool, no library, no mount.
pub(crate) fn run(args: RunArgs, verbose: u8) -> Result<Verdict> {
    let name = match &args.container {
        Some(container) => args.pool.clone().with_container(container.clone()),
        None => args.pool.clone(),
    };
    let mut program = Program { words: args.command.clone(), argv0: args.argv0.clone() };
    let via = match args.via {
        Via::Auto => {
            let cwd = args.cwd.as_deref();
            let choice = Chooser::new(&name, &args.prefix, cwd).choose(program.name());
            if verbose > 0 {
                let way = match choice.way {
                    Way::Preload => "preload",
                    Way::Fuse => "fuse",
                };
                let shown = program.name().display();
                report::note(format_args!("azekura: {shown} via {way}: {}", choice.why));
            }
            if let Some(instead) = choice.instead {
                program.words.splice(..1, instead);
            }
            match choice.way {
                Way::Preload => Via::Preload,
                Way::Fuse => Via::Fuse,
            }
        }
        named => {
            if verbose > 0 {
                note_named(&args, &name, program.name());
            }
            named
        }
    };
    match via {
        Via::Auto | Via::Preload => run_preloaded(&args, &name, &program),
        Via::Fuse => run_mounted(args, name, program, false),
        Via::FuseData => run_mounted(args, name, program, true),
    }
}

/// Says of a way that the user has named whether it reaches the program.
fn note_named(args: &RunArgs, name: &ContainerName, program: &OsString) {
    let way = args.via.to_possible_value();
    let way = way.as_ref().map_or("auto", PossibleValue::get_name);
    let choice = Chooser::new(name, &args.prefix, args.cwd.as_deref()).choose(program);
    let shown = program.display();
    if args.via == Via::Preload && choice.way == Way::Fuse {
        report::note(format_args!(
            "azekura: {shown} via preload: as asked, but {}: it will not find {}; leave --via out",
            choice.why,
            args.prefix.display()
        ));
    } else {
        report::note(format_args!("azekura: {shown} via {way}: as asked"));
    }
}

/// Looks whether there is a container of that name: within the command a wrong one would show as
/// `EIO` of every call and no more. A pool that does not answer soon is no reason not to run it, and
/// the container that every pool has is not asked for.
fn check_container(name: &ContainerName) -> Result<()> {
    if name.container() == DEFAULT_CONTAINER {
        return Ok(());
    }
    let file = PoolFile::find(&name.pool)?;
    let config = ClientConfig { request_timeout: LOOK_TIMEOUT, ..ClientConfig::default() };
    let Ok(pool) = Pool::connect(&file, config) else { return Ok(()) };
    match FileSystem::mount(pool, name.container(), FsConfig::default()) {
        Err(error @ MountError::NoContainer { .. }) => Err(error.into()),
        Ok(_) | Err(MountError::Client(_)) => Ok(()),
    }
}

fn run_preloaded(args: &RunArgs, name: &ContainerName, program: &Program) -> Result<Verdict> {
    if args.cwd.is_some() || !args.reopen.is_empty() {
        return Err(usage("--cwd and --reopen need --via fuse or --via fuse+data"));
    }
    check_container(name)?;
    let variables = environment::for_preload(name, args, Intercept::All)?;
    Ok(launch::become_program(program, &variables))
}

fn run_mounted(
    args: RunArgs,
    mut name: ContainerName,
    program: Program,
    with_library: bool,
) -> Result<Verdict> {
    if args.report.is_some() && args.via == Via::Fuse {
        return Err(usage("--report needs the preload library, which --via fuse does not use"));
    }
    let cache = match (args.cache, with_library) {
        (Some(Cache::Auto), true) => {
            return Err(usage(
                "--cache auto does not go with --via fuse+data: the kernel would not see what the \
                 library writes",
            ));
        }
        (None | Some(Cache::None), true) => Cache::None,
        (cache, false) => cache.unwrap_or(Cache::Auto),
    };
    let variables = if with_library {
        environment::for_preload(&name, &args, Intercept::Data)?
    } else {
        Vec::new()
    };
    // The pool file is found before the command's environment or directory matters.
    name.pool = environment::pool_reference(&name)?.to_string_lossy().into_owned();
    let RunArgs { prefix, cwd, reopen, reading, write, .. } = args;
    let reading = reading.writing(&write);
    front::run(&Job { name, prefix, cache, reading, program, variables, cwd, reopen })
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
