//! The laboratory of Azekura, a program beside `azekura`. This page is its table of contents. What both
//! programs do (printing, background processes, loads) stands in the library of `azekura`.

// The doc comments of arguments are help texts for people at a terminal.
#![allow(clippy::doc_markdown)]

mod chart; //      line charts
mod cli; //        the command line
mod draw; //       azekura-lab draw: a trace of far reads as a picture
mod draw_forecast; // azekura-lab draw-forecast: time and throughput by processes
mod experiment; // azekura-lab experiment: figures in many points, with tables and plots
mod netlab; //     azekura-lab netlab: hosts and links on this machine

use std::process::ExitCode;

use clap::Parser as _;

/// As in `azekura`, so that what runs in this program is as fast as there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    azekura::panics::abort_on_panic();
    let cli = cli::Cli::parse();
    azekura::logging::start(cli.verbose, false);
    azekura::outcome::exit_code("azekura-lab", cli.run())
}
