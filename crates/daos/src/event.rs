//! Events. Every call is done when it returns, so an event only carries how it ended.

use std::ffi::{c_int, c_void};

use crate::types::{Event, Handle, put};

const SUCCESS: c_int = 0;
const INVAL: c_int = -1003;
const NOSYS: c_int = -1010;

/// Ends a call: its result goes to the event, if there is one.
///
/// # Safety
/// `event` is null or may be written to.
pub(crate) unsafe fn finish(event: *mut Event, rc: c_int) -> c_int {
    if event.is_null() {
        return rc;
    }
    // SAFETY: the caller's promise.
    unsafe { (*event).error = rc };
    SUCCESS
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_init(
    event: *mut Event,
    queue: Handle,
    parent: *mut Event,
) -> c_int {
    if event.is_null() {
        return INVAL;
    }
    if queue.cookie != 0 || !parent.is_null() {
        return NOSYS;
    }
    // SAFETY: not null, so the caller's to write to, by the contract.
    unsafe { event.write(Event { error: SUCCESS, private: [0; 20], debug: 0 }) };
    SUCCESS
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_event_fini(event: *mut Event) -> c_int {
    if event.is_null() { INVAL } else { SUCCESS }
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_test(
    event: *mut Event,
    _timeout: i64,
    flag: *mut bool,
) -> c_int {
    if event.is_null() {
        return INVAL;
    }
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { put(flag, true) };
    SUCCESS
}

/// An argument that is not read.
pub(crate) type Unread = *mut c_void;
