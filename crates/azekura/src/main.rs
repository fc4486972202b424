//! Azekura, the program. This page is its table of contents.

// The doc comments of arguments are help texts for people at a terminal.
#![allow(clippy::doc_markdown)]

mod bench; //    azekura bench: figures held against references
mod check; //    azekura fs check: what does not fit together, and how to mend it
mod cli; //      the command line, exit codes
mod commands; // up, down, status, serve, pool, container, mount, umount, dev, completions
mod experiment; // azekura experiment: figures in many points, with tables and plots
mod fs; //       azekura fs: files without a mount
mod host; //     directories, processes, mounts and background programs of this machine
mod logging; //  what goes to standard error and log files
mod panics; //   what a panic does: end the program
mod reach; //    names of pools, and connections to them
mod reading; //  how far files are read: options that many commands have
mod report; //   tables, progress bars, JSON
mod run; //      azekura run: commands that find a container below a prefix

use std::process::ExitCode;

use clap::Parser as _;

/// Creating a file makes a dozen small allocations; with the C library's allocator they cost as much
/// as storing it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    panics::abort_on_panic();
    let cli = cli::Cli::parse();
    logging::start(cli.log_verbosity(), cli.runs_long());
    cli::exit_code(cli.run())
}
