//! Starting programs. Owns what has to be started in place of a program so that it finds the
//! container: one that lies in the pool becomes a file in memory, a script its interpreter, and a
//! static one, which this library cannot serve, is handed over to a mount.

pub(crate) mod environment;
mod handover;
pub(crate) mod image;

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

use azekura_posix::{Access, Errno, FileKind, LEFT, OFlags, OpenOptions, Result, take_way_out};
use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, SealFlags};

pub(crate) use environment::Environment;
pub(crate) use handover::Inherited;
use image::Image;

use crate::descriptors::inherit;
use crate::paths::{self, Spot, working_directory};
use crate::settings::{self, Intercept, Settings};
use crate::{gate, report, service};

/// Interpreters of interpreters, and ways from one side to the other.
const STEPS_MAX: u32 = 40;
/// Scripts that are interpreters of scripts, as in Linux.
const SCRIPTS_MAX: u32 = 5;
const UNSERVED: &str = "a static program was started, which this library cannot serve: \
                        AZEKURA_BIN names no program that could";
const COPY_BYTES: usize = 1 << 20;

/// A program file.
pub(crate) enum Program {
    /// By path.
    Path(CString),
    /// A copy of a file of the pool.
    Memory(OwnedFd),
}

/// What is to be started.
pub(crate) struct Plan {
    /// The file.
    pub(crate) program: Program,
    argv: Vec<CString>,
    pointers: Vec<*const c_char>,
    environment: Environment,
}

impl Plan {
    fn new(program: Program, argv: Vec<CString>, environment: Environment) -> Self {
        let mut pointers: Vec<_> = argv.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self { program, argv, pointers, environment }
    }

    /// The arguments as `execve` takes them.
    pub(crate) fn argv(&self) -> *const *const c_char {
        debug_assert_eq!(self.argv.len() + 1, self.pointers.len());
        self.pointers.as_ptr()
    }

    /// The environment as `execve` takes it.
    pub(crate) fn environment(&self) -> *const *const c_char {
        self.environment.as_ptr()
    }
}

/// What was asked to be started.
pub(crate) struct Request<'a> {
    /// Path of the program.
    pub(crate) path: &'a [u8],
    /// Descriptor that a relative path counts from, or `AT_FDCWD`.
    pub(crate) dirfd: c_int,
    /// Its arguments.
    pub(crate) argv: *const *const c_char,
    /// Its environment.
    pub(crate) environment: *const *const c_char,
    /// The working directory that it starts in, below the container's root; `None` for the host's.
    pub(crate) directory: Option<Vec<u8>>,
    /// The descriptors that it starts with.
    pub(crate) inherited: Inherited,
}

/// The strings of a C array.
///
/// # Safety
/// Null, or an array of C strings that ends with a null pointer and outlives the result.
pub(crate) unsafe fn array<'a>(start: *const *const c_char) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    if start.is_null() {
        return all;
    }
    let mut next = start;
    // SAFETY: the caller says that it ends with a null pointer.
    while let Some(text) = unsafe { next.read().as_ref() } {
        // SAFETY: as above.
        all.push(unsafe { CStr::from_ptr(text) });
        // SAFETY: not the end yet.
        next = unsafe { next.add(1) };
    }
    all
}

/// The settings, if starting programs is our business here.
pub(crate) fn active() -> Option<&'static Settings> {
    if gate::is_inside() || is_handing_over() {
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
        let (Ok(own), Ok(other)) =
            (rustix::fs::stat(c"/proc/self/exe"), rustix::fs::stat(binary.as_c_str()))
        else {
            return false;
        };
        (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)
    })
}

/// The working directory of this process, as a request has it.
pub(crate) fn own_directory() -> Option<Vec<u8>> {
    working_directory::get().map(|at| at.path.clone())
}

fn prepare_with(drain: fn()) {
    gate::close_for_fork();
    drain();
    inherit::share_all();
    gate::open_after_fork();
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

/// Where a program file lies.
enum Place {
    Host(CString),
    Pool(Box<Spot>),
}

fn c_string(bytes: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

fn locate(dirfd: c_int, path: &[u8]) -> Result<Place> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    Ok(match paths::find(dirfd, path)? {
        Some(spot) => Place::Pool(Box::new(spot)),
        None if dirfd == libc::AT_FDCWD || path[0] == b'/' => Place::Host(c_string(path)?),
        None => Place::Host(c_string([format!("/dev/fd/{dirfd}/").as_bytes(), path].concat())?),
    })
}

/// What a program of the host is; `Unknown` where the kernel has to say.
fn look_at_host(path: &CStr) -> Result<Image> {
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
fn looks_beside_itself(settings: &Settings, needs: &image::Needs) -> bool {
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
pub(crate) unsafe fn plan(settings: &Settings, request: &Request<'_>) -> Result<Plan> {
    // SAFETY: the caller says so.
    let argv = unsafe { array(request.argv) };
    let mut argv: Vec<CString> = argv.into_iter().map(CStr::to_owned).collect();
    // SAFETY: the caller says so.
    let environment = unsafe {
        environment::handed_on(settings, request.environment, request.directory.as_deref())
    };
    if settings.intercept == Intercept::Data {
        let Place::Host(path) = locate(request.dirfd, request.path)? else {
            return Err(Errno::NOENT);
        };
        return Ok(Plan::new(Program::Path(path), argv, environment));
    }
    let mut path = Cow::Borrowed(request.path);
    let mut dirfd = request.dirfd;
    let mut scripts = 0;
    for _ in 0..STEPS_MAX {
        let place = match locate(dirfd, &path) {
            Err(LEFT) => None,
            other => Some(other?),
        };
        let (image, file) = match &place {
            None => (Err(LEFT), None),
            Some(Place::Host(at)) => (look_at_host(at), None),
            Some(Place::Pool(spot)) => match open_in_pool(spot) {
                Ok(file) => {
                    (image::kind(&|at, into: &mut [u8]| file.read_at(into, at)), Some(file))
                }
                Err(errno) => (Err(errno), None),
            },
        };
        let image = match image {
            Err(LEFT) => {
                path = Cow::Owned(take_way_out().ok_or(Errno::IO)?);
                dirfd = libc::AT_FDCWD;
                continue;
            }
            other => other?,
        };
        let shown = match &place {
            Some(Place::Pool(_)) if dirfd == libc::AT_FDCWD && path == request.path => {
                path.to_vec()
            }
            Some(Place::Pool(spot)) => [settings.prefix.as_slice(), &spot.absolute()].concat(),
            Some(Place::Host(at)) => at.to_bytes().to_vec(),
            None => return Err(Errno::IO),
        };
        match (image, file) {
            (Image::Script { interpreter, argument }, _) => {
                scripts += 1;
                if scripts > SCRIPTS_MAX {
                    return Err(Errno::LOOP);
                }
                let rest = argv.into_iter().skip(1);
                argv = vec![c_string(interpreter.clone())?];
                if let Some(argument) = argument {
                    argv.push(c_string(argument)?);
                }
                argv.push(c_string(shown)?);
                argv.extend(rest);
                (path, dirfd) = (Cow::Owned(interpreter), libc::AT_FDCWD);
            }
            (Image::Static, _) if settings.binary.is_some() => {
                // SAFETY: the caller says so.
                return unsafe { handover::plan(settings, request, &shown, &argv) };
            }
            (image, None) => {
                if image == Image::Static {
                    report::trouble(UNSERVED);
                }
                return Ok(Plan::new(Program::Path(c_string(shown)?), argv, environment));
            }
            (image @ (Image::Dynamic | Image::Static), Some(file)) => {
                if image == Image::Static {
                    report::trouble(UNSERVED);
                }
                let needs = image::needs(&|at, into: &mut [u8]| file.read_at(into, at))?;
                if settings.binary.is_some() && looks_beside_itself(settings, &needs) {
                    // SAFETY: the caller says so.
                    return unsafe { handover::plan(settings, request, &shown, &argv) };
                }
                let memory = copy_to_memory(&file, &shown)?;
                return Ok(Plan::new(Program::Memory(memory), argv, environment));
            }
            (Image::Unknown, Some(_)) => return Err(Errno::NOEXEC),
        }
    }
    Err(Errno::LOOP)
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
