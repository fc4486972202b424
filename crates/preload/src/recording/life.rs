//! When recording begins in a process. Owns that a forked child begins anew.

use super::{area, data, files, kept, process, slots};

/// Begins to record if the environment names a record file; gives whether it does.
pub(crate) fn start() -> bool {
    debug_assert_eq!(c"AZEKURA_PROFILE".to_bytes(), azekura_proto::recording::VARIABLE.as_bytes());
    kept::keep();
    let Some(path) = kept::record_path() else { return false };
    process::renew();
    if !area::open(path) {
        return false;
    }
    process::entry();
    slots::adopt_standard();
    true
}

/// The process is about to be forked.
pub(crate) fn before_fork() {
    if area::is_there() {
        data::share_all();
    }
}

/// A fork is over, in the child: its counters are to be its own.
pub(crate) fn after_fork_in_child() {
    if !area::is_there() {
        return;
    }
    process::renew();
    area::forget_chunks();
    files::forget();
    slots::forget();
}
