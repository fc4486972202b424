//! `inotify` on paths of the pool. Nobody tells a client what others change, so there is nothing to wait
//! for: a program is told that this cannot be watched, and looks by itself from time to time.

use std::ffi::{c_char, c_int};

use azekura_posix::Errno;

use super::hooks;
use crate::paths::by_path;
use crate::report::{self, counter};
use crate::staging::Purpose;

mod hosts {
    use std::ffi::{c_char, c_int};

    crate::host::host! {
        fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int;
    }
}

hooks! {
    /// `inotify_add_watch`.
    fn [inotify_add_watch](fd: c_int, path: *const c_char, mask: u32) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("inotify_add_watch"),
                &Purpose::Read,
                libc::AT_FDCWD,
                path,
                |spot| {
                    // What is not there is a mistake of another kind.
                    spot.ns.resolve(&spot.path, mask & libc::IN_DONT_FOLLOW == 0)?;
                    report::trouble(
                        "files of the pool cannot be watched (inotify): ENOSYS, so that the program \
                         looks by itself; 'azekura run --via fuse' shows it what it changes itself",
                    );
                    Err(Errno::NOSYS)
                },
                |_, path| hosts::inotify_add_watch(fd, path, mask),
            )
        }
    }
}
