//! What completes an argument that names a pool, or a place in one: the pools known here. Tells such
//! arguments by how they are called in the help.

use clap::Command;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use crate::commands::status;

/// The command line with what completes its pools.
pub(crate) fn complete(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let candidates = match arg.get_value_names().and_then(<[_]>::first).map(AsRef::as_ref) {
            Some("POOL" | "POOL[/CONTAINER]" | "[POOL/]CONTAINER") => {
                ArgValueCandidates::new(|| candidates(""))
            }
            Some("PLACE") => ArgValueCandidates::new(|| candidates(":/")),
            _ => return arg,
        };
        arg.add(candidates)
    });
    command.mut_subcommands(complete)
}

fn candidates(end: &str) -> Vec<CompletionCandidate> {
    // Without a list there is nothing to complete, and nobody to complain to.
    let names = status::known_pools().unwrap_or_default();
    names.into_iter().map(|name| CompletionCandidate::new(format!("{name}{end}"))).collect()
}
