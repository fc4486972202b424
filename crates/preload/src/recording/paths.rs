//! Which paths are recorded: none that the kernel makes up, and none outside of the directories that were named,
//! if any were. Owns what is known of the working directory for that.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

use azekura_proto::recording::layout::header;
use rustix::fs::{CWD, readlinkat_raw};

use super::area;
use crate::pointers;

/// Asks about the link that the kernel keeps of a descriptor.
pub(super) fn link_of<R>(fd: c_int, ask: impl FnOnce(&CStr) -> R) -> Option<R> {
    let mut link = [0_u8; 32];
    // Room enough for any number; the rest stays zero.
    write!(&mut link[..31], "/proc/self/fd/{fd}").ok()?;
    CStr::from_bytes_until_nul(&link).ok().map(ask)
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The directories that were named, each with a zero byte behind it.
fn under() -> &'static [u8] {
    let Some(header) = area::header() else { return b"" };
    let bytes = header[header::UNDER_BYTES].load(Ordering::Relaxed) as usize;
    let room = &header[header::UNDER..];
    // SAFETY: bytes of the mapping, which nobody changes once a process runs.
    unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), bytes.min(header::UNDER_BYTES_MAX)) }
}

/// Whether a file of this absolute path is recorded.
pub(super) fn is_recorded(path: &[u8]) -> bool {
    let is_made_up = [&b"/proc"[..], b"/sys", b"/dev"].iter().any(|dir| is_below(path, dir))
        && !is_below(path, b"/dev/shm")
        || path.starts_with(b"/memfd:")
        || path.first() != Some(&b'/');
    let under = under();
    !is_made_up
        && (under.is_empty()
            || under.split(|byte| *byte == 0).any(|dir| !dir.is_empty() && is_below(path, dir)))
}

const UNKNOWN: u8 = 0;
const RECORDED: u8 = 1;
const OTHER: u8 = 2;
/// Whether relative paths are recorded.
#[unsafe(link_section = ".data.hot")]
static WORKING_DIRECTORY: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The working directory is another.
pub(crate) fn changed_directory() {
    WORKING_DIRECTORY.store(UNKNOWN, Ordering::Relaxed);
}

fn is_directory_recorded(link: &CStr) -> bool {
    let mut room = [std::mem::MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
    readlinkat_raw(CWD, link, &mut room[..]).is_ok_and(|(path, _)| is_recorded(path))
}

/// Whether a call with this path is recorded, as far as the text tells.
pub(super) fn concerns(dirfd: c_int, path: *const c_char) -> bool {
    if !pointers::is_plausible(path) {
        return false;
    }
    // SAFETY: a C string, as for every call.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.first() == Some(&b'/') {
        return is_recorded(path);
    }
    if under().is_empty() {
        return true;
    }
    if dirfd != libc::AT_FDCWD {
        return link_of(dirfd, is_directory_recorded).unwrap_or(false);
    }
    match WORKING_DIRECTORY.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = is_directory_recorded(c"/proc/self/cwd");
            WORKING_DIRECTORY.store(if found { RECORDED } else { OTHER }, Ordering::Relaxed);
            found
        }
        state => state == RECORDED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_makes_up_is_not_recorded() {
        for path in ["/data/in", "/dev/shm/x", "/devices", "/process", "/system/x", "/"] {
            assert!(is_recorded(path.as_bytes()), "{path}");
        }
        for path in [
            "/proc",
            "/proc/self/status",
            "/sys/x",
            "/dev/null",
            "/memfd:x (deleted)",
            "pipe:[1]",
            "in",
        ] {
            assert!(!is_recorded(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_directory_holds_what_has_its_whole_name() {
        assert!(is_below(b"/data", b"/data") && is_below(b"/data/x", b"/data"));
        assert!(!is_below(b"/database", b"/data") && !is_below(b"/dat", b"/data"));
    }

    #[test]
    fn a_path_that_cannot_be_one_concerns_nobody() {
        assert!(!concerns(libc::AT_FDCWD, std::ptr::null()));
        assert!(!concerns(libc::AT_FDCWD, c"/proc/self/stat".as_ptr()));
        assert!(concerns(libc::AT_FDCWD, c"/data".as_ptr()));
        // Without directories named, what counts from somewhere is recorded wherever that is.
        assert!(concerns(libc::AT_FDCWD, c"in".as_ptr()));
    }
}
