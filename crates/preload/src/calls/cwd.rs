//! The working directory: `chdir`, `getcwd`. While the working
//! directory lies in the container the kernel's stays where it was.

use std::ffi::{c_char, c_int};

use azekura_posix::{
    Access, Attr, AttrsWanted, Errno, FileKind, Namespace, Oid, Result, may_access,
};
use libc::size_t;

use super::hooks;
use crate::paths::working_directory::{self, WorkingDirectory};
use crate::paths::{Spot, by_path};
use crate::report::counter;
use crate::settings;
use crate::staging::{self, Purpose};
use crate::{guard, hook, host, recording, service};

mod hosts {
    use std::ffi::{c_char, c_int};

    use libc::size_t;

    crate::host::host! {
        fn chdir(path: *const c_char) -> c_int;
        fn fchdir(fd: c_int) -> c_int;
        fn getcwd(buffer: *mut c_char, bytes: size_t) -> *mut c_char;
        fn get_current_dir_name() -> *mut c_char;
    }
}

const CWD: c_int = libc::AT_FDCWD;
/// Names fetched at a time, in bytes, where a directory's own name is looked for.
const PAGE_BYTES: u32 = 64 * 1024;

/// The name of a directory in the one above it.
fn name_in(ns: &Namespace, above: Oid, dir: Oid) -> Result<Vec<u8>> {
    let mut cookie = 0;
    loop {
        let fs = ns.filesystem();
        let page = fs.readdir(ns.caller(), above, cookie, PAGE_BYTES, AttrsWanted::No)?;
        let named = |name: &[u8]| name != b"." && name != b"..";
        if let Some(found) = page.entries.iter().find(|e| e.oid == dir && named(&e.name)) {
            return Ok(found.name.clone());
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return Err(Errno::NOENT),
        }
    }
}

/// The path of a directory as it is now, found from below.
fn path_from_below(ns: &Namespace, dir: Oid) -> Result<Vec<u8>> {
    let gone = |errno| if errno == Errno::STALE { Errno::NOENT } else { errno };
    let mut path = Vec::new();
    let mut at = dir;
    while at != ns.filesystem().root() {
        let above = ns.filesystem().getattr(at).map_err(gone)?.parent.ok_or(Errno::NOENT)?;
        let name = name_in(ns, above, at).map_err(gone)?;
        path.splice(0..0, [b"/", name.as_slice()].concat());
        at = above;
    }
    Ok(path)
}

/// The canonical path of a directory that is known under a path which may have become another's.
fn path_of(ns: &Namespace, dir: Oid, known: &[u8]) -> Result<Vec<u8>> {
    if dir == ns.filesystem().root() {
        return Ok(Vec::new());
    }
    if known.starts_with(b"/") {
        if let Some(path) = ns.filesystem().believed_path(known, dir) {
            return Ok(path);
        }
        if let Ok((path, attr)) = ns.canonicalize(b"", known)
            && attr.oid == dir
        {
            return Ok(path);
        }
    }
    path_from_below(ns, dir)
}

/// The working directory's canonical path, below the container's root, as it is now; empty where it
/// counts for nothing.
fn current(ns: &Namespace) -> Result<Vec<u8>> {
    match working_directory::get() {
        None => Ok(Vec::new()),
        Some(at) => path_of(ns, at.oid()?, &at.path),
    }
}

/// The canonical path of the place below the container's root, and what is there.
pub(super) fn canonical(spot: &Spot) -> Result<(Vec<u8>, Attr)> {
    if spot.path.first() == Some(&b'/') {
        return spot.ns.canonicalize(b"", &spot.path);
    }
    spot.ns.canonicalize(&current(&spot.ns)?, &spot.path)
}

fn enter(ns: &Namespace, attr: &Attr, path: Vec<u8>) -> Result<c_int> {
    if attr.kind != FileKind::Directory {
        return Err(Errno::NOTDIR);
    }
    let search = Access { execute: true, ..Access::default() };
    if !may_access(ns.caller(), attr, search) {
        return Err(Errno::ACCESS);
    }
    working_directory::set(Some(WorkingDirectory::found(attr.oid, path)));
    Ok(0)
}

/// The kernel's working directory counts again.
fn entered_host(result: c_int) -> c_int {
    staging::moved();
    recording::changed_directory();
    if result == 0 && working_directory::is_ours() && !guard::is_inside() {
        hook::inside(|| {
            working_directory::set(None);
        });
    }
    result
}

pub(super) fn with_prefix(below: &[u8]) -> Result<Vec<u8>> {
    let settings = settings::get().ok_or(Errno::NOENT)?;
    Ok([&settings.prefix, below].concat())
}

/// Puts a path into the caller's buffer, or into new memory of the C library's if there is none.
///
/// # Safety
/// As for `getcwd`.
pub(super) unsafe fn give_path(
    path: &[u8],
    buffer: *mut c_char,
    bytes: size_t,
) -> Result<*mut c_char> {
    let needed = path.len() + 1;
    let into = if buffer.is_null() {
        let bytes = if bytes == 0 { needed } else { bytes };
        if bytes < needed {
            return Err(Errno::RANGE);
        }
        // SAFETY: the call has no conditions.
        let new = unsafe { libc::malloc(bytes) };
        if new.is_null() {
            return Err(Errno::NOMEM);
        }
        new.cast()
    } else if bytes == 0 {
        return Err(Errno::INVAL);
    } else if bytes < needed {
        return Err(Errno::RANGE);
    } else {
        buffer
    };
    // SAFETY: there is room for the path and its end.
    unsafe {
        into.copy_from_nonoverlapping(path.as_ptr().cast(), path.len());
        into.add(path.len()).write(0);
    }
    Ok(into)
}

/// The working directory as a program of a staging job knows it, if it is one of the agent's.
fn directory_of_job() -> Option<Vec<u8>> {
    let job = staging::active()?;
    hook::caught(|| Ok(job.shown(&job.kernel_path(CWD).ok_or(Errno::NOENT)?))).ok().flatten()
}

fn conclude_path(given: Result<*mut c_char>) -> *mut c_char {
    given.unwrap_or_else(|errno| {
        host::set_errno(errno.raw_os_error());
        std::ptr::null_mut()
    })
}

fn is_in_container() -> bool {
    working_directory::is_ours() && !guard::is_inside()
}

fn current_with_prefix() -> Result<Vec<u8>> {
    with_prefix(&current(&service::root()?)?)
}

hooks! {
    /// `chdir`.
    fn [chdir](path: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("chdir"),
                &Purpose::Enter,
                CWD,
                path,
                |spot| {
                    let (path, attr) = canonical(spot)?;
                    enter(&spot.ns, &attr, path)
                },
                |_, path| entered_host(hosts::chdir(path)),
            )
        }
    }

    /// `fchdir`.
    fn [fchdir](fd: c_int) -> c_int {
        crate::descriptors::on_fd(
            counter!("fchdir"),
            fd,
            |file| {
                let root = service::root()?;
                let dir = file.dir()?;
                let path = path_of(&root, dir, file.path())?;
                enter(&root, &file.attr()?, path)
            },
            // SAFETY: as for the C function.
            || entered_host(unsafe { hosts::fchdir(fd) }),
        )
    }

    /// `getcwd`.
    fn [getcwd](buffer: *mut c_char, bytes: size_t) -> *mut c_char {
        if !is_in_container() {
            // SAFETY: as for the C function.
            return unsafe {
                match directory_of_job() {
                    Some(path) => conclude_path(give_path(&path, buffer, bytes)),
                    None => hosts::getcwd(buffer, bytes),
                }
            };
        }
        let given = hook::run(|| {
            if bytes == 0 && !buffer.is_null() {
                return Err(Errno::INVAL);
            }
            // SAFETY: as for the C function.
            unsafe { give_path(&current_with_prefix()?, buffer, bytes) }
        });
        hook::conclude(counter!("getcwd"), given.unwrap_or(Err(Errno::IO)))
    }

    /// `getcwd`, fortified.
    fn [__getcwd_chk](buffer: *mut c_char, bytes: size_t, room: size_t) -> *mut c_char {
        // SAFETY: as for the C function.
        unsafe { getcwd(buffer, if buffer.is_null() { bytes } else { bytes.min(room) }) }
    }

    /// `getwd`.
    fn [getwd](buffer: *mut c_char) -> *mut c_char {
        if buffer.is_null() {
            host::set_errno(libc::EINVAL);
            return std::ptr::null_mut();
        }
        // SAFETY: as for the C function, whose buffer has room for any path.
        unsafe { getcwd(buffer, libc::PATH_MAX as size_t) }
    }

    /// `getwd`, fortified.
    fn [__getwd_chk](buffer: *mut c_char, room: size_t) -> *mut c_char {
        if buffer.is_null() {
            host::set_errno(libc::EINVAL);
            return std::ptr::null_mut();
        }
        // SAFETY: as for the C function.
        unsafe { getcwd(buffer, room.min(libc::PATH_MAX as size_t)) }
    }

    /// `get_current_dir_name`.
    fn [get_current_dir_name]() -> *mut c_char {
        if !is_in_container() && staging::active().is_none() {
            // SAFETY: as for the C function.
            return unsafe { hosts::get_current_dir_name() };
        }
        // SAFETY: without a buffer the path comes in new memory.
        unsafe { getcwd(std::ptr::null_mut(), 0) }
    }
}
