//! `azekura completions`: scripts that teach a shell a command line; and what each command of a command
//! line must teach people: an example.

use anyhow::{Result, bail};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::report;

/// How a script says that it wants to know what fits, and for which shell.
const VARIABLE: &str = "AZEKURA_COMPLETE";

/// `azekura completions`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura completions bash > ~/.local/share/bash-completion/completions/azekura\n\n\
    'make install' puts them where bash, zsh and fish look. They ask the program, so they know the \
    pools.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Prints a script that asks the program itself what fits.
///
/// # Errors
/// If there is none for this shell.
pub(crate) fn print_dynamic(shell: Shell, program: &str) -> Result<()> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(&shell.to_string()) else {
        bail!("there are no completions for {shell}");
    };
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, program, program, program, &mut script)?;
    report::say_bytes(&script);
    Ok(())
}

/// Answers a shell that completes a command line, and ends the process; does nothing in any other.
pub(crate) fn answer(command: impl Fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Prints the script for a command line, which knows no more than that.
pub fn print(shell: Shell, command: &mut Command) {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    report::say_bytes(&script);
}

/// The commands below `command`, each with those above it, whose help shows no example of the program. A
/// command line is sound where there is none.
pub fn without_example(command: &Command) -> Vec<String> {
    fn visit(command: &Command, path: &str, program: &str, found: &mut Vec<String>) {
        let mut below = command.get_subcommands().filter(|below| !below.is_hide_set()).peekable();
        if below.peek().is_none() {
            let help = command.clone().render_long_help().to_string();
            if !(help.contains("Example") && help.contains(&format!("{program} "))) {
                found.push(path.to_owned());
            }
        }
        for command in below {
            visit(command, &format!("{path} {}", command.get_name()), program, found);
        }
    }
    let mut found = Vec::new();
    visit(command, command.get_name(), command.get_name(), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_an_example_is_found() {
        let with = Command::new("with").after_long_help("Example:\n  program with");
        let command = Command::new("program")
            .subcommand(with.clone())
            .subcommand(Command::new("bare").hide(true))
            .subcommand(Command::new("above").subcommand(with).subcommand(Command::new("bare")));
        assert_eq!(without_example(&command), ["program above bare"]);
    }
}
