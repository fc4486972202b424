//! `--via fuse`, the side that stays: has the mount that its child has made in a namespace served by another
//! process, waits for the command, and ends as the command did.

use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use azekura_proto::pool_map::PoolMap;
use clap::ValueEnum as _;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, waitpid};
use signal_hook::consts::SIGINT;

use super::args::Cache;
use super::environment::LD_PRELOAD;
use super::handover::{self, ToFront};
use super::inside::INSIDE_COMMAND;
use super::launch;
use super::mounted::MountedCommand;
use super::serving::{Left, Serving};
use super::{descriptors, signals};
use crate::connect;
use crate::host::mounts;
use crate::outcome::Verdict;
use crate::report;

/// Tells commands started from within which container is mounted already.
const MOUNTED: &str = "AZEKURA_MOUNTED";

/// How far a command has come.
#[must_use = "somebody has to wait for it"]
pub(super) enum Begun {
    /// It runs.
    Running(Running),
    /// It has ended already.
    Over(Verdict),
}

/// A command that runs.
pub(super) struct Running {
    pid: Pid,
    serving: Serving,
    inherited: Vec<RawFd>,
}

/// Starts the command.
///
/// # Errors
/// If the pool cannot be reached, or there cannot be a mount. The command was not started then, and nothing is left of
/// what was to serve it.
pub(super) fn begin(mounted: &MountedCommand) -> Result<Begun> {
    let inherited = descriptors::inherited();
    let map = connect::pool_file(&mounted.name.pool)?.map;
    let mark = mark(&map, mounted);
    if std::env::var_os(MOUNTED).is_some_and(|value| value == *mark) && is_mounted(&mounted.prefix)
    {
        return start_here(mounted).map(Begun::Over);
    }
    let fsname = mounts::source(&map, mounted.name.container());
    let caught = signals::catch()?;
    // It reaches for the pool while the child makes the mount.
    let serving = Serving::start(mounted, map.pool)?;
    let (socket, pid) = match spawn(mounted, &fsname, &mark) {
        Ok(spawned) => spawned,
        Err(error) => {
            serving.give_up();
            return Err(error);
        }
    };
    let served = caught.pass_on_to(pid).and_then(|()| serve(mounted, &serving, &socket));
    if let Ok(true) = served {
        // One that is gone already needs no word.
        let _ = handover::send_go(&socket);
        return Ok(Begun::Running(Running { pid, serving, inherited }));
    }
    // It sees that it gets no further when the socket closes.
    drop(socket);
    serving.give_up();
    let end = wait(pid)?;
    served.map(|_| Begun::Over(verdict(end)))
}

impl Begun {
    /// Waits for the command, and comes to what it came to.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub(super) fn end(self) -> Result<Verdict> {
        match self {
            Self::Running(running) => running.end(),
            Self::Over(verdict) => Ok(verdict),
        }
    }
}

impl Running {
    fn end(self) -> Result<Verdict> {
        release(&self.inherited)?;
        let end = wait(self.pid)?;
        let left = self.serving.end()?;
        if end.terminating_signal() == Some(SIGINT) {
            // A shell that runs a script goes on after an exit code, but not after Ctrl-C.
            signal_hook::low_level::emulate_default_handler(SIGINT).context("cannot end")?;
        }
        Ok(match left {
            Left::Nothing | Left::InUse => verdict(end),
            Left::Lost(reason) => {
                report::note(format_args!(
                    "azekura: not all that the command has written has arrived: {reason}"
                ));
                if end.exit_status() == Some(0) { Verdict::Bad } else { verdict(end) }
            }
        })
    }
}

/// What distinguishes this mount from others, whatever their names.
fn mark(map: &PoolMap, mounted: &MountedCommand) -> String {
    let cache = if mounted.cache == Cache::None { "none" } else { "auto" };
    format!("{}/{}/{cache}@{}", map.pool, mounted.name.container(), mounted.prefix.display())
}

fn is_mounted(prefix: &Path) -> bool {
    matches!(mounts::at(prefix), Ok(Some(_))) && !mounts::is_dead(prefix)
}

/// Starts the command within the mount that this process itself is in.
fn start_here(mounted: &MountedCommand) -> Result<Verdict> {
    if let Some(dir) = &mounted.cwd {
        rustix::process::chdir(dir).with_context(|| format!("cannot enter {}", dir.display()))?;
    }
    for reopen in &mounted.reopen {
        descriptors::Reopen::parse(reopen)?.open()?;
    }
    Ok(launch::become_program(&mounted.program, &mounted.variables))
}

/// Starts the child. Gives the front's end of the socket that is the child's standard input.
fn spawn(mounted: &MountedCommand, fsname: &str, mark: &str) -> Result<(OwnedFd, Pid)> {
    let (ours, theirs) = handover::pair()?;
    let mut command = launch::this_program(INSIDE_COMMAND);
    command.arg("--prefix").arg(&mounted.prefix);
    command.arg("--fsname").arg(fsname);
    if let Some(cache) = mounted.cache.to_possible_value() {
        command.arg("--cache").arg(cache.get_name());
    }
    // A directory that is gone has no path; the command then stays in it.
    if let Some(dir) = mounted.cwd.clone().or_else(|| std::env::current_dir().ok()) {
        command.arg("--cwd").arg(dir);
    }
    let mut preload = std::env::var_os(LD_PRELOAD);
    for (name, value) in &mounted.variables {
        match value {
            Some(value) if *name == LD_PRELOAD => preload = Some(value.clone()),
            Some(value) => _ = command.env(name, value),
            None => _ = command.env_remove(name),
        }
    }
    command.env(MOUNTED, mark).env_remove(LD_PRELOAD);
    // With '=', since a value may begin with a dash.
    for (option, value) in [("--ld-preload=", &preload), ("--argv0=", &mounted.program.argv0)] {
        if let Some(value) = value {
            command.arg(joined(option, value));
        }
    }
    for reopen in &mounted.reopen {
        command.arg(joined("--reopen=", reopen));
    }
    command.arg("--").args(&mounted.program.words).stdin(Stdio::from(theirs));
    let child = command.spawn().context("cannot start a child process")?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok((ours, pid.context("the child process has no number")?))
}

fn joined(option: &str, value: &OsString) -> OsString {
    let mut text = OsString::from(option);
    text.push(value);
    text
}

/// Has the mount served that the child makes. `false` if the child has ended instead, by a signal.
fn serve(mounted: &MountedCommand, serving: &Serving, socket: &OwnedFd) -> Result<bool> {
    handover::send_begin(socket, rustix::stdio::stdin())?;
    match handover::receive_as_front(socket)? {
        None => Ok(false),
        Some(ToFront::Mounted(device, users)) => serving.begin((device, users)).map(|()| true),
        Some(ToFront::Refused(reason)) => {
            bail!("cannot mount at {}: {reason}", mounted.prefix.display())
        }
    }
}

/// Lets go of what belongs to the command, so that whoever waits for the end of a pipe or for a
/// directory to be free waits for the command alone. Standard error stays, for messages.
fn release(inherited: &[std::os::fd::RawFd]) -> Result<()> {
    let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    descriptors::close_all(inherited);
    rustix::process::chdir("/").context("cannot change to /")
}

/// Waits for the end of the child. Stops when it stops, so that a shell gets its terminal back.
fn wait(pid: Pid) -> Result<WaitStatus> {
    loop {
        let waited = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::UNTRACED));
        let Some((_, status)) = waited.context("cannot wait for the command")? else { continue };
        if status.exited() || status.signaled() {
            return Ok(status);
        }
        // Without a terminal nobody waits for this, and a server that stands still is a danger.
        if status.stopped() && std::fs::File::open("/dev/tty").is_ok() {
            kill_process(getpid(), Signal::STOP).context("cannot stop")?;
        }
    }
}

/// What an ended command came to, as a shell would put it.
fn verdict(end: WaitStatus) -> Verdict {
    let code = end.exit_status().or(end.terminating_signal().map(|signal| 128 + signal));
    Verdict::Ended(code.unwrap_or(1) as u8)
}
