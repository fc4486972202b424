//! `azekura-lab netlab up`: a lab lives in a process of its own, which goes on until it is told to end.

use std::ffi::OsString;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Result, bail};
use azekura::host::daemon::{self, Starting};
use azekura::host::places;
use azekura::outcome::usage;
use azekura::report;
use azekura_netlab::control::Reception;
use azekura_netlab::{Lab, Topology};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::UpArgs;
use super::which::scope;

const START_TIMEOUT: Duration = Duration::from_secs(60);

fn load(args: &UpArgs) -> Result<Topology> {
    let mut topology = Topology::load(&args.file).map_err(|error| usage(error.to_string()))?;
    if let Some(name) = &args.name {
        azekura_netlab::check_name(name).map_err(|error| usage(error.to_string()))?;
        topology.name.clone_from(name);
    }
    Ok(topology)
}

/// Starts a lab, in the background unless it is to stay.
pub(super) fn up(args: &UpArgs) -> Result<()> {
    if args.in_background || args.foreground {
        // Before anything else, because this leaves the directory that the file is found from.
        let file = places::absolute(&args.file)?;
        let starting = Starting::begin(args.in_background)?;
        return match begin(&UpArgs { file, name: args.name.clone(), ..*args }) {
            Ok((lab, ended)) => stay(lab, &ended, args, starting),
            Err(error) => Err(starting.failed(error)),
        };
    }
    let topology = load(args)?;
    let mut arguments: Vec<OsString> =
        ["netlab", "up", "--in-background", "--name"].into_iter().map(OsString::from).collect();
    arguments.push(topology.name.clone().into());
    arguments.push(places::absolute(&args.file)?.into());
    let log = places::log_file(&format!("netlab-{}", topology.name))?;
    let what = format!("starting lab '{}'", topology.name);
    let pid = daemon::launch(&arguments, &log, START_TIMEOUT, &what)?;
    tell_started(&topology, pid);
    Ok(())
}

fn tell_started(topology: &Topology, pid: u32) {
    let name = &topology.name;
    report::say(format_args!(
        "lab '{name}' is up: {} hosts, {} links (process {pid})",
        topology.hosts.len(),
        topology.links.len()
    ));
    if let Some(host) = topology.hosts.first() {
        report::say(format_args!("use it:   azekura-lab netlab exec {host} -- CMD"));
    }
    report::say(format_args!("end it:   azekura-lab netlab down {name}"));
}

type Ends = mpsc::Receiver<std::os::unix::net::UnixStream>;

fn begin(args: &UpArgs) -> Result<(Arc<Lab>, Ends)> {
    let topology = load(args)?;
    let reception = Reception::open(&scope()?, &topology.name)?;
    let lab = Arc::new(Lab::up(&topology)?);
    let (end, ended) = mpsc::channel();
    reception.serve(&lab, &end)?;
    if args.foreground {
        tell_started(&topology, std::process::id());
    }
    Ok((lab, ended))
}

/// Whether the process that waits for this one's word is gone.
fn parent_is_gone() -> bool {
    let stdout = rustix::stdio::stdout();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

fn stay(lab: Arc<Lab>, ended: &Ends, args: &UpArgs, starting: Starting) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    if args.in_background && parent_is_gone() {
        bail!("the command that started this lab was killed meanwhile");
    }
    starting.ready()?;
    // Whoever asks for the end waits until its connection closes, which is when this returns.
    let _waiting = loop {
        if let Ok(stream) = ended.recv_timeout(Duration::from_millis(100)) {
            break Some(stream);
        }
        if signals.pending().next().is_some() {
            break None;
        }
    };
    tracing::info!(lab = lab.name(), "ending");
    // A request that is being answered holds the lab for that long.
    let mut lab = lab;
    loop {
        match Arc::try_unwrap(lab) {
            Ok(last) => break drop(last),
            Err(shared) => lab = shared,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
