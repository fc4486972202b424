//! Options of a TCP socket that no safe crate offers.

#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use linux_raw_sys::net::tcp_info;

/// The smallest round trip of the last minutes, as the kernel has measured it: other than the smoothed one it knows
/// nothing of acknowledgements that were delayed. `None` where none was measured, or the kernel (before Linux 4.9) does
/// not tell it.
///
/// # Errors
/// If the system refuses it.
pub(crate) fn smallest_round_trip(stream: &TcpStream) -> io::Result<Option<Duration>> {
    // SAFETY: it is made of numbers.
    let (info, bytes) = unsafe { option::<tcp_info>(stream, libc::IPPROTO_TCP, libc::TCP_INFO) }?;
    let is_told = bytes >= offset_of!(tcp_info, tcpi_min_rtt) + size_of::<u32>();
    // All ones: none yet.
    let is_known = is_told && (1..u32::MAX).contains(&info.tcpi_min_rtt);
    Ok(is_known.then(|| Duration::from_micros(info.tcpi_min_rtt.into())))
}

/// More bytes per second than anything sends; all ones would ask for no pacing.
pub(crate) const FASTEST: libc::c_ulong = libc::c_ulong::MAX - 1;

/// Has the kernel spread over the round trip what is sent (`SO_MAX_PACING_RATE`). How fast that is is left to it: it
/// paces by what the congestion control allows per round trip.
///
/// # Errors
/// If the system refuses it.
pub(crate) fn pace(stream: &TcpStream) -> io::Result<()> {
    let rate = FASTEST;
    // SAFETY: the kernel reads as many bytes as the number has.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<libc::c_ulong>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The fastest that is sent, in bytes per second; all ones where nothing is paced.
#[cfg(test)]
pub(crate) fn pace_of(stream: &TcpStream) -> io::Result<libc::c_ulong> {
    // SAFETY: it is a number.
    let (rate, _) = unsafe { option(stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) }?;
    Ok(rate)
}

/// The value of an option, zeros behind what the kernel knows of it, and how many bytes that is.
///
/// # Safety
/// Whatever bytes it is made of are a `T`.
unsafe fn option<T>(
    stream: &TcpStream,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<(T, usize)> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes `bytes` bytes at most, for which there is room.
    let got = unsafe {
        let into = value.as_mut_ptr().cast();
        libc::getsockopt(stream.as_raw_fd(), level, name, into, &raw mut bytes)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller has said so.
    Ok((unsafe { value.assume_init() }, bytes as usize))
}
