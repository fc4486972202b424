//! `umask`, and calls by which the process becomes another user. They are the C library's; what
//! follows from them for the container is learned here.

use std::ffi::{c_char, c_int};

use libc::{gid_t, mode_t, size_t, uid_t};

use super::hooks;
use crate::{hook, service, settings};

mod hosts {
    use std::ffi::{c_char, c_int};

    use libc::{gid_t, mode_t, size_t, uid_t};

    crate::host::host! {
        // Never fails; the mask fits in an `int`.
        fn umask(mask: mode_t) -> c_int;
        fn setuid(uid: uid_t) -> c_int;
        fn seteuid(uid: uid_t) -> c_int;
        fn setreuid(real: uid_t, effective: uid_t) -> c_int;
        fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
        fn setgid(gid: gid_t) -> c_int;
        fn setegid(gid: gid_t) -> c_int;
        fn setregid(real: gid_t, effective: gid_t) -> c_int;
        fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
        fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
        fn initgroups(user: *const c_char, gid: gid_t) -> c_int;
    }
}

fn renewed(result: c_int) -> c_int {
    if result == 0 && settings::get().is_some() {
        hook::inside(|| {
            service::renew_user();
        });
    }
    result
}

hooks! {
    /// `umask`.
    fn [umask](mask: mode_t) -> mode_t {
        service::set_umask(mask);
        // SAFETY: the call has no conditions.
        unsafe { hosts::umask(mask).cast_unsigned() }
    }

    /// `setuid`.
    fn [setuid](uid: uid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setuid(uid) })
    }

    /// `seteuid`.
    fn [seteuid](uid: uid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::seteuid(uid) })
    }

    /// `setreuid`.
    fn [setreuid](real: uid_t, effective: uid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setreuid(real, effective) })
    }

    /// `setresuid`.
    fn [setresuid](real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setresuid(real, effective, saved) })
    }

    /// `setgid`.
    fn [setgid](gid: gid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setgid(gid) })
    }

    /// `setegid`.
    fn [setegid](gid: gid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setegid(gid) })
    }

    /// `setregid`.
    fn [setregid](real: gid_t, effective: gid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setregid(real, effective) })
    }

    /// `setresgid`.
    fn [setresgid](real: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setresgid(real, effective, saved) })
    }

    /// `setgroups`.
    fn [setgroups](count: size_t, groups: *const gid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::setgroups(count, groups) })
    }

    /// `initgroups`.
    fn [initgroups](user: *const c_char, gid: gid_t) -> c_int {
        // SAFETY: as for the C function.
        renewed(unsafe { hosts::initgroups(user, gid) })
    }
}
