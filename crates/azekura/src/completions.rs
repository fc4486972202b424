//! `azekura completions`: scripts that teach a shell a command line.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::report;

/// `azekura completions`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura completions bash > ~/.local/share/bash-completion/completions/azekura")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Prints the script for a command line.
pub fn print(shell: Shell, command: &mut Command) {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    report::say_bytes(&script);
}
