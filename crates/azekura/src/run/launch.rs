//! Turns this process into the command. Owns what a command's failure to start comes to: 127 if it
//! is not there, 126 if it cannot be run, as shells and `env` have it.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::environment::Variables;
use crate::outcome::Verdict;
use crate::report;

const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A command with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Name or path, and the arguments; at least one.
    pub(super) words: Vec<OsString>,
    /// What it is told as its own name, if not the first word.
    pub(super) argv0: Option<OsString>,
}

impl Program {
    /// The name or path of the command.
    pub(super) fn name(&self) -> &OsString {
        // The command line demands one word at least.
        &self.words[0]
    }
}

/// Replaces this process by the command. Comes back only if that fails; the reason has then been
/// shown.
pub(super) fn become_program(program: &Program, variables: &Variables) -> Verdict {
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
    let mut kind = error.kind();
    // A directory of PATH that is closed to the user does not make a missing program one that may
    // not be run.
    if kind == ErrorKind::PermissionDenied && !is_anywhere(program.name()) {
        kind = ErrorKind::NotFound;
    }
    let error = if kind == error.kind() { error } else { kind.into() };
    let name = program.name().display();
    report::note(format_args!("azekura: cannot run '{name}': {error}"));
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
