//! The command line: its commands, what all of them share, and what their exit codes mean (0 done,
//! 1 failed, 2 not understood; what `azekura run` has run decides for itself).

use std::fmt;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};

use crate::commands::{
    completions, container, dev, down, mount, netlab, pool, serve, status, trace, umount, up,
};
use crate::{bench, experiment, fs, run};

/// What a command came to, where it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well.
    Good,
    /// The command has shown something that is not: a damaged container, an engine that is down.
    Bad,
    /// Another program was run, and this is its exit code.
    Ended(u8),
}

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
        azekura status                 see how it is"
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
    /// Run a command that finds a container below a directory of its own
    Run(run::RunArgs),
    /// Work with files without a mount, and check a container
    #[command(subcommand)]
    Fs(fs::FsCommand),
    /// Measure a pool or a directory against references
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Run whole experiments: tables and plots over sizes, processes and ways of access
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Show what was asked for of far files, and why
    Trace(trace::TraceArgs),
    /// Lay out what programs are built with
    #[command(subcommand)]
    Dev(dev::DevCommand),
    /// Make hosts and links on this machine, near or far, to try things in
    #[command(subcommand)]
    Netlab(netlab::NetlabCommand),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    #[command(name = run::INSIDE_COMMAND, hide = true)]
    RunInside(run::InsideArgs),
    #[command(name = bench::WORKER_COMMAND, hide = true)]
    BenchWorker,
    #[command(name = bench::FOREMAN_COMMAND, hide = true)]
    BenchForeman(bench::ForemanArgs),
    #[command(name = experiment::ENGINE_COMMAND, hide = true)]
    ExperimentEngine(experiment::EngineArgs),
    #[command(name = experiment::READER_COMMAND, hide = true)]
    ExperimentReader(experiment::ReaderArgs),
}

impl Cli {
    /// Whether the command goes on for long and says what happens in a log.
    pub(crate) fn runs_long(&self) -> bool {
        match &self.command {
            Command::Serve(_) => true,
            Command::Mount(args) => args.stays(),
            _ => false,
        }
    }

    /// How much is logged. A command that runs another program says one thing of its own before it
    /// mixes its log into that program's output.
    pub(crate) fn log_verbosity(&self) -> u8 {
        match &self.command {
            Command::Run(_) => self.verbose.saturating_sub(1),
            _ => self.verbose,
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// What failed, on what, and the next step.
    pub(crate) fn run(self) -> anyhow::Result<Verdict> {
        match self.command {
            Command::Up(args) => up::run(&args),
            Command::Down(args) => down::run(&args),
            Command::Status(args) => return status::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Pool(command) => return pool::run(command),
            Command::Container(command) => container::run(&command),
            Command::Mount(args) => mount::run(&args),
            Command::Umount(args) => umount::run(&args),
            Command::Run(args) => return run::run(args, self.verbose),
            Command::RunInside(args) => return run::run_inside(args),
            Command::Fs(command) => return fs::run(command),
            Command::Bench(command) => bench::run(&command),
            Command::Experiment(command) => return experiment::run(&command),
            Command::Trace(args) => trace::run(&args),
            Command::Dev(command) => dev::run(&command),
            Command::Netlab(command) => return netlab::run(&command),
            Command::Completions(args) => {
                completions::run(&args);
                Ok(())
            }
            Command::BenchWorker => bench::work(),
            Command::BenchForeman(args) => bench::lead(&args),
            Command::ExperimentEngine(args) => experiment::run_engine(&args),
            Command::ExperimentReader(args) => experiment::run_reader(&args),
        }
        .map(|()| Verdict::Good)
    }
}

/// The command line cannot mean anything, as found out only while running.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// An error that ends the program with the exit code for usage.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(message.into()))
}

/// The exit code of a result; an error is shown on standard error first.
pub(crate) fn exit_code(result: anyhow::Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::FAILURE,
        Ok(Verdict::Ended(code)) => ExitCode::from(code),
        Err(error) => {
            crate::report::note(format_args!("azekura: {}", crate::report::explain(&error)));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn visit(command: &mut clap::Command, path: &str) {
            let subcommands: Vec<clap::Command> =
                command.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
            if subcommands.is_empty() {
                let help = command.render_long_help().to_string();
                assert!(help.contains("Example"), "{path} has no example");
                assert!(help.contains("azekura "), "{path} has no example");
            }
            for mut subcommand in subcommands {
                let path = format!("{path} {}", subcommand.get_name());
                visit(&mut subcommand, &path);
            }
        }
        visit(&mut Cli::command(), "azekura");
    }

    #[test]
    fn usage_errors_are_told_from_failures() {
        assert!(usage("x").is::<UsageError>());
        assert!(usage("x").context("while doing y").is::<UsageError>());
    }
}
