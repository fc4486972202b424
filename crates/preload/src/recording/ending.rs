//! When recording ends in a process: with it, or with the program that it runs.

use std::sync::atomic::Ordering;

use azekura_proto::recording::layout::process as words;

use super::{data, process};

/// The process is about to end, or to become another program. A child that was forked and did nothing is no
/// process of its own to anybody.
pub(crate) fn end(becomes_program: bool) {
    if !process::is_own() || !process::has_entry() {
        return;
    }
    data::settle_all();
    let Some(entry) = process::entry() else { return };
    let end = if becomes_program { words::EXEC } else { words::EXIT };
    entry[words::END].store(end, Ordering::Relaxed);
    entry[words::ENDED].store(process::now(), Ordering::Relaxed);
}

/// The process has not become another program.
pub(super) fn goes_on() {
    if process::is_own()
        && process::has_entry()
        && let Some(entry) = process::entry()
    {
        entry[words::END].store(0, Ordering::Relaxed);
        entry[words::ENDED].store(0, Ordering::Relaxed);
    }
}
