//! `open` and its forms. Owns how a file of the pool gets a descriptor number.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_posix::{Errno, FileSystem, LEFT, OFlags, OpenOptions, Result};
use libc::{mode_t, size_t};

use super::{close, hooks};
use crate::descriptors::{Backing, CHANGEABLE, Description, Position, reserve, table};
use crate::host::{self, Failing};
use crate::paths::{self, Spot, by_path};
use crate::report::{self, counter};
use crate::settings::{self, Intercept};
use crate::staging::{self, Open, Purpose};
use crate::{guard, hook, recording, service, stdio};

fn options(flags: OFlags, mode: mode_t) -> OpenOptions {
    // Appending is decided at each write, since `fcntl` can change it.
    OpenOptions::new(flags & !CHANGEABLE, service::masked(mode))
}

fn describe(spot: &Spot, flags: OFlags, mode: mode_t) -> Result<Arc<Description>> {
    if flags.contains(OFlags::PATH) {
        let attr = spot.ns.resolve(&spot.path, !flags.contains(OFlags::NOFOLLOW))?;
        if flags.contains(OFlags::DIRECTORY) && attr.kind != azekura_posix::FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        let kept = OFlags::PATH | flags & (OFlags::DIRECTORY | OFlags::NOFOLLOW);
        let position = Position::new(0);
        return Ok(Description::unopened(attr.oid, attr.kind, kept, position, spot.absolute()));
    }
    let file = spot.ns.open(&spot.path, &options(flags, mode))?;
    let lasting = flags - (OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::CLOEXEC);
    let lasting = lasting - (OFlags::NOCTTY | OFlags::NOFOLLOW);
    // The name of a file that has none would lead to its directory.
    let path = if flags.contains(OFlags::TMPFILE) { Vec::new() } else { spot.absolute() };
    Ok(Description::of_file(file, Backing::Reserved, path, lasting))
}

/// Opens a place in the container under the lowest free number.
pub(crate) fn open_at(spot: &Spot, flags: c_int, mode: mode_t) -> Result<c_int> {
    let flags = OFlags::from_bits_retain(flags as u32);
    let number = || reserve::reserve(0, flags.contains(OFlags::CLOEXEC));
    // Out of numbers nothing is created or cut. An open that changes nothing is tried first: it fails
    // often, and then costs no number.
    let early =
        if flags.intersects(OFlags::CREATE | OFlags::TRUNC) { Some(number()?) } else { None };
    let described = describe(spot, flags, mode);
    let (description, fd) = match (described, early) {
        (Ok(description), Some(fd)) => (description, fd),
        (Ok(description), None) => (description, number()?),
        (Err(errno), Some(fd)) => {
            // SAFETY: the number was reserved just now.
            unsafe { host::close(fd) };
            return Err(errno);
        }
        (Err(errno), None) => return Err(errno),
    };
    if table::set(fd, description) {
        return Ok(fd);
    }
    // SAFETY: as above.
    unsafe { host::close(fd) };
    Err(Errno::MFILE)
}

/// The device of the mount at the prefix, plus 1; 0 while unknown.
static MOUNT: AtomicU64 = AtomicU64::new(0);

fn is_of_mount(stat: &rustix::fs::Stat) -> bool {
    let known = MOUNT.load(Ordering::Relaxed);
    if known != 0 {
        return known == stat.st_dev + 1;
    }
    let Some(settings) = settings::get() else { return false };
    let Ok(prefix) = rustix::fs::stat(settings.prefix.as_slice()) else { return false };
    MOUNT.store(prefix.st_dev + 1, Ordering::Relaxed);
    prefix.st_dev == stat.st_dev
}

/// Where only data calls are intercepted: a file that the mount has opened is opened here as well.
fn follow_mount(fd: c_int, flags: c_int) {
    let _ = hook::run(|| {
        table::take(fd);
        // SAFETY: the C library has just opened it.
        let stat = rustix::fs::fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) })?;
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        let flags = OFlags::from_bits_retain(flags as u32);
        if !is_file || flags.contains(OFlags::PATH) || !is_of_mount(&stat) {
            return Ok(());
        }
        let root = service::root()?;
        let fs: &FileSystem = root.filesystem();
        let lasting = flags - (OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::CLOEXEC);
        let file = root.reopen(fs.object(stat.st_ino)?, lasting & !CHANGEABLE)?;
        table::set(fd, Description::of_file(file, Backing::Mount, Vec::new(), lasting));
        Ok(())
    });
}

/// Closes what was opened in a tree of a staging job if it is a directory.
fn gives_back(fd: c_int) -> bool {
    // SAFETY: the C library has just opened it.
    let found = rustix::fs::fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) });
    let is_directory =
        found.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir());
    if is_directory {
        // SAFETY: as above, and nobody has seen it.
        unsafe { host::close(fd) };
    }
    is_directory
}

unsafe fn open_file(
    counter: &'static report::Counter,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    guard::cancellation_point();
    // SAFETY: the caller keeps the conditions of `openat`.
    let fd = unsafe {
        by_path(
            counter,
            &Purpose::Open(Open { flags, gives_back }),
            dirfd,
            path,
            |spot| open_at(spot, flags, mode),
            |dirfd, path| {
                let call = || close::not_ours(host::openat(dirfd, path, flags, mode));
                recording::opening((dirfd, path), flags, call, |fd| fd)
            },
        )
    };
    if fd >= 0
        && !guard::is_inside()
        && settings::get().is_some_and(|settings| settings.intercept == Intercept::Data)
    {
        follow_mount(fd, flags);
    }
    stdio::after_replacing(fd);
    fd
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

hooks! {
    /// `open`.
    fn [open open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { open_file(counter!("open"), libc::AT_FDCWD, path, flags, mode) }
    }

    /// `open` in its fortified form, which never creates.
    fn [__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { open_file(counter!("open"), libc::AT_FDCWD, path, flags, 0) }
    }

    /// `openat`.
    fn [openat openat64](dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { open_file(counter!("openat"), dirfd, path, flags, mode) }
    }

    /// `openat` in its fortified form.
    fn [__openat_2 __openat64_2](dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { open_file(counter!("openat"), dirfd, path, flags, 0) }
    }

    /// `creat`.
    fn [creat creat64](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as for the C function.
        unsafe { open_file(counter!("creat"), libc::AT_FDCWD, path, CREAT, mode) }
    }
}

/// The argument of `openat2`, as far as it is known here.
#[repr(C)]
#[derive(Clone, Copy)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `openat2` on a path of the pool; `None` if it is the host's. Restrictions on the way of the path
/// are not offered: `ENOSYS`, after which programs take `openat`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn openat2(
    dirfd: c_int,
    path: *const c_char,
    how: *const libc::c_void,
    bytes: size_t,
) -> Option<c_int> {
    if path.is_null() || how.is_null() || bytes < size_of::<OpenHow>() {
        return None;
    }
    // SAFETY: the caller says that there are that many bytes.
    let how = unsafe { how.cast::<OpenHow>().read_unaligned() };
    if staging::active().is_some() {
        // Restrictions would be those of the way in the tree, which is the same where nothing climbs.
        let (flags, mode) = (how.flags as c_int, how.mode as mode_t);
        // SAFETY: the caller says so.
        return (how.resolve == 0).then(|| unsafe { openat(dirfd, path, flags, mode) });
    }
    let found = hook::run(|| {
        // SAFETY: not null, so a C string.
        let Some(spot) = paths::find(dirfd, unsafe { paths::text(path)? })? else {
            return Ok(None);
        };
        if how.resolve != 0 {
            return Err(Errno::NOSYS);
        }
        open_at(&spot, how.flags as c_int, how.mode as mode_t).map(Some)
    })?;
    match found {
        Ok(fd) => fd,
        Err(LEFT) => None,
        Err(errno) => {
            host::set_errno(errno.raw_os_error());
            Some(c_int::FAILED)
        }
    }
}
