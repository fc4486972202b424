//! The `chmod`, `chown` and `utimens` families.

use std::ffi::{c_char, c_int};

use azekura_posix::{AttrUpdate, Errno, File, FileKind, OFlags, Result, SetTime, Timestamp};
use libc::{gid_t, mode_t, timespec, timeval, uid_t};

use super::hooks;
use crate::descriptors::{Description, on_fd};
use crate::paths::{self, Spot, by_path};
use crate::report::{Counter, counter};
use crate::staging::Purpose;
use crate::{host, service};

mod hosts {
    use std::ffi::{c_char, c_int};

    use libc::{gid_t, mode_t, timespec, uid_t};

    crate::host::host! {
        fn fchmod(fd: c_int, mode: mode_t) -> c_int;
        fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
        fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int;
        fn fchownat(
            dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int,
        ) -> c_int;
        fn futimens(fd: c_int, times: *const timespec) -> c_int;
        fn utimensat(
            dirfd: c_int, path: *const c_char, times: *const timespec, flags: c_int,
        ) -> c_int;
    }
}

const CWD: c_int = libc::AT_FDCWD;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

fn change(spot: &Spot, flags: c_int, update: &AttrUpdate) -> Result<c_int> {
    spot.ns.set_attr(&spot.path, flags & NOFOLLOW == 0, update).map(|_| 0)
}

/// Changes what a descriptor stands for, also a mere place.
fn change_place(file: &Description, update: &AttrUpdate) -> Result<c_int> {
    let root = service::root()?;
    let handle = file.file_in_use().map(File::handle);
    root.filesystem().setattr(root.caller(), file.oid(), handle, update).map(|_| 0)
}

fn mode_update(mode: mode_t) -> AttrUpdate {
    AttrUpdate { mode: Some(mode & 0o7777), ..AttrUpdate::default() }
}

fn change_mode(spot: &Spot, mode: mode_t, flags: c_int) -> Result<c_int> {
    if flags & !NOFOLLOW != 0 {
        return Err(Errno::INVAL);
    }
    if flags & NOFOLLOW != 0 && spot.ns.resolve(&spot.path, false)?.kind == FileKind::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    change(spot, flags, &mode_update(mode))
}

/// # Safety
/// As for `fchmodat`.
unsafe fn chmod_at(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `fchmodat`.
    unsafe {
        by_path(
            counter,
            &Purpose::Write { follow: flags & NOFOLLOW == 0 },
            dirfd,
            path,
            |spot| change_mode(spot, mode, flags),
            |dirfd, path| hosts::fchmodat(dirfd, path, mode, flags),
        )
    }
}

/// `-1` leaves what it stands for as it is.
fn owner_update(uid: uid_t, gid: gid_t) -> AttrUpdate {
    AttrUpdate {
        uid: (uid != uid_t::MAX).then_some(uid),
        gid: (gid != gid_t::MAX).then_some(gid),
        ..AttrUpdate::default()
    }
}

/// # Safety
/// As for `fchownat`.
unsafe fn chown_at(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    let update = owner_update(uid, gid);
    // SAFETY: the caller keeps the conditions of `fchownat`.
    unsafe {
        if paths::means_descriptor(path, flags) {
            return on_fd(
                counter,
                dirfd,
                |file| change_place(file, &update),
                || hosts::fchownat(dirfd, path, uid, gid, flags),
            );
        }
        by_path(
            counter,
            &Purpose::Write { follow: flags & NOFOLLOW == 0 },
            dirfd,
            path,
            |spot| match flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) {
                0 => change(spot, flags, &update),
                _ => Err(Errno::INVAL),
            },
            |dirfd, path| hosts::fchownat(dirfd, path, uid, gid, flags),
        )
    }
}

fn new_time(time: &timespec) -> Result<Option<SetTime>> {
    match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        nanos @ 0..=999_999_999 => {
            Ok(Some(SetTime::At(Timestamp { secs: time.tv_sec, nanos: nanos as u32 })))
        }
        _ => Err(Errno::INVAL),
    }
}

/// # Safety
/// Null, or two times.
unsafe fn time_update(times: *const timespec) -> Result<AttrUpdate> {
    if times.is_null() {
        let now = Some(SetTime::Now);
        return Ok(AttrUpdate { atime: now, mtime: now, ..AttrUpdate::default() });
    }
    // SAFETY: the caller says so.
    let [accessed, changed] = unsafe { times.cast::<[timespec; 2]>().read() };
    Ok(AttrUpdate {
        atime: new_time(&accessed)?,
        mtime: new_time(&changed)?,
        ..AttrUpdate::default()
    })
}

fn is_nothing(update: &AttrUpdate) -> bool {
    update.atime.is_none() && update.mtime.is_none()
}

/// # Safety
/// As for `utimensat`.
unsafe fn set_times(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `utimensat`.
    unsafe {
        if paths::means_descriptor(path, flags) {
            return on_fd(
                counter,
                dirfd,
                |file| change_place(file, &time_update(times)?),
                || hosts::utimensat(dirfd, path, times, flags),
            );
        }
        by_path(
            counter,
            &Purpose::Write { follow: flags & NOFOLLOW == 0 },
            dirfd,
            path,
            |spot| {
                if flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(Errno::INVAL);
                }
                let update = time_update(times)?;
                if is_nothing(&update) { Ok(0) } else { change(spot, flags, &update) }
            },
            |dirfd, path| hosts::utimensat(dirfd, path, times, flags),
        )
    }
}

/// # Safety
/// As for `futimens`.
unsafe fn set_times_of(counter: &'static Counter, fd: c_int, times: *const timespec) -> c_int {
    on_fd(
        counter,
        fd,
        |file| {
            if file.open_flags().contains(OFlags::PATH) {
                return Err(Errno::BADF);
            }
            // SAFETY: the caller keeps the conditions of `futimens`.
            let update = unsafe { time_update(times)? };
            if is_nothing(&update) { Ok(0) } else { change_place(file, &update) }
        },
        // SAFETY: the caller keeps the conditions of `futimens`.
        || unsafe { hosts::futimens(fd, times) },
    )
}

/// Calls with times in microseconds turned into times in nanoseconds.
///
/// # Safety
/// Null, or two times.
unsafe fn with_nanos(times: *const timeval, call: impl FnOnce(*const timespec) -> c_int) -> c_int {
    if times.is_null() {
        return call(std::ptr::null());
    }
    // SAFETY: the caller says so.
    let both = unsafe { times.cast::<[timeval; 2]>().read() };
    if both.iter().any(|time| !(0..1_000_000).contains(&time.tv_usec)) {
        host::set_errno(libc::EINVAL);
        return -1;
    }
    let both = both.map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 });
    call(both.as_ptr())
}

hooks! {
    /// `chmod`.
    fn [chmod](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { chmod_at(counter!("chmod"), CWD, path, mode, 0) }
    }

    /// `lchmod`.
    fn [lchmod](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { chmod_at(counter!("lchmod"), CWD, path, mode, NOFOLLOW) }
    }

    /// `fchmodat`.
    fn [fchmodat](dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { chmod_at(counter!("fchmodat"), dirfd, path, mode, flags) }
    }

    /// `fchmod`.
    fn [fchmod](fd: c_int, mode: mode_t) -> c_int {
        on_fd(
            counter!("fchmod"),
            fd,
            |file| file.set_attr(&mode_update(mode)).map(|_| 0),
            // SAFETY: as for the C function.
            || unsafe { hosts::fchmod(fd, mode) },
        )
    }

    /// `chown`.
    fn [chown](path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { chown_at(counter!("chown"), CWD, path, uid, gid, 0) }
    }

    /// `lchown`.
    fn [lchown](path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { chown_at(counter!("lchown"), CWD, path, uid, gid, NOFOLLOW) }
    }

    /// `fchownat`.
    fn [fchownat](
        dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { chown_at(counter!("fchownat"), dirfd, path, uid, gid, flags) }
    }

    /// `fchown`.
    fn [fchown](fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        on_fd(
            counter!("fchown"),
            fd,
            |file| file.set_attr(&owner_update(uid, gid)).map(|_| 0),
            // SAFETY: as for the C function.
            || unsafe { hosts::fchown(fd, uid, gid) },
        )
    }

    /// `utimensat`.
    fn [utimensat](
        dirfd: c_int, path: *const c_char, times: *const timespec, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { set_times(counter!("utimensat"), dirfd, path, times, flags) }
    }

    /// `futimens`.
    fn [futimens](fd: c_int, times: *const timespec) -> c_int {
        // SAFETY: as for the C function.
        unsafe { set_times_of(counter!("futimens"), fd, times) }
    }

    /// `utime`.
    fn [utime](path: *const c_char, times: *const libc::utimbuf) -> c_int {
        let time = |seconds| timespec { tv_sec: seconds, tv_nsec: 0 };
        // SAFETY: as for the C function: null, or a structure.
        let both = unsafe { times.as_ref() }.map(|both| [time(both.actime), time(both.modtime)]);
        let times = both.as_ref().map_or(std::ptr::null(), |both| both.as_ptr());
        // SAFETY: as for the C function.
        unsafe { set_times(counter!("utime"), CWD, path, times, 0) }
    }

    /// `utimes`.
    fn [utimes](path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            with_nanos(times, |times| set_times(counter!("utimes"), CWD, path, times, 0))
        }
    }

    /// `lutimes`.
    fn [lutimes](path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            with_nanos(times, |times| set_times(counter!("lutimes"), CWD, path, times, NOFOLLOW))
        }
    }

    /// `futimes`.
    fn [futimes](fd: c_int, times: *const timeval) -> c_int {
        // SAFETY: as for the C function.
        unsafe { with_nanos(times, |times| set_times_of(counter!("futimes"), fd, times)) }
    }

    /// `futimesat`.
    fn [futimesat](dirfd: c_int, path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            if path.is_null() {
                return futimes(dirfd, times);
            }
            with_nanos(times, |times| set_times(counter!("futimesat"), dirfd, path, times, 0))
        }
    }
}
