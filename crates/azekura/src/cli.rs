//! The command line: its commands, and what all of them share.

use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};

use crate::commands::{
    container, dev, doctor, down, lab, logs, mount, nfs, pool, serve, status, trace, umount, up,
    with_engine,
};
use crate::outcome::Verdict;
use crate::{
    bench, calibrate, completions, forecast, fs, load, pool_names, profile, run, stage, watch,
};

/// Azekura: a parallel file system that one command starts
#[derive(Debug, Parser)]
#[command(
    name = "azekura",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Start here:\n  \
        azekura up                     start a pool on this machine\n  \
        azekura mount default ./mnt    use it as a directory\n  \
        azekura status                 see how it is\n\n\
        azekura-lab, the program beside this one, makes near and far hosts to try things in, and \
        measures."
)]
pub(crate) struct Cli {
    /// Say more on standard error (twice: much more); RUST_LOG decides in detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a pool on this machine, making it the first time
    Up(up::UpArgs),
    /// Stop a pool of this machine
    Down(down::DownArgs),
    /// Show how pools are
    Status(status::StatusArgs),
    /// Show what an engine or a mount has written to its log
    Logs(logs::LogsArgs),
    /// Look whether this machine lets the commands work, and say what to do
    Doctor(doctor::DoctorArgs),
    /// Run an engine in the foreground, for a pool over several engines
    Serve(serve::ServeArgs),
    /// Make, list, show and forget pools over several engines
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Make, list, change and destroy containers
    #[command(subcommand)]
    Container(container::ContainerCommand),
    /// Mount a container at a directory
    Mount(mount::MountArgs),
    /// Unmount a directory, also one whose process has died
    Umount(umount::UmountArgs),
    /// Serve a container to NFS clients, which need nothing installed
    Nfs(nfs::NfsArgs),
    /// Run a command that finds a container below a directory of its own
    Run(run::RunArgs),
    /// Run jobs on many hosts whose files come to them when they are opened
    #[command(subcommand)]
    Stage(stage::StageCommand),
    /// Work with files without a mount, and check a container
    #[command(subcommand)]
    Fs(fs::FsCommand),
    /// Measure a pool or a directory against references
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Measure a file system for forecasts
    Calibrate(calibrate::CalibrateArgs),
    /// Say how long a batch will take, what binds it, and how many processes it should use
    Forecast(forecast::ForecastArgs),
    Profile(profile::ProfileArgs),
    /// Show what was asked for of far files, and why
    Trace(trace::TraceArgs),
    /// Lay out what programs are built with
    #[command(subcommand)]
    Dev(dev::DevCommand),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    #[command(name = run::INSIDE_COMMAND, hide = true)]
    RunInside(run::InsideArgs),
    #[command(name = run::SERVE_COMMAND, hide = true)]
    RunServe(run::ServingArgs),
    /// A command of azekura-lab
    #[command(hide = true)]
    Netlab(lab::LabArgs),
    /// A command of azekura-lab
    #[command(hide = true)]
    Experiment(lab::LabArgs),
    #[command(name = load::WORKER_COMMAND, hide = true)]
    BenchWorker,
    #[command(name = load::COORDINATOR_COMMAND, hide = true)]
    BenchCoordinator(load::CoordinatorArgs),
}

impl Cli {
    /// Whether the command goes on for long and says what happens in a log.
    pub(crate) fn runs_long(&self) -> bool {
        match &self.command {
            Command::Serve(_) => true,
            Command::Mount(args) => args.stays(),
            Command::Nfs(args) => args.stays(),
            _ => false,
        }
    }

    /// How much is logged. A command that runs another program says one thing of its own before it
    /// mixes its log into that program's output.
    pub(crate) fn log_verbosity(&self) -> u8 {
        match &self.command {
            Command::Run(_) | Command::Stage(_) | Command::Profile(_) => {
                self.verbose.saturating_sub(1)
            }
            _ => self.verbose,
        }
    }

    /// The command line, which knows what can stand in the places of its arguments.
    pub(crate) fn for_completion() -> clap::Command {
        pool_names::complete(Self::command())
    }

    /// Runs the command.
    ///
    /// # Errors
    /// What failed, on what, and the next step.
    pub(crate) fn run(self) -> anyhow::Result<Verdict> {
        if matches!(self.command, Command::Fs(_) | Command::Container(_) | Command::Pool(_)) {
            watch::this_is_a_command();
        }
        match self.command {
            Command::Up(args) => up::run(&args),
            Command::Down(args) => down::run(&args),
            Command::Status(args) => return status::run(&args),
            Command::Logs(args) => logs::run(&args),
            Command::Doctor(args) => return doctor::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Pool(command) => return pool::run(command),
            Command::Container(command) => container::run(&command),
            Command::Mount(args) if args.is_with_engine() => with_engine::mount(&args),
            Command::Mount(args) => mount::run(&args),
            Command::Umount(args) => umount::run(&args),
            Command::Nfs(args) if args.is_with_engine() => with_engine::gateway(&args),
            Command::Nfs(args) => nfs::run(&args),
            Command::Run(args) => return run::run(&args, self.verbose),
            Command::Stage(command) => return stage::run(command, self.verbose),
            Command::RunInside(args) => return run::run_inside(args),
            Command::RunServe(args) => return run::run_serve(&args),
            Command::Fs(command) => return fs::run(command),
            Command::Bench(command) => return bench::run(&command),
            Command::Calibrate(args) => return calibrate::run(&args),
            Command::Forecast(args) => forecast::run(&args),
            Command::Profile(args) => return profile::run(&args),
            Command::Trace(args) => trace::run(&args),
            Command::Dev(command) => dev::run(&command, Self::command()),
            Command::Netlab(args) => return lab::hand_over("netlab", &args, self.verbose),
            Command::Experiment(args) => return lab::hand_over("experiment", &args, self.verbose),
            Command::Completions(args) => completions::print_dynamic(args.shell, "azekura"),
            Command::BenchWorker => load::work(),
            Command::BenchCoordinator(args) => load::coordinate(&args),
        }
        .map(|()| Verdict::Good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        assert_eq!(completions::without_example(&Cli::command()), Vec::<String>::new());
    }
}
