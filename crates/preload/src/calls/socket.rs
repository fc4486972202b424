//! Sockets that have a name in the container: `bind`, `connect` and sending to an address. The name is a
//! socket node of the container; the kernel's socket is bound to an abstract name made of its object
//! id, so that programs of one host that run under this library find each other.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;

use azekura_posix::{Access, Attr, Errno, FileKind, NewEntry, Result};
use libc::{sa_family_t, size_t, sockaddr, sockaddr_un, socklen_t, ssize_t};

use super::hooks;
use crate::paths::{self, Spot, is_plausible};
use crate::report::counter;
use crate::{guard, hook, host, service};

mod real {
    use std::ffi::{c_int, c_void};

    use libc::{size_t, sockaddr, socklen_t, ssize_t};

    crate::host::host! {
        fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
        fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
        fn sendto(
            fd: c_int, data: *const c_void, bytes: size_t, flags: c_int, address: *const sockaddr,
            address_bytes: socklen_t,
        ) -> ssize_t;
        fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t;
    }
}

const PATH_AT: usize = std::mem::offset_of!(sockaddr_un, sun_path);

/// The path in an address, if it has one.
///
/// # Safety
/// `bytes` bytes are readable at `address`, or it is null.
unsafe fn path_of<'a>(address: *const sockaddr, bytes: socklen_t) -> Option<&'a [u8]> {
    let bytes = bytes as usize;
    if guard::is_inside() || !is_plausible(address) || bytes <= PATH_AT {
        return None;
    }
    // SAFETY: the caller says so; the family comes first.
    let whole = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) };
    let family = sa_family_t::from_ne_bytes([whole[0], whole[1]]);
    let path = &whole[PATH_AT..];
    if c_int::from(family) != libc::AF_UNIX || path[0] == 0 {
        return None;
    }
    Some(path.split(|byte| *byte == 0).next().unwrap_or(path))
}

/// The abstract address of a socket node.
struct Abstract {
    address: sockaddr_un,
    bytes: socklen_t,
}

impl Abstract {
    fn of(attr: &Attr) -> Self {
        let mut name = String::from("\0azekura-");
        for byte in attr.oid.to_bytes() {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        Self { address, bytes: (PATH_AT + name.len()) as socklen_t }
    }

    fn pointer(&self) -> *const sockaddr {
        (&raw const self.address).cast()
    }
}

fn spot(path: &[u8]) -> Result<Option<Spot>> {
    paths::find(libc::AT_FDCWD, path)
}

/// Makes the node of a socket that is about to be bound.
fn make_node(path: &[u8]) -> Result<Option<Abstract>> {
    let Some(spot) = spot(path)? else { return Ok(None) };
    let made = spot.ns.make_node(&spot.path, service::masked(0o777), NewEntry::Socket);
    match made {
        Ok(attr) => Ok(Some(Abstract::of(&attr))),
        Err(Errno::EXIST) => Err(Errno::ADDRINUSE),
        Err(errno) => Err(errno),
    }
}

/// The address of the socket that a path leads to.
fn find_node(path: &[u8]) -> Result<Option<Abstract>> {
    let Some(spot) = spot(path)? else { return Ok(None) };
    let attr = spot.ns.metadata(&spot.path)?;
    spot.ns.access(&spot.path, Access { write: true, ..Access::default() })?;
    if attr.kind == FileKind::Socket {
        Ok(Some(Abstract::of(&attr)))
    } else {
        Err(Errno::CONNREFUSED)
    }
}

/// What a call comes to whose address may be a path of the container.
///
/// # Safety
/// As for [`path_of`].
unsafe fn by_address<R: host::Failing>(
    counter: &'static crate::report::Counter,
    (address, bytes): (*const sockaddr, socklen_t),
    find: impl FnOnce(&[u8]) -> Result<Option<Abstract>>,
    hosts: impl FnOnce(*const sockaddr, socklen_t) -> R,
) -> R {
    // SAFETY: the caller says so.
    let Some(path) = (unsafe { path_of(address, bytes) }) else { return hosts(address, bytes) };
    match hook::run(|| find(path)) {
        Some(Ok(Some(found))) => {
            counter.served();
            hosts(found.pointer(), found.bytes)
        }
        Some(Err(errno)) if errno != azekura_posix::LEFT => hook::conclude(counter, Err(errno)),
        _ => {
            counter.passed();
            hosts(address, bytes)
        }
    }
}

hooks! {
    /// `bind`.
    fn [bind](fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_address(counter!("bind"), (address, bytes), make_node, |address, bytes| {
                real::bind(fd, address, bytes)
            })
        }
    }

    /// `connect`.
    fn [connect](fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_address(counter!("connect"), (address, bytes), find_node, |address, bytes| {
                real::connect(fd, address, bytes)
            })
        }
    }

    /// `sendto`.
    fn [sendto](
        fd: c_int, data: *const c_void, bytes: size_t, flags: c_int, address: *const sockaddr,
        address_bytes: socklen_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            by_address(counter!("sendto"), (address, address_bytes), find_node, |to, to_bytes| {
                real::sendto(fd, data, bytes, flags, to, to_bytes)
            })
        }
    }

    /// `sendmsg`.
    fn [sendmsg](fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            if !is_plausible(message) || (*message).msg_name.is_null() {
                return real::sendmsg(fd, message, flags);
            }
            let address = ((*message).msg_name.cast::<sockaddr>().cast_const(), (*message).msg_namelen);
            by_address(counter!("sendmsg"), address, find_node, |to, to_bytes| {
                let mut copy = *message;
                copy.msg_name = to.cast_mut().cast();
                copy.msg_namelen = to_bytes;
                real::sendmsg(fd, &raw const copy, flags)
            })
        }
    }
}
