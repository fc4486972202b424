//! System calls that no safe crate offers. The only unsafe code of the crate; decides nothing.

pub(crate) mod apart;
pub(crate) mod lease;
pub(crate) mod memory;
pub(crate) mod notify;
pub(crate) mod peer;
pub(crate) mod tracee;

use std::io;

use libc::{c_int, c_long};

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
