//! `lseek`, and lengths: `ftruncate`, `fallocate`.

use std::ffi::c_int;

use azekura_posix::{Allocation, AttrUpdate, Errno, FileKind, Result, SeekTo};
use libc::off_t;

use super::{hooks, offset};
use crate::descriptors::{Description, on_data, on_fd, size_limit};
use crate::host;
use crate::recording;
use crate::report::counter;

fn seek(file: &Description, by: off_t, whence: c_int) -> Result<off_t> {
    file.position().locked(|place| {
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => place.offset() as i64,
            libc::SEEK_END if file.kind() == FileKind::Directory => return Err(Errno::INVAL),
            libc::SEEK_END => file.attr()?.size as i64,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let to = if whence == libc::SEEK_DATA { SeekTo::Data } else { SeekTo::Hole };
                let start = u64::try_from(by).map_err(|_| Errno::NXIO)?;
                let found = file.file()?.seek(start, to)?;
                place.set(found);
                return Ok(found as off_t);
            }
            _ => return Err(Errno::INVAL),
        };
        let to = from.checked_add(by).ok_or(Errno::OVERFLOW)?;
        place.set(offset(to)?);
        Ok(to)
    })
}

fn allocate(file: &Description, mode: c_int, at: off_t, bytes: off_t) -> Result<c_int> {
    if at < 0 || bytes <= 0 {
        return Err(Errno::INVAL);
    }
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    let what = match mode {
        0 => Allocation::Grow,
        mode if mode == keep => Allocation::KeepSize,
        mode if mode == keep | libc::FALLOC_FL_PUNCH_HOLE => Allocation::PunchHole,
        mode if mode == libc::FALLOC_FL_ZERO_RANGE => Allocation::Zero,
        mode if mode == libc::FALLOC_FL_ZERO_RANGE | keep => Allocation::ZeroKeepSize,
        _ => return Err(Errno::OPNOTSUPP),
    };
    if matches!(what, Allocation::Grow | Allocation::Zero) {
        size_limit::check_length(at as u64 + bytes as u64, || Ok(file.attr()?.size))?;
    }
    file.file()?.allocate(at as u64, bytes as u64, what).map(|()| 0)
}

hooks! {
    /// `lseek`.
    fn [lseek lseek64](fd: c_int, by: off_t, whence: c_int) -> off_t {
        // SAFETY: as for the C function.
        on_data(
            counter!("lseek"),
            fd,
            |file| seek(file, by, whence),
            || recording::seeking(fd, || unsafe { host::lseek(fd, by, whence) }),
        )
    }

    /// `ftruncate`.
    fn [ftruncate ftruncate64](fd: c_int, bytes: off_t) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("ftruncate"),
            fd,
            |file| {
                let bytes = offset(bytes)?;
                size_limit::check_length(bytes, || Ok(file.attr()?.size))?;
                file.set_attr(&AttrUpdate::size(bytes)).map(|_| 0)
            },
            || unsafe { host::ftruncate(fd, bytes) },
        )
    }

    /// `fallocate`.
    fn [fallocate fallocate64](fd: c_int, mode: c_int, at: off_t, bytes: off_t) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fallocate"),
            fd,
            |file| allocate(file, mode, at, bytes),
            || unsafe { host::fallocate(fd, mode, at, bytes) },
        )
    }

    /// `posix_fallocate`, which returns its error.
    fn [posix_fallocate posix_fallocate64](fd: c_int, at: off_t, bytes: off_t) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("posix_fallocate"),
            fd,
            |file| Ok(allocate(file, 0, at, bytes).map_or_else(Errno::raw_os_error, |_| 0)),
            || unsafe { host::posix_fallocate(fd, at, bytes) },
        )
    }
}
