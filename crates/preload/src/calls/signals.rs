//! The calls that install signal handlers. All are passed on; what they install is noted, since
//! signals with a handler wait while a thread is in our code.

use std::ffi::c_int;

use libc::{sigaction as Action, sighandler_t};

use super::hooks;
use crate::{guard, handlers};

mod real {
    use super::{Action, c_int, sighandler_t};
    use crate::host::host;

    host! {
        fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
        fn signal(signal: c_int, handler: sighandler_t) -> isize;
        fn __sysv_signal(signal: c_int, handler: sighandler_t) -> isize;
        fn sigset(signal: c_int, handler: sighandler_t) -> isize;
    }
}

/// `SIG_HOLD`, which `sigset` takes in place of a handler.
const HOLD: sighandler_t = 2;

fn is_handler(handler: sighandler_t) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN | HOLD)
}

/// Notes a handler before it is installed, and after it is gone, so that none is ever in place
/// unknown.
fn install<T: Copy + PartialEq>(
    signal: c_int,
    handler: sighandler_t,
    failed: T,
    hosts: impl FnOnce() -> T,
) -> T {
    if guard::is_inside() {
        return hosts();
    }
    if is_handler(handler) {
        handlers::note(signal, true);
    }
    let result = hosts();
    if result != failed && !is_handler(handler) && handler != HOLD {
        handlers::note(signal, false);
    }
    result
}

hooks! {
    /// `sigaction`.
    fn [sigaction __sigaction](signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        // SAFETY: as for the C function.
        let hosts = || unsafe { real::sigaction(signal, new, old) };
        // SAFETY: as for the C function: null or an action.
        match unsafe { new.as_ref() } {
            Some(action) => install(signal, action.sa_sigaction, -1, hosts),
            None => hosts(),
        }
    }

    /// `signal`.
    fn [signal bsd_signal ssignal](signal: c_int, handler: sighandler_t) -> isize {
        // SAFETY: as for the C function.
        install(signal, handler, -1, || unsafe { real::signal(signal, handler) })
    }

    /// `signal` as System V has it.
    fn [__sysv_signal sysv_signal](signal: c_int, handler: sighandler_t) -> isize {
        // SAFETY: as for the C function.
        install(signal, handler, -1, || unsafe { real::__sysv_signal(signal, handler) })
    }

    /// `sigset`.
    fn [sigset](signal: c_int, handler: sighandler_t) -> isize {
        // SAFETY: as for the C function.
        install(signal, handler, -1, || unsafe { real::sigset(signal, handler) })
    }
}
