//! `azekura completions`: scripts that teach a shell the command line.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::report;

/// `azekura completions`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura completions bash > ~/.local/share/bash-completion/completions/azekura")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "azekura", &mut script);
    report::say_bytes(&script);
}
