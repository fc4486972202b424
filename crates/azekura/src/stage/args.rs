//! The options of `azekura stage`, as they are typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `azekura stage`.
#[derive(Debug, Subcommand)]
pub(crate) enum StageCommand {
    /// Run a command whose files come to its nodes when they are opened, and go home at the end
    Run(Box<RunArgs>),
    /// Bring files before they are opened
    In(InArgs),
    /// Send home now what programs of a job have written so far
    Sync(SyncArgs),
    /// Show the nodes of a job and what has come to them
    Status(StatusArgs),
    /// Run a command of a job on its node by the way that suits it
    #[command(hide = true)]
    Inside(InsideArgs),
    /// Finish sending home what a job could not
    Resume(ResumeArgs),
    /// Stand on a node of a job; started by 'azekura stage run'
    #[command(hide = true)]
    Agent(AgentArgs),
}

/// Who gets a file that one node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum To {
    /// All nodes, as one chain
    All,
    /// The nodes that open it; later ones fetch it from a neighbour
    Requesters,
}

/// How the job's programs are noticed when they open something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Via {
    /// Choose by looking at the program
    Auto,
    /// A library that is loaded into dynamic programs
    Preload,
    /// Notifications of the kernel (seccomp); for every program
    Notify,
}

/// `azekura stage run`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura stage run --hosts n1,n2,n3 --map /data/in=ro --map /data/out=out \\\n      \
        --cache /local/scratch -- mpirun -host n1,n2,n3 ./simulate /data/in /data/out\n  \
    azekura stage run --map ~/project=rw --cache /tmp -- srun ./app      (within a SLURM job)\n  \
    azekura stage run --map /data/in=ro@s3://bucket/set1 --map /data/out=out@default:/runs ... -- ./app\n\n\
    Homes: s3://BUCKET/PREFIX, webdav[s]://HOST/PATH, sftp://[USER@]HOST/PATH, [s]webhdfs://HOST:PORT/PATH, \
    file:///PATH, and POOL:/path. Keys and passwords come from the environment (AWS_*, WEBDAV_*, \
    HADOOP_USER_NAME, ssh's own); '?endpoint=URL&region=NAME' behind an s3 URL names another service than \
    Amazon's.\n\n\
    The command runs here and starts its programs on the nodes itself; they find the mapped directories \
    under the same paths. The exit code is the command's (128 and the signal's number if a signal ended \
    it), 75 if the command was right and not everything could be sent home, 2 if this command line cannot \
    mean anything.")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line are independent of each other.
pub(crate) struct RunArgs {
    /// The nodes: names as H1,H2 or n[01-16] [default: those of the SLURM job]
    #[arg(long, value_name = "HOSTS", conflicts_with = "hostfile")]
    pub(super) hosts: Option<String>,
    /// File with the nodes, the first word of each line; a node named again is not counted again
    #[arg(long, value_name = "FILE")]
    pub(super) hostfile: Option<PathBuf>,
    /// Directory that programs reach on every node: ro: files come; out: what is written goes home; rw: both.
    /// Home is the directory itself, or what stands behind '@': a URL, or POOL:/path
    #[arg(long = "map", value_name = "DIR=ro|out|rw[@HOME]", required = true)]
    pub(super) maps: Vec<OsString>,
    /// Directory of every node for what comes
    #[arg(long, value_name = "DIR")]
    pub(super) cache: PathBuf,
    /// How a command is started on a host [default: srun within SLURM, else ssh; this host needs neither]
    #[arg(long, value_name = "'CMD {host} {command}'")]
    pub(super) launch: Option<String>,
    /// Which nodes get a file that one of them opens
    #[arg(long, value_enum, default_value = "requesters")]
    pub(super) to: To,
    /// How programs are noticed when they open files
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) via: Via,
    /// File for what happens, one JSON object per line; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Nodes that send home at the same time
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) out_concurrency: u16,
    /// Send files home when the last program closes them, too, and not at the end only
    #[arg(long)]
    pub(super) out_on_close: bool,
    /// Leave what has come on the nodes when the job ends
    #[arg(long)]
    pub(super) keep_cache: bool,
    /// Programs wait for all of a file when they open it; else they read large ones while they come
    #[arg(long)]
    pub(super) whole: bool,
    /// Write large files to the cache past the page cache (O_DIRECT)
    #[arg(long)]
    pub(super) direct: bool,
    /// File for what is sent home, line by line [default: azekura-stage-JOB.manifest here, which goes again
    /// if all was sent]
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(super) command: Vec<OsString>,
}

/// Which job.
#[derive(Debug, Args)]
pub(crate) struct WhichJob {
    /// The job's digits [default: AZEKURA_STAGE, or the only job of this host]
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
}

/// `azekura stage in`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura stage in /data/in/mesh.h5 /data/in/tables\n\n\
    On a node the files come to that node, beside the job's host to all nodes. Does not wait for them. A \
    directory stands for all that is in it; a name that does not exist costs nothing.")]
pub(crate) struct InArgs {
    #[command(flatten)]
    pub(super) which: WhichJob,
    /// Files and directories below mapped ones
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
}

/// `azekura stage sync`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura stage sync\n\n\
    Works on the job's host and on its nodes, and returns when everything that was closed before is at \
    home. The exit code is 75 if something could not be sent.")]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pub(super) which: WhichJob,
}

/// `azekura stage status`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura stage status\n  azekura stage status --json")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) which: WhichJob,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `azekura stage resume`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura stage resume azekura-stage-0a1b2c3d.manifest\n\n\
    Starts the job's agents again, which have kept what was not sent, and sends it. Where the job was started \
    by --launch the same is used. The exit code is 75 if something is still not at home.")]
pub(crate) struct ResumeArgs {
    /// The manifest that the job has written
    #[arg(value_name = "MANIFEST")]
    pub(super) manifest: PathBuf,
    /// How a command is started on a host [default: as the job did]
    #[arg(long, value_name = "'CMD {host} {command}'")]
    pub(super) launch: Option<String>,
    /// Nodes that send home at the same time
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) out_concurrency: u16,
}

/// `azekura stage inside`.
#[derive(Debug, Args)]
pub(crate) struct InsideArgs {
    /// How the command is noticed when it opens files
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) via: Via,
    /// Leave the command alone on a host that is none of the job's nodes
    #[arg(long, hide = true)]
    pub(super) anywhere: bool,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(super) command: Vec<OsString>,
}

/// `azekura stage agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Remove what an agent has left that was killed, and end
    #[arg(long)]
    pub(super) sweep: bool,
}
