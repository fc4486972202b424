//! Who is at the other end of a local socket (`SO_PEERCRED`). Looks at the user alone: the number of the process
//! is 0 for one that stands outside of the caller's process ids, which is no number that rustix can hold.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use super::check;

/// The user of the process at the other end.
pub(crate) fn user(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let place: *mut c_void = (&raw mut peer).cast();
    // SAFETY: the place is alive and as long as is said.
    check(unsafe {
        let (socket, option) = (socket.as_fd().as_raw_fd(), libc::SO_PEERCRED);
        libc::getsockopt(socket, libc::SOL_SOCKET, option, place, &raw mut bytes)
    })?;
    Ok(peer.uid)
}
