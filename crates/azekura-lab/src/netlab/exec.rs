//! `azekura-lab netlab exec`: a command in a host, as if it had been started here.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;

use anyhow::{Context as _, Result, bail};
use azekura::outcome::Verdict;
use azekura::report;
use azekura_netlab::NameSpaces;
use azekura_netlab::control::{Answer, Request};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::ExecArgs;
use super::which::tell;

/// What a shell says when there is no such command, or it cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Runs the command; its exit code becomes this program's.
pub(super) fn exec(args: &ExecArgs) -> Result<Verdict> {
    let Answer::Holder(pid) = tell(args.which.lab.as_deref(), &Request::Enter(args.host.clone()))?
    else {
        bail!("the lab gave no way into '{}'", args.host);
    };
    let entered = || format!("cannot enter host '{}'", args.host);
    let spaces = NameSpaces::of(pid).with_context(entered)?;
    let (program, arguments) = args.command.split_first().context("no command")?;
    // Before entering, after which no thread can be started.
    let (child_pid, forward_to) = mpsc::channel::<u32>();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    std::thread::spawn(move || {
        let Some(pid) =
            forward_to.recv().ok().and_then(|pid| rustix::process::Pid::from_raw(pid as i32))
        else {
            return;
        };
        for signal in signals.forever() {
            let signal = match signal {
                SIGTERM => rustix::process::Signal::TERM,
                SIGHUP => rustix::process::Signal::HUP,
                // The terminal has sent these to the command already.
                _ => continue,
            };
            let _ = rustix::process::kill_process(pid, signal);
        }
    });
    spaces.enter().with_context(entered)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let mut child = match azekura_netlab::spawn_bound(&mut command) {
        Ok(child) => child,
        Err(error) => {
            let name = program.to_string_lossy();
            report::note(format_args!(
                "azekura-lab: cannot run {name} in '{}': {error}",
                args.host
            ));
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(Verdict::Ended(if missing { NOT_FOUND } else { NOT_RUNNABLE }));
        }
    };
    let _ = child_pid.send(child.id());
    let status = child.wait().context("cannot wait for the command")?;
    Ok(Verdict::Ended(exit_code(status)))
}

/// As a shell says it: 128 and the signal for a command that was killed.
fn exit_code(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
