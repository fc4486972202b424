//! Programs that the C library starts by itself: `system`, `popen`; and `daemon`, which changes what
//! descriptors stand for by itself. Owns that these get by without the hooks of what they do inside.

use std::ffi::{CString, c_char, c_int, c_void};

use super::exec::{own_environment, variables};
use super::{close, hooks};
use crate::report::counter;
use crate::{hook, launch};

type Array = *const *const c_char;

/// Does something that starts a program with the environment of this process, while that has all
/// that the program needs.
fn with_environment<T>(variables: &[CString], body: impl FnOnce() -> T) -> T {
    unsafe extern "C" {
        static mut environ: Array;
    }
    let prepared = hook::run(|| {
        let own = own_environment();
        let (directory, known) = (launch::own_directory(), launch::known());
        // SAFETY: the environment of this process is as `execve` takes it.
        unsafe {
            let is_complete = launch::environment::is_complete(variables, own);
            if directory.is_none() && known.is_none() && is_complete {
                return Ok(None);
            }
            let (directory, known) = (directory.as_deref(), known.as_deref());
            let full = launch::environment::handed_on(variables, own, directory, known);
            Ok(Some((own, full)))
        }
    });
    let Some(Ok(Some((own, full)))) = prepared else { return body() };
    // SAFETY: the C library's variable. The array is of the right form, and is left to the host if
    // it has begun to use it meanwhile.
    unsafe {
        environ = full.as_ptr();
        let result = body();
        if environ == full.as_ptr() {
            environ = own;
        } else {
            std::mem::forget(full);
        }
        result
    }
}

mod real {
    use super::{c_char, c_int, c_void};
    use crate::host::host;

    host! {
        fn system(command: *const c_char) -> c_int;
        fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
        fn daemon(keeps_directory: c_int, keeps_streams: c_int) -> c_int;
    }
}

hooks! {
    /// `system`. Its shell is started by the C library itself, which asks no hook.
    fn [system](command: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        let hosts = || unsafe { real::system(command) };
        let (Some(variables), false) = (variables(), command.is_null()) else {
            return hosts();
        };
        counter!("system").served();
        launch::prepare();
        with_environment(variables, hosts)
    }

    /// `popen`, as `system`.
    fn [popen](command: *const c_char, mode: *const c_char) -> *mut c_void {
        // SAFETY: as for the C function.
        let hosts = || unsafe { real::popen(command, mode) };
        let Some(variables) = variables() else { return hosts() };
        counter!("popen").served();
        launch::prepare();
        with_environment(variables, hosts)
    }

    /// `daemon`, which puts the null device in place of the standard streams by itself.
    fn [daemon](keeps_directory: c_int, keeps_streams: c_int) -> c_int {
        // SAFETY: as for the C function.
        let result = unsafe { real::daemon(keeps_directory, keeps_streams) };
        if result == 0 && launch::active().is_some() {
            if keeps_streams == 0 {
                for fd in 0..3 {
                    crate::stdio::before_replacing(fd);
                    hook::inside(|| {
                        close::release(fd);
                    });
                    crate::stdio::after_replacing(fd);
                }
            }
            if keeps_directory == 0 {
                crate::paths::working_directory::set(None);
            }
        }
        result
    }
}
