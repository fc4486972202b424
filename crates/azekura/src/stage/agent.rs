//! `azekura stage agent`: the process on a node. Owns its start and end: who it is comes as the first line of
//! standard input, which stays open as long as the front lives; at its end the agent ends, whatever
//! happens, and what it has made goes with it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura_stage::agent::Agent;
use azekura_stage::job::AgentDescription;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::desk::Relay;
use super::launch::{GREETING, MESSAGE_BYTES_MAX, lines};
use crate::report;

/// So long the agent may take to put its things away; the front and the batch system do not wait for ever.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// Stands on the node until the job ends.
///
/// # Errors
/// If the agent cannot be one: no description, no cache directory, no port.
pub(super) fn run() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let description = read_description(&mut input)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")?;
    let job = description.job;
    let host = description.host.clone();
    let agent = Arc::new(Agent::start(description).with_context(|| format!("agent on '{host}'"))?);
    report::say(format_args!("{GREETING}{}", agent.port()));
    let relay = Relay::open(job);
    let (tell, over) = mpsc::channel();
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let end = tell.clone();
    spawn("life line").spawn(move || {
        for line in lines(input, MESSAGE_BYTES_MAX) {
            relay.answer(&line);
        }
        let _ = end.send(());
    })?;
    let end = tell.clone();
    spawn("signals").spawn(move || {
        signals.forever().next();
        let _ = end.send(());
    })?;
    let waiting = Arc::clone(&agent);
    spawn("job").spawn(move || {
        waiting.wait();
        let _ = tell.send(());
    })?;
    let _ = over.recv();
    spawn("end").spawn(|| {
        std::thread::sleep(END_TIMEOUT);
        report::note("azekura: the agent could not put its things away in time");
        std::process::exit(1);
    })?;
    agent.stop();
    Ok(())
}

fn read_description(input: &mut impl std::io::BufRead) -> Result<AgentDescription> {
    let mut line = Vec::new();
    let read = input.take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line);
    read.context("cannot read who this agent is")?;
    // The error of the parser would quote the line, and the secret is in it.
    serde_json::from_slice(&line).ok().context(
        "this command is for the use of 'azekura stage run' only, which tells it on standard input \
         who it is; the programs at both ends have to be of the same version",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_description_is_not_repeated() {
        let error = read_description(&mut &b"{\"secret\":\"abcdef\"}\n"[..]).unwrap_err();
        assert!(!format!("{error:#}").contains("abcdef"));
    }
}
