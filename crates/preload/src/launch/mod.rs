//! Starting programs. Owns what has to be started in place of a program so that it finds the
//! container: one that lies in the pool becomes a file in memory, a script its interpreter, and a
//! static one, which this library cannot serve, is handed over to a mount. What a staging job starts is
//! planned by [`crate::staging::launch`], with what is here of use to both.

mod c_strings;
pub(crate) mod environment;
mod handover;
pub(crate) mod image;
mod inherited;
mod request;

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

use azekura_executable::{Needs, Script};
use azekura_posix::{Access, Errno, FileKind, LEFT, OFlags, OpenOptions, Result};
use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, SealFlags};

pub(crate) use c_strings::array;
pub(crate) use inherited::Inherited;
pub(crate) use request::{Launch, Program, Request};

use c_strings::c_string;
use image::Image;

use crate::descriptors::inherit;
use crate::paths::{self, Spot, working_directory};
use crate::scope::RECORDS_ONLY;
use crate::settings::{self, Intercept, Settings};
use crate::{guard, report, service};

/// Interpreters of interpreters, and ways from the pool to the host and back.
const STEPS_MAX: u32 = 40;
/// Scripts that are interpreters of scripts, as in Linux.
const SCRIPTS_MAX: u32 = 5;
const UNSERVED: &str = "a static program was started, which this library cannot serve: \
                        AZEKURA_BIN names no program that could";
const COPY_BYTES: usize = 1 << 20;

/// The settings, if starting programs is our business here.
pub(crate) fn active() -> Option<&'static Settings> {
    if RECORDS_ONLY || guard::is_inside() || is_handing_over() {
        return None;
    }
    settings::get()
}

/// Whether this process is the program that hands programs over: it decides itself what the programs
/// it starts get.
fn is_handing_over() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Some(binary) = settings::get().and_then(|settings| settings.binary.as_ref()) else {
            return false;
        };
        is_same_file(c"/proc/self/exe", binary)
    })
}

/// Whether two paths of the host lead to one file.
pub(crate) fn is_same_file(one: &CStr, other: &CStr) -> bool {
    match (rustix::fs::stat(one), rustix::fs::stat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

/// The working directory of this process, as a request has it.
pub(crate) fn own_directory() -> Option<Vec<u8>> {
    working_directory::get().map(|at| at.path.clone())
}

/// What a program that is started from here need not ask for again.
pub(crate) fn known() -> Option<Vec<u8>> {
    service::known(working_directory::get().and_then(|at| at.known()))
}

fn prepare_with(drain: fn()) {
    guard::close_for_fork();
    drain();
    inherit::share_all();
    guard::open_after_fork();
}

/// Makes everything ready for another program beside this one: what was written arrives, positions
/// become shared.
pub(crate) fn prepare() {
    prepare_with(service::drain);
}

/// The same for a program in place of this one; [`service::resume`] if it does not come to that.
pub(crate) fn prepare_to_become() {
    prepare_with(service::drain_for_good);
}

/// Where a program file lies; one of the pool is opened.
enum Location {
    Host(CString),
    Pool(Box<Spot>, Box<azekura_posix::File>),
}

/// A program file, and what it is.
struct Found {
    location: Location,
    image: Image,
}

/// The path that the kernel is to find a file of the host by.
pub(crate) fn host_path(dirfd: c_int, path: &[u8]) -> Result<CString> {
    if dirfd == libc::AT_FDCWD || path.starts_with(b"/") {
        return c_string(path);
    }
    c_string([format!("/dev/fd/{dirfd}/").as_bytes(), path].concat())
}

fn find(dirfd: c_int, path: &[u8]) -> Result<Option<Spot>> {
    if path.is_empty() { Err(Errno::NOENT) } else { paths::find(dirfd, path) }
}

fn look_at(dirfd: c_int, path: &[u8]) -> Result<Found> {
    let Some(spot) = find(dirfd, path)? else {
        let path = host_path(dirfd, path)?;
        return Ok(Found { image: image_on_host(&path)?, location: Location::Host(path) });
    };
    let file = open_in_pool(&spot)?;
    let image = image::kind(&|at, into: &mut [u8]| file.read_at(into, at))?;
    Ok(Found { image, location: Location::Pool(Box::new(spot), Box::new(file)) })
}

/// What a program of the host is; `Unknown` where the kernel has to say.
pub(crate) fn image_on_host(path: &CStr) -> Result<Image> {
    rustix::fs::accessat(CWD, path, rustix::fs::Access::EXEC_OK, AtFlags::EACCESS)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(Image::Unknown) };
    if !rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
        return Ok(Image::Unknown);
    }
    image::kind(&|at, into: &mut [u8]| rustix::io::pread(&file, into, at))
}

/// Opens a program in the pool, as the kernel would for an exec.
fn open_in_pool(spot: &Spot) -> Result<azekura_posix::File> {
    let attr = spot.ns.resolve(&spot.path, true)?;
    if attr.kind != FileKind::Regular || attr.mode & 0o111 == 0 {
        return Err(Errno::ACCESS);
    }
    spot.ns.access(&spot.path, Access { execute: true, ..Access::default() })?;
    spot.ns.open(&spot.path, &OpenOptions::new(OFlags::RDONLY, 0))
}

/// Copies a file of the pool to one in memory that cannot be changed any more.
pub(crate) fn copy_to_memory(file: &azekura_posix::File, name: &[u8]) -> Result<OwnedFd> {
    let end = name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let shown = &name[end..][..(name.len() - end).min(200)];
    let memory = rustix::fs::memfd_create(
        c_string(shown)?.as_c_str(),
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let got = file.read_at(&mut buffer, offset)?;
        if got == 0 {
            break;
        }
        let mut done = 0;
        while done < got {
            done += rustix::io::write(&memory, &buffer[done..got])?;
        }
        offset += got as u64;
    }
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    Ok(memory)
}

/// Whether a program of the pool looks for libraries beside itself, which its loader would not find
/// from a file in memory.
fn looks_beside_itself(settings: &Settings, needs: &Needs) -> bool {
    needs.directories.iter().any(|directory| {
        directory.starts_with(b"$ORIGIN")
            || directory.starts_with(b"${ORIGIN}")
            || azekura_posix::below_prefix(&settings.prefix, directory).is_some()
    })
}

/// Plans the start of a program.
///
/// # Errors
/// What `execve` would fail with.
///
/// # Safety
/// The pointers of the request are as for `execve`, and outlive the plan.
pub(crate) unsafe fn plan(settings: &Settings, request: &Request<'_>) -> Result<Launch> {
    // SAFETY: the caller says so.
    let argv = unsafe { array(request.argv) };
    let mut argv: Vec<CString> = argv.into_iter().map(CStr::to_owned).collect();
    // SAFETY: the caller says so.
    let environment = unsafe {
        environment::handed_on(
            &settings.handed_on,
            request.environment,
            request.directory.as_deref(),
            known().as_deref(),
        )
    };
    if settings.intercept == Intercept::Data {
        // No path leads to us then, so each is the host's.
        if find(request.dirfd, request.path)?.is_some() {
            return Err(Errno::NOENT);
        }
        let path = host_path(request.dirfd, request.path)?;
        return Ok(Launch::new(Program::Path(path), argv, environment));
    }
    let mut path = Cow::Borrowed(request.path);
    let mut dirfd = request.dirfd;
    let mut scripts = 0;
    for _ in 0..STEPS_MAX {
        let found = match look_at(dirfd, &path) {
            Err(LEFT) => {
                let spot = find(dirfd, &path)?.ok_or(Errno::IO)?;
                path = Cow::Owned(spot.ns.way_out(&spot.path).ok_or(Errno::IO)?);
                dirfd = libc::AT_FDCWD;
                continue;
            }
            other => other?,
        };
        let shown = match &found.location {
            Location::Pool(..) if dirfd == libc::AT_FDCWD && path == request.path => path.to_vec(),
            Location::Pool(spot, _) => [settings.prefix.as_slice(), &spot.absolute()].concat(),
            Location::Host(at) => at.to_bytes().to_vec(),
        };
        let needs_mount = match (&found.image, &found.location) {
            (Image::Script(script), _) => {
                scripts += 1;
                if scripts > SCRIPTS_MAX {
                    return Err(Errno::LOOP);
                }
                argv = interpreted(script, &shown, argv)?;
                (path, dirfd) = (Cow::Owned(script.interpreter.clone()), libc::AT_FDCWD);
                continue;
            }
            (Image::Static, _) => true,
            (Image::Dynamic, Location::Pool(_, file)) => {
                let needs = image::needs(&|at, into: &mut [u8]| file.read_at(into, at))?;
                looks_beside_itself(settings, &needs)
            }
            (Image::Dynamic | Image::Unknown, Location::Host(_)) => false,
            (Image::Unknown, Location::Pool(..)) => return Err(Errno::NOEXEC),
        };
        if needs_mount && settings.binary.is_some() {
            // SAFETY: the caller says so.
            return unsafe { handover::plan(settings, request, &shown, &argv) };
        }
        if found.image == Image::Static {
            report::trouble(UNSERVED);
        }
        let program = match &found.location {
            Location::Host(_) => Program::Path(c_string(shown)?),
            Location::Pool(_, file) => Program::Memory(copy_to_memory(file, &shown)?),
        };
        return Ok(Launch::new(program, argv, environment));
    }
    Err(Errno::LOOP)
}

/// The arguments of a script's interpreter.
pub(crate) fn interpreted(
    script: &Script,
    shown: &[u8],
    argv: Vec<CString>,
) -> Result<Vec<CString>> {
    let words = [Some(script.interpreter.as_slice()), script.argument.as_deref(), Some(shown)];
    let words = words.into_iter().flatten().map(c_string);
    words.chain(argv.into_iter().skip(1).map(Ok)).collect()
}

/// Path under which another process of this user finds a program.
pub(crate) fn path_for_child(program: &Program) -> Result<CString> {
    match program {
        Program::Path(path) => Ok(path.clone()),
        Program::Memory(file) => {
            let own = rustix::process::getpid().as_raw_nonzero();
            c_string(format!("/proc/{own}/fd/{}", file.as_raw_fd()))
        }
    }
}
