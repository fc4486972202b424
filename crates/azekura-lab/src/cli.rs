//! The command line: its commands, and what all of them share.

use azekura::outcome::Verdict;
use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::{draw, draw_forecast, experiment, netlab};

/// The laboratory of Azekura: hosts and links on one machine, and the experiments of published systems
#[derive(Debug, Parser)]
#[command(
    name = "azekura-lab",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Start here:\n  \
        azekura-lab netlab up wan.toml          make hosts and links, near or far\n  \
        azekura-lab experiment list             see what can be measured\n  \
        azekura-lab draw t.jsonl t.svg          see what was asked for of far files"
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
    /// Make hosts and links on this machine, near or far, to try things in
    #[command(subcommand)]
    Netlab(netlab::NetlabCommand),
    /// Run whole experiments: tables and plots over sizes, processes and access paths
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Draw a trace of far reads
    Draw(draw::DrawArgs),
    /// Draw forecasts by processes
    DrawForecast(draw_forecast::DrawForecastArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = "Example:\n  \
        azekura-lab completions bash > ~/.local/share/bash-completion/completions/azekura-lab")]
    Completions {
        /// The shell
        shell: Shell,
    },
    #[command(name = experiment::ENGINE_COMMAND, hide = true)]
    ExperimentEngine(experiment::EngineArgs),
    #[command(name = experiment::READER_COMMAND, hide = true)]
    ExperimentReader(experiment::ReaderArgs),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// What failed, on what, and the next step.
    pub(crate) fn run(self) -> anyhow::Result<Verdict> {
        match self.command {
            Command::Netlab(command) => return netlab::run(&command),
            Command::Experiment(command) => return experiment::run(&command),
            Command::Draw(args) => draw::run(&args),
            Command::DrawForecast(args) => draw_forecast::run(&args),
            Command::Completions { shell } => {
                azekura::completions::print(shell, &mut Self::command());
                Ok(())
            }
            Command::ExperimentEngine(args) => experiment::run_engine(&args),
            Command::ExperimentReader(args) => experiment::run_reader(&args),
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
        assert_eq!(azekura::completions::without_example(&Cli::command()), Vec::<String>::new());
    }
}
