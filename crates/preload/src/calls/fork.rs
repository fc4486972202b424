//! `fork` and `vfork`. Owns what has to happen around one: positions become shared, and no lock of
//! ours is held by a thread that the child does not have; what was written has arrived.

use libc::pid_t;

use super::hooks;
use crate::descriptors::inherit;
use crate::{guard, host, recording, service, settings, staging};

extern "C" fn before() {
    recording::before_fork();
    guard::close_for_fork();
    if settings::get().is_some() {
        service::drain();
        inherit::share_all();
    }
}

extern "C" fn after() {
    guard::open_after_fork();
}

extern "C" fn after_in_child() {
    staging::after_fork_in_child();
    recording::after_fork_in_child();
    after();
}

/// Watches every fork of the process, also those that the C library makes itself.
pub(crate) fn watch() {
    // SAFETY: three functions that stay for the life of the process. Out of memory there is nobody to
    // tell; forks then behave as if positions were not shared.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
}

hooks! {
    /// `vfork`, as `fork`: a child that shares our memory would change what the parent knows of its
    /// descriptors.
    fn [vfork]() -> pid_t {
        // SAFETY: `fork` has no conditions that `vfork` has not.
        unsafe { host::fork() }
    }
}
