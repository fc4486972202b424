//! `azekura netlab`: hosts and links on this machine. The lab lives in a process of its own; all
//! other commands talk to that one. What a lab is and does stands in the crate under it.

mod exec;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use azekura_netlab::control::{self, Answer, Reception, Request};
use azekura_netlab::{Change, Lab, Topology};
use clap::{Args, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{Verdict, usage};
use crate::host::daemon::{self, Starting};
use crate::host::places;
use crate::report;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// `azekura netlab`.
#[derive(Debug, Subcommand)]
pub(crate) enum NetlabCommand {
    /// Make the hosts and links of a file
    Up(UpArgs),
    /// Run a command in a host, with its exit code
    Exec(ExecArgs),
    /// Change a link while packets pass
    Set(SetArgs),
    /// Pull all cables of a host
    Cut(HostArgs),
    /// Plug them in again
    Mend(HostArgs),
    /// Stop all processes of a host where they are
    Freeze(HostArgs),
    /// Let them go on
    Thaw(HostArgs),
    /// Kill all processes of a host
    Kill(HostArgs),
    /// Show hosts and links
    Status(StatusArgs),
    /// Remove a lab, its processes included
    Down(DownArgs),
    /// Measure how exact delays, rates and losses are on this machine
    Selftest(SelftestArgs),
}

/// Which lab.
#[derive(Debug, Args)]
pub(crate) struct WhichLab {
    /// Name of the lab [default: the only one that runs]
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
}

/// `azekura netlab up`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura netlab up wan.toml\n  \
    azekura netlab exec client -- ping -c 3 server\n\n\
    A file:\n  \
    hosts = [\"client\", \"server\"]\n  \
    [[links]]\n  \
    name = \"wan\"                  # otherwise client-server\n  \
    between = [\"client\", \"server\"]\n  \
    delay = \"50ms\"                # one way; also jitter, rate, loss, reorder, queue, mtu\n  \
    rate = \"1gbit\"\n\n\
    docs/NETLAB.md says more.")]
pub(crate) struct UpArgs {
    /// Hosts and links
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Name of the lab [default: as the file says, or its name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Stay until a signal comes; the lab goes with this process
    #[arg(long)]
    foreground: bool,
    /// Started by another 'azekura netlab up', which waits
    #[arg(long, hide = true)]
    in_background: bool,
}

/// `azekura netlab exec`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura netlab exec client -- ping -c 3 server\n  \
    azekura netlab exec server -- bash\n\n\
    The command has the host's network, processes and host name, and the machine's files.")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    which: WhichLab,
    /// The host
    host: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `azekura netlab set`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura netlab set wan delay=50ms rate=1gbit\n  \
    azekura netlab set wan from=client loss=1%     only what the client sends\n  \
    azekura netlab set wan down                    nothing passes\n  \
    azekura netlab set wan up")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    which: WhichLab,
    /// The link
    link: String,
    /// delay, jitter, rate, loss, reorder, queue =VALUE; up or down; from=HOST for one direction
    #[arg(required = true, value_name = "CHANGE")]
    changes: Vec<String>,
}

/// Commands about a host.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura netlab cut server\n  azekura netlab mend server\n  \
    azekura netlab freeze server\n  azekura netlab thaw server\n  \
    azekura netlab kill server      the host stays, without processes")]
pub(crate) struct HostArgs {
    #[command(flatten)]
    which: WhichLab,
    /// The host
    host: String,
}

/// `azekura netlab status`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura netlab status            all labs that run\n  \
    azekura netlab status --json     for programs")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    which: WhichLab,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `azekura netlab down`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura netlab down\n  azekura netlab down wan")]
pub(crate) struct DownArgs {
    /// Name of the lab [default: the only one that runs]
    #[arg(value_name = "NAME")]
    lab: Option<String>,
}

/// `azekura netlab selftest`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura netlab selftest\n\n\
    Takes about a minute. The exit code is 1 if a figure is out of its bound; other programs that \
    keep the machine busy can be why.")]
pub(crate) struct SelftestArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Labs are told apart by the directory that the sockets of this user's pools lie in.
fn scope() -> Result<String> {
    Ok(places::socket_dir()?.to_string_lossy().into_owned())
}

/// The scope, and the lab that is meant in it.
fn find(name: Option<&str>) -> Result<(String, String)> {
    let scope = scope()?;
    if let Some(name) = name {
        return Ok((scope, name.to_owned()));
    }
    let names = control::names(&scope).context("cannot read /proc/net/unix")?;
    match names.as_slice() {
        [only] => Ok((scope, only.clone())),
        [] => bail!("no lab is running: start one with 'azekura netlab up FILE.toml'"),
        several => {
            Err(usage(format!("several labs are running, name one: {}", several.join(", "))))
        }
    }
}

fn tell(name: Option<&str>, request: &Request) -> Result<Answer> {
    let (scope, name) = find(name)?;
    Ok(control::ask(&scope, &name, request)?)
}

fn load(args: &UpArgs) -> Result<Topology> {
    let mut topology = Topology::load(&args.file).map_err(|error| usage(error.to_string()))?;
    if let Some(name) = &args.name {
        azekura_netlab::check_name(name).map_err(|error| usage(error.to_string()))?;
        topology.name.clone_from(name);
    }
    Ok(topology)
}

fn up(args: &UpArgs) -> Result<()> {
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
        report::say(format_args!("use it:   azekura netlab exec {host} -- CMD"));
    }
    report::say(format_args!("end it:   azekura netlab down {name}"));
}

type Ends = mpsc::Receiver<std::os::unix::net::UnixStream>;

fn begin(args: &UpArgs) -> Result<(Arc<Lab>, Ends)> {
    let topology = load(args)?;
    let reception = Reception::open(&scope()?, &topology.name)?;
    let lab = Arc::new(Lab::up(&topology)?);
    let (end, ended) = mpsc::channel();
    reception.serve(&lab, end)?;
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

fn set(args: &SetArgs) -> Result<()> {
    Change::parse(&args.changes).map_err(|error| usage(error.to_string()))?;
    let request = Request::Set { link: args.link.clone(), words: args.changes.clone() };
    tell(args.which.lab.as_deref(), &request).map(|_| ())
}

fn about_host(args: &HostArgs, request: fn(String) -> Request) -> Result<()> {
    tell(args.which.lab.as_deref(), &request(args.host.clone())).map(|_| ())
}

/// Runs the command.
///
/// # Errors
/// If there is no such lab, or it cannot do what it is told.
pub(crate) fn run(command: &NetlabCommand) -> Result<Verdict> {
    match command {
        NetlabCommand::Up(args) => up(args),
        NetlabCommand::Exec(args) => return exec::exec(args),
        NetlabCommand::Set(args) => set(args),
        NetlabCommand::Cut(args) => about_host(args, Request::Cut),
        NetlabCommand::Mend(args) => about_host(args, Request::Mend),
        NetlabCommand::Freeze(args) => about_host(args, Request::Freeze),
        NetlabCommand::Thaw(args) => about_host(args, Request::Thaw),
        NetlabCommand::Kill(args) => about_host(args, Request::Kill),
        NetlabCommand::Status(args) => show::status(args),
        NetlabCommand::Down(args) => {
            let (scope, name) = find(args.lab.as_deref())?;
            control::ask(&scope, &name, &Request::Down)?;
            report::say(format_args!("lab '{name}' is removed"));
            Ok(())
        }
        NetlabCommand::Selftest(args) => return show::selftest(args),
    }
    .map(|()| Verdict::Good)
}
