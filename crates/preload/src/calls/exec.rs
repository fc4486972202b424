//! The `exec` family. Owns what a program does before it becomes another: positions are shared, the
//! report is written, and the environment is handed on.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use azekura_posix::{Errno, Result};

use super::hooks;
use crate::host;
use crate::launch::{self, Inherited, Launch, Program, Request};
use crate::report::{self, counter};
use crate::settings::{self, Settings};
use crate::staging::{self, Job};
use crate::{hook, paths, recording, service};

type Array = *const *const c_char;

mod real {
    use super::{Array, c_char, c_int};
    use crate::host::host;

    host! {
        fn execve(path: *const c_char, argv: Array, environment: Array) -> c_int;
        fn fexecve(fd: c_int, argv: Array, environment: Array) -> c_int;
        fn execveat(dirfd: c_int, path: *const c_char, argv: Array, environment: Array, flags: c_int) -> c_int;
    }
}

/// What is looked through if there is no `PATH`.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// Who serves this process.
#[derive(Clone, Copy)]
pub(super) enum Server {
    /// A pool.
    Pool(&'static Settings),
    /// The agent of a staging job.
    Agent(&'static Job),
}

/// Who serves this process, if starting programs is our business here.
pub(super) fn server() -> Option<Server> {
    match launch::active() {
        Some(settings) => Some(Server::Pool(settings)),
        None => staging::launch::starting().map(Server::Agent),
    }
}

/// The variables that programs started from here get.
pub(super) fn variables() -> Option<&'static [CString]> {
    server().map(|server| match server {
        Server::Pool(settings) => settings.handed_on.as_slice(),
        Server::Agent(job) => job.handed_on.as_slice(),
    })
}

/// # Safety
/// As for `execve`.
unsafe fn plan(
    server: Server,
    (dirfd, path): (c_int, &[u8]),
    argv: Array,
    environment: Array,
) -> Result<Launch> {
    let settings = match server {
        Server::Pool(settings) => settings,
        Server::Agent(job) => {
            let request = staging::launch::Request { path, dirfd, argv, environment };
            // SAFETY: the caller says so.
            return hook::caught(|| unsafe { staging::launch::plan(job, &request) });
        }
    };
    let planned = hook::run(|| {
        let inherited = Inherited::now();
        let directory = launch::own_directory();
        let request = Request { path, dirfd, argv, environment, directory, inherited };
        // SAFETY: the caller says so.
        unsafe { launch::plan(settings, &request) }
    });
    planned.unwrap_or(Err(Errno::IO))
}

/// Why an exec came back.
fn after(_failed: c_int) -> Errno {
    let errno = Errno::from_raw_os_error(host::errno());
    if settings::get().is_some() {
        hook::inside(|| {
            service::resume();
        });
    }
    errno
}

/// Becomes the program; gives the errno if that fails.
fn become_program(plan: &Launch) -> Errno {
    launch::prepare_to_become();
    hook::inside(|| {
        report::write();
    });
    // SAFETY: the plan's arrays are as the calls want them.
    unsafe {
        match &plan.program {
            Program::Path(path) => {
                after(real::execve(path.as_ptr(), plan.argv(), plan.environment()))
            }
            Program::Memory(file) => after(libc::syscall(
                libc::SYS_execveat,
                file.as_raw_fd(),
                c"".as_ptr(),
                plan.argv(),
                plan.environment(),
                libc::AT_EMPTY_PATH,
            ) as c_int),
        }
    }
}

/// # Safety
/// As for `execveat` without flags.
unsafe fn execute_at(dirfd: c_int, path: *const c_char, argv: Array, environment: Array) -> Errno {
    let counter = counter!("exec");
    let Some(server) = server() else {
        // SAFETY: the caller says so.
        let become_it = |environment| unsafe {
            if dirfd == libc::AT_FDCWD {
                real::execve(path, argv, environment)
            } else {
                real::execveat(dirfd, path, argv, environment, 0)
            }
        };
        // SAFETY: as above.
        return after(unsafe {
            recording::starting((dirfd, path), environment, true, become_it, |_| true)
        });
    };
    counter.served();
    // SAFETY: the caller says so.
    let planned = unsafe {
        paths::text(path).and_then(|path| plan(server, (dirfd, path), argv, environment))
    };
    match planned {
        Ok(plan) => become_program(&plan),
        Err(errno) => errno,
    }
}

fn fail(errno: Errno) -> c_int {
    host::set_errno(errno.raw_os_error());
    -1
}

/// The longest path that is tried, with its zero byte: a directory and a name, as in the C library.
const TRIED_BYTES_MAX: usize = libc::PATH_MAX as usize + 256;

/// `PATH`, or what the C library takes for it.
fn directories<'a>() -> &'a [u8] {
    // SAFETY: the name is a C string; a value stays until the program changes it, which it may not do while
    // it looks for a program.
    unsafe {
        let value = libc::getenv(c"PATH".as_ptr());
        if value.is_null() { DEFAULT_PATH } else { CStr::from_ptr(value).to_bytes() }
    }
}

/// Tries the program under each directory of `PATH`, or as it is if it has a slash, in the order and
/// with the errors of the C library. Takes no memory: the child of a `vfork` that becomes the program would
/// leave it to its parent for good.
pub(super) fn search(name: &CStr, mut attempt: impl FnMut(&CStr) -> Errno) -> Errno {
    let bytes = name.to_bytes();
    if bytes.is_empty() {
        return Errno::NOENT;
    }
    if bytes.contains(&b'/') {
        return attempt(name);
    }
    let mut room = [0_u8; TRIED_BYTES_MAX];
    let mut denied = false;
    let mut last = Errno::NOENT;
    for directory in directories().split(|byte| *byte == b':') {
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let mut rest = &mut room[..];
        let parts = [directory, slash, name.to_bytes_with_nul()];
        if parts.iter().any(|part| rest.write_all(part).is_err()) {
            continue;
        }
        let Ok(path) = CStr::from_bytes_until_nul(&room) else { continue };
        last = attempt(path);
        match last {
            Errno::ACCESS => denied = true,
            Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => {}
            other => return other,
        }
    }
    if denied { Errno::ACCESS } else { last }
}

/// The arguments with which a shell runs a file that the kernel does not know.
///
/// # Safety
/// As for `execve`.
pub(super) unsafe fn shell_arguments(path: &CStr, argv: Array) -> Vec<*const c_char> {
    let mut words = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
    // SAFETY: the caller says so.
    words.extend(unsafe { launch::array(argv) }.into_iter().skip(1).map(CStr::as_ptr));
    words.push(std::ptr::null());
    words
}

/// # Safety
/// As for `execvpe`.
unsafe fn execute_found(name: *const c_char, argv: Array, environment: Array) -> c_int {
    if name.is_null() {
        return fail(Errno::FAULT);
    }
    // SAFETY: not null, so a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let errno = search(name, |path| {
        // SAFETY: as for the C function.
        unsafe {
            let errno = execute_at(libc::AT_FDCWD, path.as_ptr(), argv, environment);
            if errno != Errno::NOEXEC {
                return errno;
            }
            let words = shell_arguments(path, argv);
            execute_at(libc::AT_FDCWD, c"/bin/sh".as_ptr(), words.as_ptr(), environment)
        }
    });
    fail(errno)
}

/// # Safety
/// As for `fexecve`.
unsafe fn execute_open(fd: c_int, argv: Array, environment: Array) -> Errno {
    let Some(server) = server() else {
        // SAFETY: the caller says so.
        return after(unsafe {
            let nothing = (fd, std::ptr::null());
            let become_it = |environment| real::fexecve(fd, argv, environment);
            recording::starting(nothing, environment, true, become_it, |_| true)
        });
    };
    counter!("fexecve").served();
    let shown = format!("/dev/fd/{fd}");
    // SAFETY: the caller says so.
    let planned = unsafe { plan(server, (libc::AT_FDCWD, shown.as_bytes()), argv, environment) };
    match planned {
        Ok(plan) => match &plan.program {
            // Started by its descriptor, as was asked: the path stands for nothing else.
            Program::Path(path) if path.to_bytes() == shown.as_bytes() => {
                launch::prepare_to_become();
                hook::inside(|| {
                    report::write();
                });
                // SAFETY: the plan's arrays are as the call wants them.
                after(unsafe { real::fexecve(fd, plan.argv(), plan.environment()) })
            }
            _ => become_program(&plan),
        },
        Err(errno) => errno,
    }
}

/// The environment of this process.
pub(super) fn own_environment() -> Array {
    unsafe extern "C" {
        static environ: Array;
    }
    // SAFETY: the C library's variable; it is read once.
    unsafe { (&raw const environ).read() }
}

hooks! {
    /// `execve`.
    fn [execve](path: *const c_char, argv: Array, environment: Array) -> c_int {
        // SAFETY: as for the C function.
        fail(unsafe { execute_at(libc::AT_FDCWD, path, argv, environment) })
    }

    /// `execv`.
    fn [execv](path: *const c_char, argv: Array) -> c_int {
        // SAFETY: as for the C function.
        fail(unsafe { execute_at(libc::AT_FDCWD, path, argv, own_environment()) })
    }

    /// `execvp`.
    fn [execvp](name: *const c_char, argv: Array) -> c_int {
        // SAFETY: as for the C function.
        unsafe { execute_found(name, argv, own_environment()) }
    }

    /// `execvpe`.
    fn [execvpe](name: *const c_char, argv: Array, environment: Array) -> c_int {
        // SAFETY: as for the C function.
        unsafe { execute_found(name, argv, environment) }
    }

    /// `fexecve`.
    fn [fexecve](fd: c_int, argv: Array, environment: Array) -> c_int {
        // SAFETY: as for the C function.
        fail(unsafe { execute_open(fd, argv, environment) })
    }

    /// `execveat`.
    fn [execveat](
        dirfd: c_int, path: *const c_char, argv: Array, environment: Array, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            if paths::means_descriptor(path, flags) {
                return fail(execute_open(dirfd, argv, environment));
            }
            if flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
                return real::execveat(dirfd, path, argv, environment, flags);
            }
            fail(execute_at(dirfd, path, argv, environment))
        }
    }
}

/// What the variadic forms come to: `execl`, `execle` and, with a search, `execlp`. They are written
/// in C, which alone can read such arguments.
///
/// # Safety
/// As for `execve`; a null environment stands for the process's own.
#[unsafe(no_mangle)]
unsafe extern "C" fn azekura_execute_list(
    path: *const c_char,
    argv: Array,
    environment: Array,
    searches: c_int,
) -> c_int {
    let environment = if environment.is_null() { own_environment() } else { environment };
    // SAFETY: the caller says so.
    unsafe {
        if searches != 0 {
            execute_found(path, argv, environment)
        } else {
            fail(execute_at(libc::AT_FDCWD, path, argv, environment))
        }
    }
}
