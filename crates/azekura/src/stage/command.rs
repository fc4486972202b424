//! The job's command: its environment, its start, its end, and the signals that are meant for it. Never waits
//! for the command so that its number could be another's while signals are still passed on.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};
use azekura_proto::staging::{JOB_VARIABLE, JobId};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, waitid};

use super::args::Via;
use super::screen::Screen;
use crate::host::interrupt::{Asked, EndSignals};
use crate::host::programs;
use crate::outcome::Verdict;
use crate::report;
use crate::run::{self, BINARY, LD_PRELOAD, Program, Variables};

/// What OpenMPI hands on to its processes on other hosts: names of variables, between semicolons.
const OPEN_MPI_LIST: &str = "OMPI_MCA_mca_base_env_list";

/// The environment of the job's command.
///
/// # Errors
/// If the preload library is not where it should be.
pub(super) fn environment(job: JobId) -> Result<Variables> {
    let handed_on =
        with_names(std::env::var_os(OPEN_MPI_LIST).as_deref(), &[JOB_VARIABLE, LD_PRELOAD, BINARY]);
    Ok(vec![
        (JOB_VARIABLE, Some(job.to_hex().into())),
        (LD_PRELOAD, Some(run::preloaded()?)),
        (BINARY, Some(programs::own()?.into())),
        (OPEN_MPI_LIST, Some(handed_on)),
    ])
}

/// The list with these names behind what is there.
fn with_names(list: Option<&OsStr>, names: &[&str]) -> OsString {
    let mut text = list.unwrap_or_default().to_owned();
    for name in names {
        let there = list.unwrap_or_default().as_encoded_bytes();
        let mut there = there.split(|byte| *byte == b';');
        let is_it =
            |entry: &[u8]| entry.split(|byte| *byte == b'=').next() == Some(name.as_bytes());
        if !there.any(is_it) {
            if !text.is_empty() {
                text.push(";");
            }
            text.push(name);
        }
    }
    text
}

/// Whether the library serves a command.
pub(super) fn suits_library(words: &[OsString], via: Via, verbose: u8) -> bool {
    match (via, words.first()) {
        (Via::Notify, _) => false,
        (Via::Preload, _) | (Via::Auto, None) => true,
        (Via::Auto, Some(name)) => {
            let (suits, why) = run::suits_preload(name);
            if verbose > 0 {
                let way = if suits { "preload" } else { "notify" };
                report::note(format_args!("azekura: {} via {way}: {why}", name.display()));
            }
            suits
        }
    }
}

/// The command as it is to be started: by this program, where the library does not serve it.
///
/// # Errors
/// If this program does not know its own file.
pub(super) fn by_its_way(words: &[OsString], via: Via, verbose: u8) -> Result<Program> {
    let mut all = Vec::new();
    if !suits_library(words, via, verbose) {
        let via = if via == Via::Notify { "notify" } else { "auto" };
        all.push(programs::own()?.into_os_string());
        all.extend(["stage", "inside", "--via", via, "--anywhere", "--"].map(OsString::from));
    }
    all.extend_from_slice(words);
    Ok(Program { words: all, argv0: None })
}

/// Whom signals are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meant {
    /// This process: nothing else is there yet.
    Front,
    Command(Pid),
    /// Sending home goes on after the first that would end it.
    SendingHome,
}

/// Signals to the front.
pub(super) struct Signals {
    meant: Arc<Mutex<Meant>>,
}

impl Signals {
    /// Takes them from now on.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn take(screen: Arc<Screen>) -> Result<Self> {
        let meant = Arc::new(Mutex::new(Meant::Front));
        let shared = Arc::clone(&meant);
        let mut heard = EndSignals::default();
        run::catch_signals()?.give_to(move |signal, came_to_all| {
            let meant = shared.lock().unwrap_or_else(PoisonError::into_inner);
            match *meant {
                Meant::Command(pid) if !came_to_all => _ = kill_process(pid, signal),
                Meant::Command(_) => {}
                _ if !ends(signal) => {}
                Meant::SendingHome => match heard.heard(Instant::now()) {
                    Asked::ToEnd => {
                        screen.note(
                            "azekura: results are on their way home; once more gives them up",
                        );
                    }
                    Asked::TheSame => {}
                    Asked::Again => end_by(signal),
                },
                Meant::Front => end_by(signal),
            }
        })?;
        Ok(Self { meant })
    }

    fn are_for(&self, meant: Meant) {
        *self.meant.lock().unwrap_or_else(PoisonError::into_inner) = meant;
    }
}

/// Ends this process; the agents see their life lines end.
fn end_by(signal: Signal) {
    let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
}

fn ends(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// The command with its environment.
pub(super) fn to_start(program: &Program, variables: &Variables) -> Command {
    let mut command = Command::new(program.name());
    command.args(&program.words[1..]);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Runs the command to its end, and says what it came to.
///
/// # Errors
/// If it cannot be waited for.
pub(super) fn run_to_end(
    program: &Program,
    variables: &Variables,
    signals: &Signals,
    screen: &Screen,
) -> Result<u8> {
    let mut child = match to_start(program, variables).spawn() {
        Ok(child) => child,
        Err(error) => {
            signals.are_for(Meant::SendingHome);
            return Ok(match run::not_started(program, &error) {
                Verdict::Ended(code) => code,
                Verdict::Good | Verdict::Bad => 1,
            });
        }
    };
    let pid = Pid::from_child(&child);
    signals.are_for(Meant::Command(pid));
    wait(pid, screen);
    signals.are_for(Meant::SendingHome);
    reap(&mut child)
}

/// Waits until the command has ended; it stays to be reaped.
fn wait(pid: Pid, screen: &Screen) {
    let seen = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    while let Ok(status) =
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), seen | WaitIdOptions::NOWAIT))
    {
        let Some(status) = status.filter(WaitIdStatus::stopped) else { return };
        // Looked at once, it is not shown again.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        if status.stopping_signal() == Some(Signal::TSTP.as_raw()) {
            // The nodes would take a front that stands still for a dead one.
            screen.note("azekura: a staging job cannot be suspended, so it goes on");
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

fn reap(child: &mut Child) -> Result<u8> {
    Ok(exit_code(child.wait().context("cannot wait for the command")?))
}

/// As a shell says it: 128 and the signal for a command that was killed.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_added_to_a_list_once() {
        let names = ["A", "B"];
        assert_eq!(with_names(None, &names), "A;B");
        assert_eq!(with_names(Some(OsStr::new("")), &names), "A;B");
        assert_eq!(with_names(Some(OsStr::new("X=1;B=2;AB")), &names), "X=1;B=2;AB;A");
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn a_trapped_command_is_run_by_this_program() {
        let words = ["prog".into(), "-v".into()];
        let trapped = by_its_way(&words, Via::Notify, 0).unwrap().words;
        assert_eq!(
            trapped[1..],
            ["stage", "inside", "--via", "notify", "--anywhere", "--", "prog", "-v"]
        );
        assert_eq!(by_its_way(&words, Via::Preload, 0).unwrap().words, words);
        let shell = ["sh".into()];
        assert_eq!(by_its_way(&shell, Via::Auto, 0).unwrap().words, shell);
    }
}
