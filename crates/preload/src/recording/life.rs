//! When recording begins in a process. Owns that a forked child begins anew.

use std::ffi::CStr;

use super::{area, data, files, process, programs, slots};

/// Begins to record if the environment names a record file; gives whether it does.
pub(crate) fn start() -> bool {
    debug_assert_eq!(c"AZEKURA_PROFILE".to_bytes(), azekura_proto::recording::VARIABLE.as_bytes());
    // SAFETY: a C string; the value is copied before anybody can change it.
    let value = unsafe { libc::getenv(c"AZEKURA_PROFILE".as_ptr()) };
    // SAFETY: values of the environment are C strings.
    if value.is_null() || !area::open(unsafe { CStr::from_ptr(value) }) {
        return false;
    }
    programs::keep_variables();
    process::renew();
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
