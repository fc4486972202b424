//! The arguments of `azekura profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Record the I/O of a command, and write the job that it is
///
/// The command runs as it would without this, with the preload library counting what it reads and writes,
/// by files, on any file system; neither a pool nor root is needed. What is written is a JOB.toml for
/// 'azekura forecast', to be edited: ten times the data, eight nodes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    azekura profile -o JOB.toml -- tar -xf data.tar\n  \
    azekura profile --under /data -o JOB.toml -- make -j4\n  \
    azekura profile --darshan app_id1234.darshan -o JOB.toml")]
pub(crate) struct ProfileArgs {
    /// Write the job to this file; without it, to standard output after the command has ended
    #[arg(short, long, value_name = "JOB.toml")]
    pub(super) output: Option<PathBuf>,
    /// Record files below this directory only; can be given several times
    #[arg(long, value_name = "DIR", conflicts_with = "darshan")]
    pub(super) under: Vec<PathBuf>,
    /// Write what each process did with each file to this file too, as a table for spreadsheets
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write all that was recorded to this file too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Read what Darshan has recorded of a job instead of running one (needs Python's 'darshan')
    #[arg(long, value_name = "LOG", conflicts_with = "command")]
    pub(super) darshan: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "darshan", value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}
