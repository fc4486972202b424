//! `fopen` and its relatives. Owns which streams are made on files of the pool; the others are the C
//! library's own.

use std::ffi::{CStr, c_char, c_int};

use azekura_posix::{Errno, Result};

use super::{close, duplicate, hooks, open, position};
use crate::descriptors::{Backing, table};
use crate::paths::{self, by_path};
use crate::report::counter;
use crate::staging::{self, Open, Purpose};
use crate::stdio::{self, Mode, Stream};
use crate::{guard, hook, host, launch, recording};

mod real {
    use super::{Stream, c_char, c_int};
    use crate::host::host;

    host! {
        fn fopen(path: *const c_char, mode: *const c_char) -> Stream;
        fn freopen(path: *const c_char, mode: *const c_char, stream: Stream) -> Stream;
        fn fdopen(fd: c_int, mode: *const c_char) -> Stream;
        fn fclose(stream: Stream) -> c_int;
        fn fflush(stream: Stream) -> c_int;
        fn fileno(stream: Stream) -> c_int;
        fn __fpurge(stream: Stream) -> c_int;
    }
}

/// Permissions of a new file, before the umask.
const MODE: libc::mode_t = 0o666;

/// # Safety
/// Null or a C string.
unsafe fn parse(mode: *const c_char) -> Option<Mode> {
    // SAFETY: the caller says so.
    (!mode.is_null()).then(|| unsafe { CStr::from_ptr(mode) }.to_bytes()).and_then(Mode::parse)
}

/// Whether the descriptor stands for a file of the pool.
fn is_of_pool(fd: c_int) -> bool {
    table::is_ours(fd)
        && matches!(
            hook::run(|| Ok(table::get(fd).is_some_and(|f| f.backing() == Backing::Reserved))),
            Some(Ok(true))
        )
}

fn stream_on(fd: c_int, mode: Mode) -> Result<Stream> {
    let stream = stdio::new(fd, mode);
    if stream.is_null() { Err(Errno::NOMEM) } else { Ok(stream) }
}

fn failed(errno: c_int) -> Stream {
    host::set_errno(errno);
    std::ptr::null_mut()
}

/// # Safety
/// As for `fopen`, with a mode that has been understood.
unsafe fn open_stream(path: *const c_char, text: *const c_char, mode: Mode) -> Stream {
    // SAFETY: the caller says so.
    unsafe {
        let stream = by_path(
            counter!("fopen"),
            &Purpose::Open(Open { flags: mode.flags, gives_back: |_| false }),
            libc::AT_FDCWD,
            path,
            |spot| {
                let fd = open::open_at(spot, mode.flags, MODE)?;
                stream_on(fd, mode).inspect_err(|_| {
                    table::take(fd);
                    host::close(fd);
                })
            },
            |_, path| recording::opening_stream(path, mode.flags, || real::fopen(path, text)),
        );
        if stream.is_null() || guard::is_inside() {
            return stream;
        }
        let fd = real::fileno(stream);
        if is_of_pool(fd) {
            stdio::after_replacing(fd);
            if mode.appends() && !mode.reads() {
                position::lseek(fd, 0, libc::SEEK_END);
            }
        }
        stream
    }
}

/// # Safety
/// As for `fdopen`.
unsafe fn stream_of(fd: c_int, text: *const c_char) -> Stream {
    // SAFETY: the caller says so.
    let Some(mode) = (unsafe { parse(text) }) else { return failed(libc::EINVAL) };
    let result = hook::run(|| {
        let file = table::get(fd).ok_or(Errno::BADF)?;
        let access = file.open_flags().bits() as c_int & libc::O_ACCMODE;
        let suits = (access != libc::O_RDONLY || !mode.writes())
            && (access != libc::O_WRONLY || !mode.reads());
        if !suits {
            return Err(Errno::INVAL);
        }
        if mode.appends() {
            file.position().set_flags(file.position().flags() | libc::O_APPEND);
        }
        if mode.flags & libc::O_CLOEXEC != 0 {
            // SAFETY: a plain call on a valid descriptor.
            unsafe { host::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize) };
        }
        stream_on(fd, mode)
    });
    match result {
        Some(result) => hook::conclude(counter!("fdopen"), result),
        // SAFETY: the caller says so.
        None => unsafe { real::fdopen(fd, text) },
    }
}

/// Whether a path leads into the pool, as far as can be told without opening it.
///
/// # Safety
/// Null or a C string.
unsafe fn leads_in(path: *const c_char) -> bool {
    let found = hook::run(|| {
        // SAFETY: the caller says so.
        Ok(paths::find(libc::AT_FDCWD, unsafe { paths::text(path)? })?.is_some())
    });
    matches!(found, Some(Ok(true) | Err(_)))
}

/// Opens another file on a stream where one of the two is ours.
///
/// # Safety
/// As for `freopen` with a path.
unsafe fn open_again(path: *const c_char, mode: Mode, stream: Stream) -> Stream {
    counter!("freopen").served();
    // SAFETY: the caller says so.
    unsafe {
        real::fflush(stream);
        let fd = real::fileno(stream);
        let is_ours = stdio::is_ours(stream);
        let is_standard = stdio::standard(fd) == Some(stream);
        let new = open::open(path, mode.flags | libc::O_CLOEXEC, MODE);
        if new < 0 {
            let errno = host::errno();
            fclose(stream);
            return failed(errno);
        }
        if !is_ours && !is_standard {
            // A stream of the C library cannot become one of ours: the program gets another, and
            // the old one, if it is used still, has nothing to read and fails to write.
            real::freopen(c"/dev/null".as_ptr(), c"re".as_ptr(), stream);
            return stream_of_new(new, mode);
        }
        let close_on_exec = mode.flags & libc::O_CLOEXEC;
        if new != fd {
            let moved = duplicate::dup3(new, fd, close_on_exec);
            let errno = host::errno();
            close::close(new);
            if moved < 0 {
                return failed(errno);
            }
        }
        let now = if is_standard { stdio::standard(fd).unwrap_or(stream) } else { stream };
        real::__fpurge(now);
        libc::clearerr(now.cast());
        if stdio::is_ours(now) {
            stdio::set_mode(now, mode);
        }
        now
    }
}

/// # Safety
/// The descriptor is open and nobody else's.
unsafe fn stream_of_new(fd: c_int, mode: Mode) -> Stream {
    let stream = stdio::new(fd, mode);
    if stream.is_null() {
        // SAFETY: the caller says so.
        unsafe { close::close(fd) };
        return failed(libc::ENOMEM);
    }
    stream
}

/// # Safety
/// As for `freopen`.
unsafe fn reopen(path: *const c_char, text: *const c_char, stream: Stream) -> Stream {
    // SAFETY: the caller says so.
    unsafe {
        let call = || real::freopen(path, text, stream);
        match parse(text) {
            Some(mode) if recording::is_on() && !path.is_null() => {
                recording::closing_stream(stream, || real::fflush(stream));
                recording::opening_stream(path, mode.flags, call)
            }
            _ => call(),
        }
    }
}

hooks! {
    /// `fopen`.
    fn [fopen fopen64](path: *const c_char, mode: *const c_char) -> Stream {
        // SAFETY: as for the C function.
        unsafe {
            match parse(mode) {
                Some(parsed) => open_stream(path, mode, parsed),
                None => real::fopen(path, mode),
            }
        }
    }

    /// `fdopen`.
    fn [fdopen](fd: c_int, mode: *const c_char) -> Stream {
        // SAFETY: as for the C function.
        unsafe {
            if is_of_pool(fd) { stream_of(fd, mode) } else { real::fdopen(fd, mode) }
        }
    }

    /// `freopen`.
    fn [freopen freopen64](path: *const c_char, mode: *const c_char, stream: Stream) -> Stream {
        // SAFETY: as for the C function.
        unsafe {
            let hosts = || reopen(path, mode, stream);
            if let (Some(job), Some(parsed)) = (staging::active(), parse(mode))
                && paths::is_plausible(path)
            {
                // The C library gives the stream up when it fails, so it is called once.
                let purpose =
                    Purpose::Open(Open { flags: parsed.flags, gives_back: |_: Stream| false });
                let led = paths::text(path)
                    .and_then(|text| staging::resolve(job, &purpose, libc::AT_FDCWD, text));
                return match led {
                    Ok(None) => hosts(),
                    Ok(Some(led)) => real::freopen(led.as_ptr(), mode, stream),
                    Err(errno) => {
                        real::fclose(stream);
                        failed(errno.raw_os_error())
                    }
                };
            }
            let (Some(_), Some(parsed)) = (launch::active(), parse(mode)) else { return hosts() };
            if stream.is_null() {
                return hosts();
            }
            let is_ours = stdio::is_ours(stream);
            if path.is_null() {
                // Only the mode changes, which the descriptor has to allow.
                if is_ours {
                    real::fflush(stream);
                    stdio::set_mode(stream, parsed);
                    return stream;
                }
                return hosts();
            }
            if is_ours || leads_in(path) { open_again(path, parsed, stream) } else { hosts() }
        }
    }

    /// `fclose`.
    fn [fclose](stream: Stream) -> c_int {
        stdio::forget(stream);
        // SAFETY: as for the C function.
        unsafe { recording::closing_stream(stream, || real::fclose(stream)) }
    }
}
