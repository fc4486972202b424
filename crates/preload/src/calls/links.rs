//! `link`, `symlink`, `readlink` and their forms.

use std::ffi::{c_char, c_int};

use azekura_posix::{Errno, Oid, Result};
use libc::{size_t, ssize_t};

use super::hooks;
use crate::descriptors::table;
use crate::paths::{self, Spot, by_path, by_two_paths, working_directory};
use crate::report::{Counter, counter};
use crate::settings::{self, Intercept};
use crate::staging::{self, Pair, Purpose};
use crate::{guard, hook, host};

mod hosts {
    use std::ffi::{c_char, c_int};

    use libc::{size_t, ssize_t};

    crate::host::host! {
        fn linkat(
            from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int,
        ) -> c_int;
        fn symlinkat(text: *const c_char, dirfd: c_int, path: *const c_char) -> c_int;
        fn readlinkat(
            dirfd: c_int, path: *const c_char, buffer: *mut c_char, bytes: size_t,
        ) -> ssize_t;
    }
}

const CWD: c_int = libc::AT_FDCWD;

/// The object that the first path of a `linkat` stands for, if that is an open file and no name.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn linked_object(dirfd: c_int, path: *const c_char, flags: c_int) -> Option<Oid> {
    if !paths::is_plausible(path) || guard::is_inside() {
        return None;
    }
    // SAFETY: the caller says so.
    let text = unsafe { paths::text(path) }.ok()?;
    let fd = if text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        dirfd
    } else if flags & libc::AT_SYMLINK_FOLLOW != 0 {
        paths::descriptor_path(text)?
    } else {
        return None;
    };
    table::get(fd).map(|file| file.oid())
}

/// # Safety
/// As for `linkat`.
unsafe fn link_at(
    counter: &'static Counter,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `linkat`.
    unsafe {
        if let Some(oid) = linked_object(from.0, from.1, flags) {
            return by_path(
                counter,
                &Purpose::Make,
                to.0,
                to.1,
                |to| to.ns.link_object(oid, &to.path).map(|()| 0),
                |_, _| {
                    host::set_errno(libc::EXDEV);
                    -1
                },
            );
        }
        let link = |from: &Spot, to: &Spot| {
            if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
                return Err(Errno::INVAL);
            }
            let attr = from.ns.resolve(&from.path, flags & libc::AT_SYMLINK_FOLLOW != 0)?;
            to.ns.link_object(attr.oid, &to.path).map(|()| 0)
        };
        by_two_paths(
            counter,
            Pair::Link { follow: flags & libc::AT_SYMLINK_FOLLOW != 0 },
            from,
            to,
            link,
            |from, to| hosts::linkat(from.0, from.1, to.0, to.1, flags),
        )
    }
}

/// # Safety
/// As for `symlinkat`.
unsafe fn symlink_at(
    counter: &'static Counter,
    text: *const c_char,
    dirfd: c_int,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller keeps the conditions of `symlinkat`.
    unsafe {
        by_path(
            counter,
            &Purpose::Make,
            dirfd,
            path,
            |spot| spot.ns.symlink(paths::text(text)?, &spot.path).map(|_| 0),
            |dirfd, path| hosts::symlinkat(text, dirfd, path),
        )
    }
}

/// Fills a buffer with as much of the text as it has room for, as `readlink` does.
///
/// # Safety
/// The buffer is writable, or null.
unsafe fn give_text(text: &[u8], buffer: *mut c_char, bytes: size_t) -> Result<ssize_t> {
    if bytes == 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller says so.
    let buffer = unsafe { super::buffer(buffer.cast(), bytes)? };
    let fits = text.len().min(buffer.len());
    buffer[..fits].copy_from_slice(&text[..fits]);
    Ok(fits as ssize_t)
}

/// What the links that the kernel keeps in `/proc` show where they stand for a place in the container.
fn shown_by_proc(path: &[u8]) -> Option<Vec<u8>> {
    let settings = settings::get().filter(|s| s.intercept == Intercept::All)?;
    let process = rustix::process::getpid().as_raw_nonzero().to_string();
    let rest = path.strip_prefix(b"/proc/").or_else(|| path.strip_prefix(b"/dev/"))?;
    let rest = match rest.strip_prefix(b"self/") {
        Some(rest) => rest,
        None if path.starts_with(b"/dev/") => rest,
        None => rest.strip_prefix(process.as_bytes())?.strip_prefix(b"/")?,
    };
    let below = if rest == b"cwd" && path.starts_with(b"/proc/") {
        working_directory::get()?.path.clone()
    } else {
        let number = std::str::from_utf8(rest.strip_prefix(b"fd/")?).ok()?.parse().ok()?;
        let description = table::get(number)?;
        match description.path() {
            // A file without a name is shown as the kernel shows one that was removed.
            b"" => format!("/#{:x} (deleted)", description.oid().inode_number()).into_bytes(),
            path => path.to_vec(),
        }
    };
    let below = below.strip_suffix(b"/").unwrap_or(&below);
    Some([&settings.prefix, below].concat())
}

/// What a link that the kernel keeps in `/proc` shows a program of a staging job: the path of the map where
/// it leads into one of the agent's directories.
///
/// # Safety
/// As for `readlinkat`, which has given `given`.
unsafe fn shown_to_job(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    bytes: size_t,
    given: ssize_t,
) -> ssize_t {
    let (Some(job), Ok(mut got)) = (staging::active(), usize::try_from(given)) else {
        return given;
    };
    // SAFETY: the kernel has read the path.
    let Ok(text) = (unsafe { paths::text(path) }) else { return given };
    if !text.starts_with(b"/proc/") && !text.starts_with(b"/dev/") {
        return given;
    }
    let mut whole = [0_u8; libc::PATH_MAX as usize];
    let mut from = buffer.cast::<u8>().cast_const();
    if got == bytes {
        // There may be more of it, and the part that was cut off belongs to what is shown.
        // SAFETY: the room is there.
        let again =
            unsafe { hosts::readlinkat(dirfd, path, whole.as_mut_ptr().cast(), whole.len()) };
        let Ok(length) = usize::try_from(again) else { return given };
        (got, from) = (length, whole.as_ptr());
    }
    // SAFETY: the kernel has written that many bytes.
    let Some(shown) = job.shown(unsafe { std::slice::from_raw_parts(from, got) }) else {
        return given;
    };
    // SAFETY: the caller says so.
    hook::run(|| unsafe { give_text(&shown, buffer, bytes) }).and_then(Result::ok).unwrap_or(given)
}

/// # Safety
/// As for `readlinkat`.
unsafe fn readlink_at(
    counter: &'static Counter,
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: the caller keeps the conditions of `readlinkat`.
    unsafe {
        if settings::get().is_some()
            && paths::is_plausible(path)
            && (*path).cast_unsigned() == b'/'
            && !guard::is_inside()
        {
            let shown = hook::run(|| Ok(shown_by_proc(paths::text(path)?)));
            if let Some(Ok(Some(text))) = shown {
                return hook::conclude(counter, give_text(&text, buffer, bytes));
            }
        }
        by_path(
            counter,
            &Purpose::Look {
                follow: false,
                found: &|found| give_text(found.link()?, buffer, bytes),
                told_directory: &|| false,
            },
            dirfd,
            path,
            |spot| {
                if bytes == 0 {
                    return Err(Errno::INVAL);
                }
                give_text(&spot.ns.read_link(&spot.path)?, buffer, bytes)
            },
            |dirfd, path| {
                let given = hosts::readlinkat(dirfd, path, buffer, bytes);
                shown_to_job(dirfd, path, buffer, bytes, given)
            },
        )
    }
}

hooks! {
    /// `link`.
    fn [link](from: *const c_char, to: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe { link_at(counter!("link"), (CWD, from), (CWD, to), 0) }
    }

    /// `linkat`.
    fn [linkat](
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { link_at(counter!("linkat"), (from_dir, from), (to_dir, to), flags) }
    }

    /// `symlink`.
    fn [symlink](text: *const c_char, path: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe { symlink_at(counter!("symlink"), text, CWD, path) }
    }

    /// `symlinkat`.
    fn [symlinkat](text: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe { symlink_at(counter!("symlinkat"), text, dirfd, path) }
    }

    /// `readlink`.
    fn [readlink](path: *const c_char, buffer: *mut c_char, bytes: size_t) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe { readlink_at(counter!("readlink"), CWD, path, buffer, bytes) }
    }

    /// `readlink`, fortified.
    fn [__readlink_chk](
        path: *const c_char, buffer: *mut c_char, bytes: size_t, room: size_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe { readlink(path, buffer, bytes.min(room)) }
    }

    /// `readlinkat`.
    fn [readlinkat](
        dirfd: c_int, path: *const c_char, buffer: *mut c_char, bytes: size_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe { readlink_at(counter!("readlinkat"), dirfd, path, buffer, bytes) }
    }

    /// `readlinkat`, fortified.
    fn [__readlinkat_chk](
        dirfd: c_int, path: *const c_char, buffer: *mut c_char, bytes: size_t, room: size_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe { readlinkat(dirfd, path, buffer, bytes.min(room)) }
    }
}
