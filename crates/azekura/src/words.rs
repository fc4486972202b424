//! Commands that one process of this program has another one carry out, as the words of a command line. Owns how they
//! are read there, and knows no command.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use clap::Args;

/// The arguments of a command that another process has sent as words, the first of which names the command.
///
/// # Errors
/// If they make no sense to this program, which may be of another version.
pub(crate) fn read<A: Args>(command: &'static str, words: &[OsString]) -> Result<A> {
    let parser = A::augment_args(clap::Command::new(command));
    let cannot = || format!("cannot do what 'azekura {command}' asks for");
    let matches = parser.try_get_matches_from(words).with_context(cannot)?;
    Ok(A::from_arg_matches(&matches)?)
}
