//! The options of the commands, as they are typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `azekura-lab netlab`.
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
    pub(super) lab: Option<String>,
}

/// `azekura-lab netlab up`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura-lab netlab up wan.toml\n  \
    azekura-lab netlab exec client -- ping -c 3 server\n\n\
    A file:\n  \
    hosts = [\"client\", \"server\"]\n  \
    [[links]]\n  \
    name = \"wan\"                  # otherwise client-server\n  \
    between = [\"client\", \"server\"]\n  \
    delay = \"50ms\"                # one way; also jitter, rate, loss, reorder, queue, lump, mtu\n  \
    rate = \"1gbit\"\n\n\
    docs/NETLAB.md says more.")]
pub(crate) struct UpArgs {
    /// Hosts and links
    #[arg(value_name = "FILE.toml")]
    pub(super) file: PathBuf,
    /// Name of the lab [default: as the file says, or its name]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Stay until a signal comes; the lab goes with this process
    #[arg(long)]
    pub(super) foreground: bool,
    /// Started by another 'azekura-lab netlab up', which waits
    #[arg(long, hide = true)]
    pub(super) in_background: bool,
}

/// `azekura-lab netlab exec`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura-lab netlab exec client -- ping -c 3 server\n  \
    azekura-lab netlab exec server -- bash\n\n\
    The command has the host's network, processes and host name, and the machine's files.")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(super) which: WhichLab,
    /// The host
    pub(super) host: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

/// `azekura-lab netlab set`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura-lab netlab set wan delay=50ms rate=1gbit\n  \
    azekura-lab netlab set wan from=client loss=1%     only what the client sends\n  \
    azekura-lab netlab set wan down                    nothing passes\n  \
    azekura-lab netlab set wan up")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(super) which: WhichLab,
    /// The link
    pub(super) link: String,
    /// delay, jitter, rate, loss, reorder, queue, lump =VALUE; up or down; from=HOST for one direction
    #[arg(required = true, value_name = "CHANGE")]
    pub(super) changes: Vec<String>,
}

/// Commands about a host.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura-lab netlab cut server\n  azekura-lab netlab mend server\n  \
    azekura-lab netlab freeze server\n  azekura-lab netlab thaw server\n  \
    azekura-lab netlab kill server      the host stays, without processes")]
pub(crate) struct HostArgs {
    #[command(flatten)]
    pub(super) which: WhichLab,
    /// The host
    pub(super) host: String,
}

/// `azekura-lab netlab status`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura-lab netlab status            all labs that run\n  \
    azekura-lab netlab status --json     for programs")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) which: WhichLab,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `azekura-lab netlab down`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura-lab netlab down\n  azekura-lab netlab down wan")]
pub(crate) struct DownArgs {
    /// Name of the lab [default: the only one that runs]
    #[arg(value_name = "NAME")]
    pub(super) lab: Option<String>,
}

/// `azekura-lab netlab selftest`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura-lab netlab selftest\n\n\
    Takes about a minute. The exit code is 1 if a figure is out of its bound; other programs that \
    keep the machine busy can be why.")]
pub(crate) struct SelftestArgs {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}
