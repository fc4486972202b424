//! Reading and writing.

use std::ffi::{c_int, c_void};

use azekura_posix::{Errno, Result};
use libc::{iovec, off_t, size_t, ssize_t};

use super::{buffer, data, hooks, offset, vector};
use crate::descriptors::{Description, on_data};
use crate::host;
use crate::recording::Direction::{Read, Write};
use crate::recording::moved;
use crate::report::counter;

/// Reads or writes the parts of a vector one after the other, until one is not done wholly. An error
/// after the first bytes is left for the next call.
fn each(parts: &[iovec], mut one: impl FnMut(&iovec, u64) -> Result<usize>) -> Result<ssize_t> {
    let mut done = 0_u64;
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        match one(part, done) {
            Ok(bytes) => {
                done += bytes as u64;
                if bytes < part.iov_len {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done as ssize_t)
}

/// All parts as one piece, so that a vectored write is as atomic as one of a single buffer.
///
/// # Safety
/// As for `writev`.
unsafe fn gathered(parts: &[iovec]) -> Result<Vec<u8>> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.iov_len).sum());
    for part in parts {
        // SAFETY: the caller says so.
        all.extend_from_slice(unsafe { data(part.iov_base, part.iov_len)? });
    }
    Ok(all)
}

/// # Safety
/// As for `writev`.
unsafe fn write_vector(file: &Description, parts: &[iovec], at: Option<u64>) -> Result<ssize_t> {
    let write = |data: &[u8]| match at {
        Some(offset) => file.write_at(data, offset),
        None => file.write(data),
    };
    let written = match parts {
        // SAFETY: the caller says so.
        [only] => write(unsafe { data(only.iov_base, only.iov_len)? })?,
        // SAFETY: the caller says so.
        _ => write(&unsafe { gathered(parts)? })?,
    };
    Ok(written as ssize_t)
}

/// # Safety
/// As for `readv`.
unsafe fn read_vector(file: &Description, parts: &[iovec], at: Option<u64>) -> Result<ssize_t> {
    let read_from = |start: u64| {
        each(parts, |part, done| {
            // SAFETY: the caller says so.
            file.read_at(unsafe { buffer(part.iov_base, part.iov_len)? }, start + done)
        })
    };
    match at {
        Some(offset) => read_from(offset),
        // Nobody else reads between two parts.
        None => file.position().locked(|place| {
            let got = read_from(place.offset())?;
            place.set(place.offset() + got as u64);
            Ok(got)
        }),
    }
}

/// `-1` stands for the position, as in `preadv2`.
fn position_or(at: off_t) -> Result<Option<u64>> {
    if at == -1 { Ok(None) } else { offset(at).map(Some) }
}

hooks! {
    /// `read`.
    fn [read](fd: c_int, start: *mut c_void, bytes: size_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("read"),
            fd,
            |file| Ok(file.read(unsafe { buffer(start, bytes)? })? as ssize_t),
            || moved(Read, fd, None, bytes, || unsafe { host::read(fd, start, bytes) }),
        )
    }

    /// `read`, fortified.
    fn [__read_chk](fd: c_int, start: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
        if bytes > room {
            host::set_errno(libc::EFAULT);
            return -1;
        }
        // SAFETY: as for the C function.
        unsafe { read(fd, start, bytes) }
    }

    /// `write`.
    fn [write](fd: c_int, start: *const c_void, bytes: size_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("write"),
            fd,
            |file| Ok(file.write(unsafe { data(start, bytes)? })? as ssize_t),
            || moved(Write, fd, None, bytes, || unsafe { host::write(fd, start, bytes) }),
        )
    }

    /// `pread`.
    fn [pread pread64](fd: c_int, start: *mut c_void, bytes: size_t, at: off_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("pread"),
            fd,
            |file| Ok(file.read_at(unsafe { buffer(start, bytes)? }, offset(at)?)? as ssize_t),
            || moved(Read, fd, Some(at), bytes, || unsafe { host::pread(fd, start, bytes, at) }),
        )
    }

    /// `pread`, fortified.
    fn [__pread_chk __pread64_chk](
        fd: c_int, start: *mut c_void, bytes: size_t, at: off_t, room: size_t,
    ) -> ssize_t {
        if bytes > room {
            host::set_errno(libc::EFAULT);
            return -1;
        }
        // SAFETY: as for the C function.
        unsafe { pread(fd, start, bytes, at) }
    }

    /// `pwrite`.
    fn [pwrite pwrite64](fd: c_int, start: *const c_void, bytes: size_t, at: off_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("pwrite"),
            fd,
            |file| Ok(file.write_at(unsafe { data(start, bytes)? }, offset(at)?)? as ssize_t),
            || moved(Write, fd, Some(at), bytes, || unsafe { host::pwrite(fd, start, bytes, at) }),
        )
    }

    /// `readv`.
    fn [readv](fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("readv"),
            fd,
            |file| unsafe { read_vector(file, vector(parts, count)?, None) },
            || moved(Read, fd, None, 0, || unsafe { host::readv(fd, parts, count) }),
        )
    }

    /// `writev`.
    fn [writev](fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("writev"),
            fd,
            |file| unsafe { write_vector(file, vector(parts, count)?, None) },
            || moved(Write, fd, None, 0, || unsafe { host::writev(fd, parts, count) }),
        )
    }

    /// `preadv`.
    fn [preadv preadv64](fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("preadv"),
            fd,
            |file| unsafe { read_vector(file, vector(parts, count)?, Some(offset(at)?)) },
            || moved(Read, fd, Some(at), 0, || unsafe { host::preadv(fd, parts, count, at) }),
        )
    }

    /// `pwritev`.
    fn [pwritev pwritev64](fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("pwritev"),
            fd,
            |file| unsafe { write_vector(file, vector(parts, count)?, Some(offset(at)?)) },
            || moved(Write, fd, Some(at), 0, || unsafe { host::pwritev(fd, parts, count, at) }),
        )
    }

    /// `preadv2`; hints among the flags change nothing, others are not offered.
    fn [preadv2 preadv64v2](
        fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("preadv2"),
            fd,
            |file| {
                if flags & !libc::RWF_HIPRI != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                // SAFETY: as for the C function.
                unsafe { read_vector(file, vector(parts, count)?, position_or(at)?) }
            },
            || {
                let at_offset = (at != -1).then_some(at);
                // SAFETY: as for the C function.
                moved(Read, fd, at_offset, 0, || unsafe {
                    host::preadv2(fd, parts, count, at, flags)
                })
            },
        )
    }

    /// `pwritev2`; hints among the flags change nothing, others are not offered.
    fn [pwritev2 pwritev64v2](
        fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("pwritev2"),
            fd,
            |file| {
                if flags & !libc::RWF_HIPRI != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                // SAFETY: as for the C function.
                unsafe { write_vector(file, vector(parts, count)?, position_or(at)?) }
            },
            || {
                let at_offset = (at != -1).then_some(at);
                // SAFETY: as for the C function.
                moved(Write, fd, at_offset, 0, || unsafe {
                    host::pwritev2(fd, parts, count, at, flags)
                })
            },
        )
    }
}
