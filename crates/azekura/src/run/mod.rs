//! `azekura run`: runs a command that finds a container below a prefix, without a mount that others
//! see. By the preload library the command takes this process's place ([`launch`]). By FUSE this process
//! waits ([`front`]) for a child that makes a mount in a namespace of its own and becomes the command ([`inside`]),
//! while another one serves that mount ([`server`]).

mod args;
mod choice;
mod descriptors;
mod distance;
mod environment;
mod front;
mod handover;
mod inside;
mod launch;
mod mounted;
mod namespace;
mod program;
mod root;
mod server;
mod serving;
mod signals;

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_posix::{FileSystem, FsConfig, MountError};
use clap::ValueEnum as _;
use clap::builder::PossibleValue;

use self::args::{Cache, Via};
use self::choice::{Chooser, Way};
use self::environment::Intercept;
use self::front::Begun;
use self::mounted::MountedCommand;
use crate::names::{ContainerName, DEFAULT_CONTAINER};
use crate::outcome::{Verdict, usage};
use crate::report;

pub(crate) use args::RunArgs;
pub(crate) use environment::{BINARY, LD_PRELOAD, Variables, not_preloaded, preloaded, recording};
pub(crate) use inside::{INSIDE_COMMAND, InsideArgs, run as run_inside};
pub(crate) use launch::{Program, become_program, not_started};
pub(crate) use server::{SERVE_COMMAND, ServedMount, ServingArgs, run as run_serve};
pub(crate) use signals::catch as catch_signals;

/// Runs the command.
///
/// # Errors
/// If it could not be started for a reason that is not its own: no pool, no library, no mount.
pub(crate) fn run(args: &RunArgs, verbose: u8) -> Result<Verdict> {
    let name = match &args.container {
        Some(container) => args.pool.clone().with_container(container.clone()),
        None => args.pool.clone(),
    };
    let mut program = Program { words: args.command.clone(), argv0: args.argv0.clone() };
    if args.with_engine && args.via == Via::Preload {
        return Err(usage("--with-engine is about a mount, which --via preload does without"));
    }
    let chosen = match args.via {
        Via::Auto if args.with_engine => Chosen { via: Via::Fuse, or_preload: false },
        Via::Auto => choose(args, &name, &mut program, verbose),
        named => {
            if verbose > 0 {
                note_named(args, &name, program.name());
            }
            Chosen { via: named, or_preload: false }
        }
    };
    match chosen.via {
        Via::Auto | Via::Preload => run_preloaded(args, &name, &program),
        Via::Fuse if chosen.or_preload => {
            match begin_mounted(args, name.clone(), program.clone(), false, verbose) {
                Ok(begun) => begun.end(),
                Err(error) => {
                    if verbose > 0 {
                        let why = report::explain(&error);
                        report::note(format_args!("azekura: preload instead: {why}"));
                    }
                    run_preloaded(args, &name, &program)
                }
            }
        }
        Via::Fuse => begin_mounted(args, name, program, false, verbose)?.end(),
        Via::FuseData => begin_mounted(args, name, program, true, verbose)?.end(),
    }
}

/// The way that was chosen for a command.
struct Chosen {
    via: Via,
    /// It can be reached by the preload library too, where there can be no mount.
    or_preload: bool,
}

/// Chooses the way by what the program is, and where both are open to it by how far the pool is.
fn choose(args: &RunArgs, name: &ContainerName, program: &mut Program, verbose: u8) -> Chosen {
    let mut choice = Chooser::new(name, &args.prefix, args.cwd.as_deref()).choose(program.name());
    // Reports are written by the library, and what was named for it is.
    let is_free = choice.way == Way::Preload && choice.is_there && args.report.is_none();
    let far = if is_free { distance::far(name) } else { None };
    if let Some(far) = &far {
        choice.way = Way::Fuse;
        choice.why = format!("{}, and {far}", choice.why);
    }
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
    let via = match choice.way {
        Way::Preload => Via::Preload,
        Way::Fuse => Via::Fuse,
    };
    Chosen { via, or_preload: far.is_some() }
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

/// Tries what `--via fuse` needs of the machine. The process is in namespaces of its own afterwards.
///
/// # Errors
/// Why the machine does not allow it, and what to do.
pub(crate) fn probe_namespaces() -> Result<()> {
    namespace::enter().map(drop)
}

/// Whether the preload library serves a program, found as a shell would find it, and the end of a sentence
/// that says why.
pub(crate) fn suits_preload(program: &OsStr) -> (bool, String) {
    let choice = Chooser::of_machine(None).choose(program);
    (choice.way == Way::Preload, choice.why)
}

/// Whether a program is on this host, as far as `execvp` finds it there.
pub(crate) fn is_on_host(program: &OsStr) -> bool {
    Chooser::of_machine(None).is_on_host(program)
}

/// The file of the preload library.
///
/// # Errors
/// If it is not where it is looked for.
pub(crate) fn library() -> Result<std::path::PathBuf> {
    environment::own_library()
}

/// Looks whether there is a container of that name: within the command a wrong one would show as
/// `EIO` of every call and no more. A pool that does not answer soon is no reason not to run it, and
/// the container that every pool has is not asked for.
fn check_container(name: &ContainerName) -> Result<()> {
    if name.container() == DEFAULT_CONTAINER {
        return Ok(());
    }
    let file = PoolFile::find(&name.pool)?;
    let config =
        ClientConfig { request_timeout: distance::LOOK_TIMEOUT, ..ClientConfig::default() };
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

/// Starts the command with a mount.
///
/// # Errors
/// If it was not started.
fn begin_mounted(
    args: &RunArgs,
    mut name: ContainerName,
    program: Program,
    beside_library: bool,
    verbose: u8,
) -> Result<Begun> {
    if args.report.is_some() && args.via == Via::Fuse {
        return Err(usage("--report needs the preload library, which --via fuse does not use"));
    }
    let cache = match (args.cache, beside_library) {
        (Some(Cache::Auto), true) => {
            return Err(usage(
                "--cache auto does not go with --via fuse+data: the kernel would not see what the \
                 library writes",
            ));
        }
        (None | Some(Cache::None), true) => Cache::None,
        (cache, false) => cache.unwrap_or(Cache::Auto),
    };
    let variables = if beside_library {
        environment::for_preload(&name, args, Intercept::Data)?
    } else {
        Vec::new()
    };
    // The pool file is found before the command's environment or directory matters.
    name.pool = environment::pool_reference(&name)?.to_string_lossy().into_owned();
    front::begin(&MountedCommand {
        name,
        prefix: args.prefix.clone(),
        cache,
        beside_library,
        with_engine: args.with_engine,
        reading: args.reading.writing(&args.write),
        program,
        variables,
        cwd: args.cwd.clone(),
        reopen: args.reopen.clone(),
        verbose,
    })
}
