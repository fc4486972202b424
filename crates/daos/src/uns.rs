//! Which pool and container a path means: only paths that say so themselves.

use std::ffi::{c_char, c_int};

use azekura_posix::Errno;

use crate::status::dfs_call;
use crate::types::{PathAttr, c_bytes, place};

/// Starts a path of a container.
const PREFIX: &[u8] = b"daos:";
/// In the flags: the path does without.
const NO_PREFIX: u32 = 1;
/// What every container is.
const LAYOUT_POSIX: u16 = 1;

/// Pool, container and the rest of a path.
#[derive(PartialEq, Eq, Debug)]
struct Parts<'a> {
    pool: &'a [u8],
    container: &'a [u8],
    /// With its slash; empty if there is none.
    rest: &'a [u8],
}

/// Takes a path apart; `ENODATA` for one that is none of a container.
fn take_apart(path: &[u8], needs_prefix: bool) -> Result<Parts<'_>, Errno> {
    let below = match path.strip_prefix(PREFIX) {
        Some(below) => below,
        None if needs_prefix => return Err(Errno::NODATA),
        None => path,
    };
    let slashes = below.iter().take_while(|byte| **byte == b'/').count();
    let mut parts = below[slashes..].splitn(3, |byte| *byte == b'/');
    let pool = parts.next().filter(|pool| !pool.is_empty()).ok_or(Errno::INVAL)?;
    let container = parts.next().unwrap_or_default();
    // With the slash before it.
    let rest = parts.next().map_or(&[][..], |rest| &below[below.len() - rest.len() - 1..]);
    Ok(Parts { pool, container, rest: if rest == b"/" { &[] } else { rest } })
}

/// Puts a name into its field; `EINVAL` if it is too long.
fn set(field: &mut [c_char], name: &[u8]) -> Result<(), Errno> {
    if name.len() >= field.len() {
        return Err(Errno::INVAL);
    }
    for (to, from) in field.iter_mut().zip(name.iter().chain(&[0])) {
        *to = from.cast_signed();
    }
    Ok(())
}

/// See `daos_uns.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn duns_resolve_path(
    path: *const c_char,
    attr: *mut PathAttr,
) -> c_int {
    dfs_call(|| {
        // SAFETY: a C string, and null or the caller's, by the contract.
        let (path, attr) = unsafe { (c_bytes(path), place(attr)) };
        let (path, attr) = (path.ok_or(Errno::INVAL)?, attr.ok_or(Errno::INVAL)?);
        let needs_prefix = attr.flags & NO_PREFIX == 0 && !attr.no_prefix;
        let parts = take_apart(path, needs_prefix)?;
        set(&mut attr.pool, parts.pool)?;
        set(&mut attr.container, parts.container)?;
        attr.layout = LAYOUT_POSIX;
        (attr.system, attr.rest) = (std::ptr::null_mut(), std::ptr::null_mut());
        if !parts.rest.is_empty() {
            // SAFETY: so many bytes stand there, none of them zero; a copy ends with one.
            attr.rest = unsafe { libc::strndup(parts.rest.as_ptr().cast(), parts.rest.len()) };
            if attr.rest.is_null() {
                return Err(Errno::NOMEM);
            }
        }
        Ok(())
    })
}

/// See `daos_uns.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn duns_destroy_attr(attr: *mut PathAttr) {
    // SAFETY: null or the caller's, whose texts are null or memory of the C library, by the contract.
    unsafe {
        let Some(attr) = place(attr) else { return };
        libc::free(attr.system.cast());
        libc::free(attr.rest.cast());
        (attr.system, attr.rest) = (std::ptr::null_mut(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let parts = |pool: &'static str, container: &'static str, rest: &'static str| Parts {
            pool: pool.as_bytes(),
            container: container.as_bytes(),
            rest: rest.as_bytes(),
        };
        assert_eq!(take_apart(b"daos://p/c/a/b", true), Ok(parts("p", "c", "/a/b")));
        assert_eq!(take_apart(b"daos:/p/c", true), Ok(parts("p", "c", "")));
        assert_eq!(take_apart(b"daos://p/c/", true), Ok(parts("p", "c", "")));
        assert_eq!(take_apart(b"daos:p", true), Ok(parts("p", "", "")));
        assert_eq!(take_apart(b"/p/c/x", false), Ok(parts("p", "c", "/x")));
        assert_eq!(take_apart(b"/p/c/x", true), Err(Errno::NODATA));
        assert_eq!(take_apart(b"daos://", true), Err(Errno::INVAL));
    }
}
