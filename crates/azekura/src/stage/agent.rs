//! `azekura stage agent`: the process on a node. Owns its start and end: who it is comes as the first line of
//! standard input, which stays open as long as the front lives; at its end the agent ends, whatever
//! happens, and what it has made goes with it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura_stage::agent::Agent;
use azekura_stage::job::AgentDescription;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::AgentArgs;
use super::desk::Relay;
use super::launch::{GREETING, MESSAGE_BYTES_MAX, lines};
use crate::report;

/// So long the agent may take to put its things away; the front and the batch system do not wait for ever.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// Stands on the node until the job ends.
///
/// # Errors
/// If the agent cannot be one: no description, no cache directory, no port.
pub(super) fn run(args: &AgentArgs) -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let description = read_description(&mut input)?;
    if args.sweep {
        return sweep(&description);
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")?;
    let job = description.job;
    let host = description.host.clone();
    let agent = Arc::new(Agent::start(description).with_context(|| format!("agent on '{host}'"))?);
    if writeln!(std::io::stdout(), "{GREETING}{}", agent.port()).is_err() {
        // The job has been given up meanwhile.
        agent.stop();
        return Ok(());
    }
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

/// Removes what the agent of that node has left.
fn sweep(description: &AgentDescription) -> Result<()> {
    let job = description.cache.join(description.job.socket_name());
    let node = job.join(description.node.0.to_string());
    match std::fs::remove_dir_all(&node) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", node.display()));
        }
        _ => {}
    }
    // Another node may share the directory.
    let _ = std::fs::remove_dir(job);
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
    fn what_an_agent_has_left_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let description = AgentDescription {
            job: azekura_proto::staging::JobId([7; 16]),
            secret: String::new(),
            node: azekura_proto::staging::NodeId(3),
            host: "n3".to_owned(),
            cache: cache.path().to_owned(),
            maps: Vec::new(),
            keeps_cache: false,
            keeping: azekura_stage::job::Keeping::default(),
            socket_suffix: String::new(),
        };
        sweep(&description).unwrap();
        let job = cache.path().join("azekura-stage-".to_owned() + &"07".repeat(16));
        std::fs::create_dir_all(job.join("3/tree/0")).unwrap();
        std::fs::create_dir_all(job.join("2")).unwrap();
        sweep(&description).unwrap();
        assert!(!job.join("3").exists() && job.join("2").exists());
        std::fs::remove_dir(job.join("2")).unwrap();
        sweep(&description).unwrap();
        assert!(!job.exists());
    }

    #[test]
    fn what_is_no_description_is_not_repeated() {
        let error = read_description(&mut &b"{\"secret\":\"abcdef\"}\n"[..]).unwrap_err();
        assert!(!format!("{error:#}").contains("abcdef"));
    }
}
