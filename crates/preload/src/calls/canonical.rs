//! `realpath`. In a staging job the C library would follow symlinks past the hooks, and a file that has not
//! come has a path all the same, so a path that leads below a map is followed here, name by name, with the
//! hooks of `lstat` and `readlink`; all others by the C library.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char};

use azekura_posix::{Errno, Result};
use libc::size_t;

use super::{cwd, hooks, links, stat};
use crate::descriptors::table;
use crate::paths::{Spot, by_path};
use crate::report::counter;
use crate::staging::{self, Job, Purpose};
use crate::{hook, host, paths};

mod hosts {
    use std::ffi::c_char;

    crate::host::host! {
        fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char;
    }
}

const SYMLINKS_MAX: u32 = 40;
const PATH_MAX: usize = libc::PATH_MAX as usize;

fn last_error() -> Errno {
    Errno::from_raw_os_error(host::errno())
}

fn kind(path: &CStr) -> Result<u32> {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a C string and a structure.
    let failed = unsafe { stat::lstat(path.as_ptr(), &raw mut found) } != 0;
    if failed { Err(last_error()) } else { Ok(found.st_mode & libc::S_IFMT) }
}

fn link_text(path: &CStr) -> Result<Vec<u8>> {
    let mut text = vec![0_u8; PATH_MAX];
    // SAFETY: a C string, and a buffer of that size.
    let got = unsafe { links::readlink(path.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    text.truncate(usize::try_from(got).map_err(|_| last_error())?);
    Ok(text)
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}

/// The path without symlinks and dots of something that exists.
fn followed(path: &[u8]) -> Result<Vec<u8>> {
    let mut done = Vec::new();
    if path.first() != Some(&b'/') {
        // SAFETY: without a buffer the path comes in new memory, which is ours then.
        unsafe {
            let at = cwd::getcwd(std::ptr::null_mut(), 0);
            if at.is_null() {
                return Err(last_error());
            }
            done = CStr::from_ptr(at).to_bytes().to_vec();
            libc::free(at.cast());
        }
    }
    let mut rest: VecDeque<Vec<u8>> = names(path).collect();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == b"." || name == b".." {
            if name == b".." {
                done.truncate(done.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            }
            continue;
        }
        let here = [&done, &b"/"[..], &name].concat();
        if here.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let text = CString::new(here.as_slice()).map_err(|_| Errno::INVAL)?;
        let kind = kind(&text)?;
        if kind == libc::S_IFLNK {
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(Errno::LOOP);
            }
            let text = link_text(&text)?;
            if text.first() == Some(&b'/') {
                done.clear();
            }
            names(&text).rev().for_each(|name| rest.push_front(name));
            continue;
        }
        if kind != libc::S_IFDIR && (!rest.is_empty() || path.ends_with(b"/")) {
            return Err(Errno::NOTDIR);
        }
        done = here;
    }
    if done.is_empty() {
        done.push(b'/');
    }
    Ok(done)
}

/// `realpath` for a program of a staging job.
///
/// # Safety
/// As for the C function; the path is not null.
unsafe fn in_job(job: &'static Job, path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    // SAFETY: the caller says so.
    let Ok(text) = (unsafe { paths::text(path) }) else {
        host::set_errno(libc::EFAULT);
        return std::ptr::null_mut();
    };
    let give = |path: &[u8]| {
        let bytes = if resolved.is_null() { 0 } else { PATH_MAX };
        // SAFETY: a buffer of the caller has room for any path.
        match unsafe { cwd::give_path(path, resolved, bytes) } {
            Ok(given) => given,
            Err(errno) => {
                host::set_errno(errno.raw_os_error());
                std::ptr::null_mut()
            }
        }
    };
    let is_below = hook::caught(|| Ok(job.absolute(libc::AT_FDCWD, text).is_some()));
    if text.is_empty() || is_below != Ok(true) {
        // SAFETY: the caller says so.
        let found = unsafe { hosts::realpath(path, resolved) };
        if found.is_null() {
            return found;
        }
        // SAFETY: the C library has written a path.
        let shown = job.shown(unsafe { CStr::from_ptr(found) }.to_bytes());
        let Some(shown) = shown else { return found };
        if resolved.is_null() {
            // SAFETY: it came from the C library.
            unsafe { libc::free(found.cast()) };
        }
        return give(&shown);
    }
    let before = host::errno();
    match hook::caught(|| followed(text)) {
        Ok(path) => {
            host::set_errno(before);
            give(&path)
        }
        Err(errno) => {
            host::set_errno(errno.raw_os_error());
            std::ptr::null_mut()
        }
    }
}

/// The path that `realpath` gives of a place in the container.
///
/// # Safety
/// As for `realpath`.
unsafe fn give_real(spot: &Spot, resolved: *mut c_char) -> Result<*mut c_char> {
    let path = cwd::with_prefix(&cwd::canonical(spot)?.0)?;
    let path_max = libc::PATH_MAX as usize;
    if path.len() >= path_max {
        return Err(Errno::NAMETOOLONG);
    }
    let bytes = if resolved.is_null() { 0 } else { path_max };
    // SAFETY: a buffer of the caller has room for any path.
    unsafe { cwd::give_path(&path, resolved, bytes) }
}

/// Whether a path of a descriptor leads to nothing but that descriptor.
fn descriptor_of(path: &[u8]) -> Option<CString> {
    let fd = crate::paths::descriptor_path(path)?;
    let description = table::get(fd)?;
    let below = description.path();
    (!below.is_empty()).then(|| CString::new(cwd::with_prefix(below).ok()?).ok()).flatten()
}

hooks! {
    /// `realpath`.
    fn [realpath](path: *const c_char, resolved: *mut c_char) -> *mut c_char {
        if path.is_null() {
            host::set_errno(libc::EINVAL);
            return std::ptr::null_mut();
        }
        if let Some(job) = staging::active() {
            // SAFETY: as for the C function.
            return unsafe { in_job(job, path, resolved) };
        }
        let of_descriptor = hook::run(|| {
            // SAFETY: not null, so a C string.
            Ok(descriptor_of(unsafe { CStr::from_ptr(path) }.to_bytes()))
        });
        let of_descriptor = of_descriptor.and_then(Result::ok).flatten();
        let path = of_descriptor.as_deref().map_or(path, CStr::as_ptr);
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("realpath"),
                // Not met by a program of a staging job.
                &Purpose::Read,
                libc::AT_FDCWD,
                path,
                |spot| give_real(spot, resolved),
                |_, path| hosts::realpath(path, resolved),
            )
        }
    }

    /// `realpath`, fortified.
    fn [__realpath_chk](
        path: *const c_char, resolved: *mut c_char, _room: size_t,
    ) -> *mut c_char {
        // SAFETY: as for the C function, which gives this only room for any path.
        unsafe { realpath(path, resolved) }
    }

    /// `canonicalize_file_name`.
    fn [canonicalize_file_name](path: *const c_char) -> *mut c_char {
        // SAFETY: as for the C function.
        unsafe { realpath(path, std::ptr::null_mut()) }
    }
}
