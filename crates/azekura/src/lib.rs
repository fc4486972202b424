//! Azekura, the program. This page is its table of contents. What is public is what `azekura-lab`, the
//! second program, is built from as well.

// The doc comments of arguments are help texts for people at a terminal.
#![allow(clippy::doc_markdown)]

mod asking; //     single questions to single engines
mod bench; //     azekura bench: figures held against references, and batches
mod calibrate; // azekura calibrate: what forecasts follow from
mod check; //      azekura fs check: what does not fit together, and how to mend it
mod cli; //        the command line
mod commands; //   up, down, status, serve, pool, container, mount, umount, dev, trace
pub mod completions; // azekura completions: what a shell knows of the command line
pub mod connect; // connections to pools and engines
mod forecast; //  azekura forecast: how long a batch will take, and on how many processes
mod fs; //         azekura fs: files without a mount
pub mod host; //   directories, processes, mounts and background programs of this machine
pub mod load; //   worker processes that put a load on a pool or a directory
pub mod logging; // what goes to standard error and log files
pub mod names; //  names of pools, containers and places in them
pub mod outcome; // what a command came to, exit codes
pub mod panics; // what a panic does: end the program
mod pool_names; // what completes an argument that names a pool
mod profile; //    azekura profile: the I/O of a real run, and the job that it comes to
pub mod reading; // how far files are read: options that many commands have
pub mod report; // tables, progress bars, JSON
mod run; //        azekura run: commands that find a container below a prefix
mod stage; //      azekura stage: files that come to a job's nodes when they are opened
mod waiting; //    what is said while an engine does not answer
mod watch; //      an eye on the engines while a command works
mod words; //      commands that another process of this program carries out

use std::process::ExitCode;

use clap::Parser as _;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    panics::abort_on_panic();
    // Ends the process if it was started by a shell that completes a command line.
    completions::answer(cli::Cli::for_completion);
    let cli = cli::Cli::parse();
    logging::start(cli.log_verbosity(), cli.runs_long());
    outcome::exit_code("azekura", cli.run())
}
