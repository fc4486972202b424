//! The C library's streams where they stand on files of the pool. Owns when a standard stream is
//! replaced by one of the pool and put back; the streams themselves are made in `streams.c`. All of
//! this runs outside of our code, since the streams read and write through the hooks.

use std::ffi::{c_char, c_int, c_void};

use crate::descriptors::{Backing, table};
use crate::scope::RECORDS_ONLY;
use crate::{guard, hook, settings};

/// A stream (`FILE`).
pub(crate) type Stream = *mut c_void;

unsafe extern "C" {
    fn azekura_stream_new(fd: c_int, mode: *const c_char) -> Stream;
    fn azekura_stream_is_ours(stream: Stream) -> c_int;
    fn azekura_stream_set_mode(stream: Stream, reads: c_int, writes: c_int, appends: c_int);
    fn azekura_standard_flush(fd: c_int);
    fn azekura_standard_ours(fd: c_int);
    fn azekura_standard_hosts(fd: c_int);
    fn azekura_standard_forget(stream: Stream) -> c_int;
    fn azekura_standard_current(fd: c_int) -> Stream;
}

/// How a stream is opened, from the text that `fopen` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The flags of `open`.
    pub(crate) flags: c_int,
}

impl Mode {
    /// Reads the text; `None` if it begins with none of `r`, `w`, `a`. As in the C library, what
    /// stands behind a comma and letters that are not known change nothing.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (first, rest) = text.split_first()?;
        let rest = rest.split(|byte| *byte == b',').next().unwrap_or_default();
        let (access, more) = match first {
            b'r' => (libc::O_RDONLY, 0),
            b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
            b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
            _ => return None,
        };
        let mut flags = if rest.contains(&b'+') { libc::O_RDWR } else { access } | more;
        if rest.contains(&b'x') {
            flags |= libc::O_EXCL;
        }
        if rest.contains(&b'e') {
            flags |= libc::O_CLOEXEC;
        }
        Some(Self { flags })
    }

    /// Whether it reads.
    pub(crate) fn reads(self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Whether it writes.
    pub(crate) fn writes(self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether it writes at the end.
    pub(crate) fn appends(self) -> bool {
        self.flags & libc::O_APPEND != 0
    }
}

/// A new stream on a descriptor of ours; null if there is no memory.
pub(crate) fn new(fd: c_int, mode: Mode) -> Stream {
    let text = match (mode.appends(), mode.reads(), mode.writes()) {
        (true, true, _) => c"a+",
        (true, false, _) => c"a",
        (false, true, true) => c"r+",
        (false, true, false) => c"r",
        (false, false, _) => c"w",
    };
    // SAFETY: a C string; the descriptor is open.
    unsafe { azekura_stream_new(fd, text.as_ptr()) }
}

/// Whether a stream was made here.
///
/// # Safety
/// The stream is open.
pub(crate) unsafe fn is_ours(stream: Stream) -> bool {
    // SAFETY: the caller says so.
    unsafe { azekura_stream_is_ours(stream) != 0 }
}

/// Changes what a stream of ours may do.
///
/// # Safety
/// The stream is open, and was made here.
pub(crate) unsafe fn set_mode(stream: Stream, mode: Mode) {
    let (reads, writes, appends) = (mode.reads(), mode.writes(), mode.appends());
    // SAFETY: the caller says so.
    unsafe { azekura_stream_set_mode(stream, reads.into(), writes.into(), appends.into()) };
}

/// The stream that the program now finds in the variable of a standard descriptor.
pub(crate) fn standard(fd: c_int) -> Option<Stream> {
    // SAFETY: there is a variable for each of these.
    (0..3).contains(&fd).then(|| unsafe { azekura_standard_current(fd) })
}

/// A stream is about to be closed: if it is a standard one of ours, the variable goes back.
pub(crate) fn forget(stream: Stream) {
    if RECORDS_ONLY {
        return;
    }
    // SAFETY: the pointer is only compared.
    unsafe { azekura_standard_forget(stream) };
}

fn concerns(fd: c_int) -> bool {
    (0..3).contains(&fd) && !guard::is_inside() && settings::get().is_some()
}

/// A descriptor is about to stand for something else.
pub(crate) fn before_replacing(fd: c_int) {
    if concerns(fd) {
        // SAFETY: there is a variable for it.
        unsafe { azekura_standard_flush(fd) };
    }
}

fn is_of_pool(fd: c_int) -> bool {
    let found =
        hook::run(|| Ok(table::get(fd).is_some_and(|file| file.backing() == Backing::Reserved)));
    matches!(found, Some(Ok(true)))
}

/// A descriptor stands for something else now, or for nothing.
pub(crate) fn after_replacing(fd: c_int) {
    if !concerns(fd) {
        return;
    }
    // SAFETY: there is a variable for it; nothing of it is in use by this thread.
    unsafe {
        if table::is_ours(fd) && is_of_pool(fd) {
            azekura_standard_ours(fd);
        } else {
            azekura_standard_hosts(fd);
        }
    }
}

/// Looks which standard descriptors this program was started with stand for files of the pool.
pub(crate) fn adopt() {
    for fd in 0..3 {
        after_replacing(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_the_c_library() {
        let flags = |text: &str| Mode::parse(text.as_bytes()).map(|mode| mode.flags);
        assert_eq!(flags("r"), Some(libc::O_RDONLY));
        assert_eq!(flags("rb+"), Some(libc::O_RDWR));
        assert_eq!(flags("w"), Some(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
        assert_eq!(
            flags("wxe"),
            Some(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL | libc::O_CLOEXEC)
        );
        assert_eq!(flags("a+"), Some(libc::O_RDWR | libc::O_CREAT | libc::O_APPEND));
        assert_eq!(flags("r,ccs=x+"), Some(libc::O_RDONLY));
        assert_eq!(flags("q"), None);
        assert_eq!(flags(""), None);
    }
}
