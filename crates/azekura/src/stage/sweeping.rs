//! Removes what agents have left that could not do it themselves: they were killed, and their nodes live. Started
//! like the agents, at the end of the job, which does not wait long for it.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use azekura_stage::job::AgentDescription;

use super::launch::kill_group;
use super::screen::Screen;
use super::words::Launcher;

/// So long all of them may take together: a host that is down does not answer at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sweeps the nodes of these agents. `command` is what an agent is started by.
pub(super) fn sweep(
    launcher: &Launcher,
    command: &[OsString],
    lost: &[AgentDescription],
    screen: &Screen,
) {
    let command = [command, &["--sweep".into()]].concat();
    let begun: Vec<_> = lost.iter().map(|lost| (lost, begin(launcher, &command, lost))).collect();
    let deadline = Instant::now() + PATIENCE;
    for (lost, child) in begun {
        if !child.is_ok_and(|child| succeeds(child, deadline)) {
            let (host, cache) = (&lost.host, lost.cache.display());
            let name = lost.job.socket_name();
            screen.note(&format!("azekura: on '{host}' something of {cache}/{name} may be left"));
        }
    }
}

fn begin(
    launcher: &Launcher,
    command: &[OsString],
    lost: &AgentDescription,
) -> std::io::Result<Child> {
    let words = launcher.words(&lost.host, command);
    let (program, arguments) = words.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut line = serde_json::to_vec(lost)?;
    line.push(b'\n');
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&line));
    // One that ends at once is waited for all the same.
    drop(written);
    Ok(child)
}

fn succeeds(mut child: Child, deadline: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                kill_group(&mut child);
                return false;
            }
        }
    }
}
