//! `fsync` and its relatives.

use std::ffi::c_int;

use azekura_posix::{FileKind, Result};
use libc::off_t;

use super::hooks;
use crate::descriptors::{Description, on_data, on_fd};
use crate::host;
use crate::report::counter;

fn sync_one(file: &Description, data_only: bool) -> Result<c_int> {
    match file.kind() {
        FileKind::Directory => file.fs()?.fsync_dir(file.oid())?,
        _ if data_only => file.file()?.sync_data()?,
        _ => file.file()?.sync()?,
    }
    Ok(0)
}

hooks! {
    /// `fsync`.
    fn [fsync](fd: c_int) -> c_int {
        // SAFETY: as for the C function.
        on_data(counter!("fsync"), fd, |file| sync_one(file, false), || unsafe { host::fsync(fd) })
    }

    /// `fdatasync`.
    fn [fdatasync](fd: c_int) -> c_int {
        // SAFETY: as for the C function.
        on_data(counter!("fdatasync"), fd, |file| sync_one(file, true), || unsafe { host::fdatasync(fd) })
    }

    /// `syncfs`.
    fn [syncfs](fd: c_int) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("syncfs"),
            fd,
            |file| file.fs()?.syncfs().map(|()| 0),
            || unsafe { host::syncfs(fd) },
        )
    }

    /// `posix_fadvise`: advice changes nothing here.
    fn [posix_fadvise posix_fadvise64](fd: c_int, at: off_t, bytes: off_t, advice: c_int) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("posix_fadvise"),
            fd,
            |_| Ok(0),
            || unsafe { host::posix_fadvise(fd, at, bytes, advice) },
        )
    }
}
