//! `azekura-lab netlab exec`: a command in a host, as if it had been started here. From outside this
//! process enters the host; from within a host the lab runs the command for it.

use std::process::Command;
use std::sync::mpsc;

use anyhow::{Context as _, Result, bail};
use azekura::outcome::Verdict;
use azekura::report;
use azekura_netlab::NameSpaces;
use azekura_netlab::control::{self, Answer, Request};
use azekura_netlab::errand::{Errand, Outcome, exit_code};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::ExecArgs;
use super::which::find;

/// What a shell says when there is no such command, or it cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Runs the command; its exit code becomes this program's.
pub(super) fn exec(args: &ExecArgs) -> Result<Verdict> {
    let (scope, name) = find(args.which.lab.as_deref())?;
    match control::ask(&scope, &name, &Request::Enter(args.host.clone()))? {
        Answer::Holder(pid) => enter(args, pid),
        Answer::Within => leave_to_lab(args, &scope, &name),
        _ => bail!("the lab gave no way into '{}'", args.host),
    }
}

fn enter(args: &ExecArgs, holder: u32) -> Result<Verdict> {
    let entered = || format!("cannot enter host '{}'", args.host);
    let spaces = NameSpaces::of(holder).with_context(entered)?;
    let (program, arguments) = args.command.split_first().context("no command")?;
    // Before entering, after which no thread can be started.
    let (child_pid, forward_to) = mpsc::channel::<u32>();
    let mut signals = Signals::new(SIGNALS)?;
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
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(not_started(args, missing, &error.to_string()));
        }
    };
    let _ = child_pid.send(child.id());
    let status = child.wait().context("cannot wait for the command")?;
    Ok(Verdict::Ended(exit_code(status)))
}

fn leave_to_lab(args: &ExecArgs, scope: &str, name: &str) -> Result<Verdict> {
    let mut signals = Signals::new(SIGNALS)?;
    let errand = Errand::of_this_process(&args.host, &args.command);
    let underway = control::begin(scope, name, errand)?;
    let answer = std::thread::scope(|scope| {
        let handle = signals.handle();
        scope.spawn(|| {
            for signal in signals.forever() {
                // A lab that is gone has taken the command along.
                let _ = underway.signal(signal);
            }
        });
        let answer = control::finish(name, &underway);
        handle.close();
        answer
    });
    match answer? {
        Outcome::Ended(code) => Ok(Verdict::Ended(code)),
        Outcome::NotStarted { missing, why } => Ok(not_started(args, missing, &why)),
        Outcome::Failed(why) => bail!(why),
    }
}

fn not_started(args: &ExecArgs, missing: bool, why: &str) -> Verdict {
    let name = args.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    report::note(format_args!("azekura-lab: cannot run {name} in '{}': {why}", args.host));
    Verdict::Ended(if missing { NOT_FOUND } else { NOT_RUNNABLE })
}
