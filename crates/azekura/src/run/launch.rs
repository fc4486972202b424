//! Turns this process into the command. Owns what a command's failure to start comes to: 127 if it
//! is not there, 126 if it cannot be run, as shells and `env` have it.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::environment::Variables;
use crate::outcome::Verdict;
use crate::report;

const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A command with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Name or path, and the arguments; at least one.
    pub(crate) words: Vec<OsString>,
    /// What it is told as its own name, if not the first word.
    pub(crate) argv0: Option<OsString>,
}

impl Program {
    /// The name or path of the command.
    pub(crate) fn name(&self) -> &OsString {
        // The command line demands one word at least.
        &self.words[0]
    }
}

/// A command of this very program, even if its file has been replaced since.
pub(super) fn this_program(subcommand: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("azekura").arg(subcommand);
    command
}

/// Replaces this process by the command. Comes back only if that fails; the reason has then been
/// shown.
pub(crate) fn become_program(program: &Program, variables: &Variables) -> Verdict {
    let mut command = Command::new(program.name());
    command.args(&program.words[1..]);
    if let Some(argv0) = &program.argv0 {
        command.arg0(argv0);
    }
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let error = command.exec();
    not_started(program, &error)
}

/// Shows why a command could not be started, and says what that comes to.
pub(crate) fn not_started(program: &Program, error: &io::Error) -> Verdict {
    let mut kind = error.kind();
    // A directory of PATH that is closed to the user does not make a missing program one that may
    // not be run.
    if kind == ErrorKind::PermissionDenied && !is_anywhere(program.name()) {
        kind = ErrorKind::NotFound;
    }
    let name = program.name().display();
    let shown = if kind == error.kind() { error } else { &io::Error::from(kind) };
    report::note(format_args!("azekura: cannot run '{name}': {shown}"));
    Verdict::Ended(if kind == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN })
}

/// Whether there is a file that the name can mean.
fn is_anywhere(name: &OsStr) -> bool {
    if name.as_encoded_bytes().contains(&b'/') {
        return true;
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).any(|dir| dir.join(name).exists())
}
