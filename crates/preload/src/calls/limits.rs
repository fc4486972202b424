//! `setrlimit` and `prlimit`. They are the C library's; what is remembered of the limits is forgotten.

use std::ffi::c_int;

use libc::{__rlimit_resource_t, pid_t, rlimit};

use super::hooks;
use crate::descriptors::size_limit;

mod hosts {
    use std::ffi::c_int;

    use libc::{__rlimit_resource_t, pid_t, rlimit};

    crate::host::host! {
        fn setrlimit(resource: __rlimit_resource_t, limit: *const rlimit) -> c_int;
        fn prlimit(
            process: pid_t,
            resource: __rlimit_resource_t,
            new: *const rlimit,
            old: *mut rlimit,
        ) -> c_int;
    }
}

hooks! {
    /// `setrlimit`.
    fn [setrlimit setrlimit64](resource: __rlimit_resource_t, limit: *const rlimit) -> c_int {
        // SAFETY: as for the C function.
        let result = unsafe { hosts::setrlimit(resource, limit) };
        size_limit::forget();
        result
    }

    /// `prlimit`.
    fn [prlimit prlimit64](
        process: pid_t,
        resource: __rlimit_resource_t,
        new: *const rlimit,
        old: *mut rlimit,
    ) -> c_int {
        // SAFETY: as for the C function.
        let result = unsafe { hosts::prlimit(process, resource, new, old) };
        size_limit::forget();
        result
    }
}
