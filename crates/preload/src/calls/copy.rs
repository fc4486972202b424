//! `sendfile` and `copy_file_range` where one side or both are files of the pool; `splice` and its
//! relatives, which are not offered for them. Between two files of the pool `posix` copies; else the
//! data go through a buffer with the hooks of reading and writing, so not within our code: the other
//! side may be a socket that has to be waited for.

use std::ffi::{c_int, c_uint, c_void};

use azekura_posix::{Errno, FileKind, OFlags, Result};
use libc::{iovec, off_t, size_t, ssize_t};

use super::{control, data, hooks, offset, position, stat};
use crate::descriptors::{Description, table};
use crate::report::counter;
use crate::{guard, hook, host, recording};

mod hosts {
    use std::ffi::{c_int, c_uint};

    use libc::{iovec, off_t, size_t, ssize_t};

    crate::host::host! {
        fn sendfile(to: c_int, from: c_int, at: *mut off_t, bytes: size_t) -> ssize_t;
        fn copy_file_range(
            from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t,
            flags: c_uint,
        ) -> ssize_t;
        fn splice(
            from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t,
            flags: c_uint,
        ) -> ssize_t;
        fn tee(from: c_int, to: c_int, bytes: size_t, flags: c_uint) -> ssize_t;
        fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    }
}

const BUFFER_BYTES: usize = 1 << 20;
/// Copied between files of the pool in one call at most, so that a signal does not wait for long.
const CALL_BYTES: usize = 64 << 20;
/// What the kernel moves at most in one call.
const KERNEL_BYTES_MAX: usize = 0x7fff_f000;

fn fail(errno: c_int) -> ssize_t {
    host::set_errno(errno);
    -1
}

fn is_either_ours(one: c_int, other: c_int) -> bool {
    !guard::is_inside() && (table::is_ours(one) || table::is_ours(other))
}

/// Where one end of a copy stands: at an offset of the caller's, or at the descriptor's position.
struct Endpoint {
    fd: c_int,
    at: *mut off_t,
    start: off_t,
}

impl Endpoint {
    /// # Safety
    /// `at` is null or points to an offset.
    unsafe fn new(fd: c_int, at: *mut off_t) -> std::result::Result<Self, c_int> {
        // SAFETY: the caller says so; a call with a number.
        let start = unsafe {
            if at.is_null() { position::lseek(fd, 0, libc::SEEK_CUR) } else { at.read() }
        };
        match start {
            0.. => Ok(Self { fd, at, start }),
            _ if at.is_null() => Err(host::errno()),
            _ => Err(libc::EINVAL),
        }
    }

    /// Moves on behind what has been copied.
    ///
    /// # Safety
    /// As for [`Endpoint::new`].
    unsafe fn advance(&self, bytes: usize) {
        let to = self.start + bytes as off_t;
        // SAFETY: the caller says so; a call with a number.
        unsafe {
            if self.at.is_null() {
                position::lseek(self.fd, to, libc::SEEK_SET);
            } else {
                self.at.write(to);
            }
        }
    }
}

/// Copies through a buffer. `write` gets a piece and how much has been written before it. An error
/// after the first bytes is left for the next call.
fn pump(from: &Endpoint, bytes: usize, mut write: impl FnMut(&[u8], usize) -> ssize_t) -> ssize_t {
    let bytes = bytes.min(KERNEL_BYTES_MAX);
    let Some(Ok(mut buffer)) = hook::run(|| Ok(vec![0_u8; bytes.min(BUFFER_BYTES)])) else {
        return fail(libc::ENOMEM);
    };
    let mut done = 0;
    let mut failed = false;
    while done < bytes {
        let part = (bytes - done).min(buffer.len());
        // SAFETY: a buffer of that size.
        let got = unsafe {
            data::pread(from.fd, buffer.as_mut_ptr().cast(), part, from.start + done as off_t)
        };
        if got <= 0 {
            failed = got < 0;
            break;
        }
        let written = write(&buffer[..got as usize], done);
        if written < 0 {
            failed = true;
            break;
        }
        done += written as usize;
        if written < got {
            break;
        }
    }
    hook::inside(|| {
        drop(buffer);
    });
    if failed && done == 0 { -1 } else { done as ssize_t }
}

fn file_kind(fd: c_int) -> std::result::Result<u32, c_int> {
    if table::is_ours(fd) {
        // It never changes: nobody has to be asked.
        let kind = hook::run(|| table::get(fd).map(|file| file.kind()).ok_or(Errno::BADF));
        return match kind {
            Some(Ok(kind)) => Ok(kind.mode_bits()),
            Some(Err(errno)) => Err(errno.raw_os_error()),
            None => Err(libc::EIO),
        };
    }
    // SAFETY: a structure of numbers, for which zero is a value; and a call that fills it.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        if stat::fstat(fd, &raw mut found) != 0 {
            return Err(host::errno());
        }
        Ok(found.st_mode & libc::S_IFMT)
    }
}

/// What `copy_file_range` asks of both files; the errno if it is not so.
fn check_range(from: c_int, to: c_int) -> std::result::Result<(), c_int> {
    let kinds = [file_kind(from)?, file_kind(to)?];
    if kinds.contains(&libc::S_IFDIR) {
        return Err(libc::EISDIR);
    }
    if kinds != [libc::S_IFREG; 2] {
        return Err(libc::EINVAL);
    }
    // SAFETY: calls with numbers.
    let (reads, writes) =
        unsafe { (control::fcntl(from, libc::F_GETFL, 0), control::fcntl(to, libc::F_GETFL, 0)) };
    let can_read = reads & libc::O_ACCMODE != libc::O_WRONLY;
    let can_write = writes & libc::O_ACCMODE != libc::O_RDONLY && writes & libc::O_APPEND == 0;
    if can_read && can_write { Ok(()) } else { Err(libc::EBADF) }
}

/// Between two files of the pool.
fn copy_inside(
    from: (&Description, &Endpoint),
    to: (&Description, &Endpoint),
    bytes: size_t,
) -> Result<usize> {
    let bytes = bytes.min(CALL_BYTES) as u64;
    let (from_at, to_at) = (offset(from.1.start)?, offset(to.1.start)?);
    let done = from.0.file()?.copy_range(from_at, to.0.file()?, to_at, bytes)?;
    Ok(done as usize)
}

/// # Safety
/// As for `copy_file_range`.
unsafe fn copy_range(from: &Endpoint, to: &Endpoint, bytes: size_t) -> ssize_t {
    if table::is_ours(from.fd) && table::is_ours(to.fd) {
        let copied = hook::run(|| {
            let source = table::get(from.fd).ok_or(Errno::BADF)?;
            let target = table::get(to.fd).ok_or(Errno::BADF)?;
            copy_inside((&source, from), (&target, to), bytes)
        });
        let copied = copied.unwrap_or(Err(Errno::IO)).map(|done| done as ssize_t);
        return hook::conclude(counter!("copy_file_range"), copied);
    }
    pump(from, bytes, |piece, done| {
        // SAFETY: a buffer of that size.
        unsafe {
            data::pwrite(
                to.fd,
                piece.as_ptr().cast::<c_void>(),
                piece.len(),
                to.start + done as off_t,
            )
        }
    })
}

/// What the source of a `sendfile` has to be; the errno if it is not so.
fn check_source(fd: c_int) -> std::result::Result<(), c_int> {
    let Some(Ok(result)) = hook::run(|| {
        Ok(table::get(fd).map(|file| match file.kind() {
            _ if file.open_flags() & (OFlags::ACCMODE | OFlags::PATH) == OFlags::WRONLY => {
                Err(libc::EBADF)
            }
            _ if file.open_flags().contains(OFlags::PATH) => Err(libc::EBADF),
            FileKind::Regular => Ok(()),
            _ => Err(libc::EINVAL),
        }))
    }) else {
        return Err(libc::EIO);
    };
    result.unwrap_or(Ok(()))
}

hooks! {
    /// `sendfile`.
    fn [sendfile sendfile64](
        to: c_int, from: c_int, at: *mut off_t, bytes: size_t,
    ) -> ssize_t {
        let counter = counter!("sendfile");
        // SAFETY: as for the C function.
        unsafe {
            if !is_either_ours(to, from) {
                counter.passed();
                let (source, target) = ((from, at.cast_const()), (to, std::ptr::null()));
                let call = || hosts::sendfile(to, from, at, bytes);
                return recording::copied(source, target, bytes, call);
            }
            counter.served();
            if let Err(errno) = check_source(from) {
                return fail(errno);
            }
            let source = match Endpoint::new(from, at) {
                Ok(source) => source,
                Err(libc::ESPIPE) => return fail(libc::EINVAL),
                Err(errno) => return fail(errno),
            };
            let flags = control::fcntl(to, libc::F_GETFL, 0);
            if flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
                return fail(libc::EBADF);
            }
            if flags & libc::O_APPEND != 0 {
                return fail(libc::EINVAL);
            }
            let done = pump(&source, bytes, |piece, _| {
                data::write(to, piece.as_ptr().cast(), piece.len())
            });
            if done > 0 {
                source.advance(done as usize);
            }
            done
        }
    }

    /// `copy_file_range`.
    fn [copy_file_range](
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let counter = counter!("copy_file_range");
        // SAFETY: as for the C function.
        unsafe {
            if !is_either_ours(from, to) {
                counter.passed();
                let (source, target) = ((from, from_at.cast_const()), (to, to_at.cast_const()));
                let call = || hosts::copy_file_range(from, from_at, to, to_at, bytes, flags);
                return recording::copied(source, target, bytes, call);
            }
            if flags != 0 {
                return fail(libc::EINVAL);
            }
            let overflows = |at: *mut off_t| {
                !at.is_null() && (at.read() as u64).checked_add(bytes as u64).is_none()
            };
            let ends = check_range(from, to)
                .and_then(|()| {
                    if overflows(from_at) || overflows(to_at) { Err(libc::EOVERFLOW) } else { Ok(()) }
                })
                .and_then(|()| Ok((Endpoint::new(from, from_at)?, Endpoint::new(to, to_at)?)));
            let (source, target) = match ends {
                Ok(ends) => ends,
                Err(errno) => return fail(errno),
            };
            let done = copy_range(&source, &target, bytes);
            if done > 0 {
                source.advance(done as usize);
                target.advance(done as usize);
            }
            done
        }
    }

    /// `splice`, which files of the pool do not offer.
    fn [splice](
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t,
        flags: c_uint,
    ) -> ssize_t {
        if is_either_ours(from, to) {
            counter!("splice").served();
            return fail(libc::EINVAL);
        }
        let (source, target) = ((from, from_at.cast_const()), (to, to_at.cast_const()));
        // SAFETY: as for the C function.
        let call = || unsafe { hosts::splice(from, from_at, to, to_at, bytes, flags) };
        recording::copied(source, target, bytes, call)
    }

    /// `tee`, which only pipes offer.
    fn [tee](from: c_int, to: c_int, bytes: size_t, flags: c_uint) -> ssize_t {
        if is_either_ours(from, to) {
            counter!("tee").served();
            return fail(libc::EINVAL);
        }
        // SAFETY: as for the C function.
        unsafe { hosts::tee(from, to, bytes, flags) }
    }

    /// `vmsplice`, which only pipes offer.
    fn [vmsplice](fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
        if is_either_ours(fd, fd) {
            counter!("vmsplice").served();
            return fail(libc::EBADF);
        }
        // SAFETY: as for the C function.
        unsafe { hosts::vmsplice(fd, parts, count, flags) }
    }
}
