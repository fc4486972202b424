//! Starting programs and loading libraries that lie below a map. The kernel and the loader open files past
//! every hook, so all that they will open comes first. Owns what is started in place of a program, and the
//! search path that the loader of the program gets: it names directories of the tree where the program's
//! own names those of a map, and is put right again before the program begins.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use azekura_executable::Needs;
use azekura_posix::{Errno, OFlags, Result};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode};

use super::call::{Purpose, resolve};
use super::job::{Job, active};
use crate::launch::environment::Environment;
use crate::launch::image::{self, Image};
use crate::launch::{self, Launch, Program};
use crate::settings;

/// Scripts that are interpreters of scripts, as in Linux.
const SCRIPTS_MAX: u32 = 5;
/// Libraries that are looked for to start one program, or to load one library.
const LIBRARIES_MAX: usize = 1024;

const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH=";
/// What the search path was: the text, after a mark that there was one.
const LIBRARY_PATH_BEFORE: &[u8] = b"AZEKURA_STAGE_LIBRARY_PATH=";
const WAS_SET: u8 = b'=';

/// What is asked to be started.
pub(crate) struct Request<'a> {
    /// Path of the program.
    pub(crate) path: &'a [u8],
    /// Descriptor that a relative path counts from, or `AT_FDCWD`.
    pub(crate) dirfd: c_int,
    /// Its arguments.
    pub(crate) argv: *const *const c_char,
    /// Its environment.
    pub(crate) environment: *const *const c_char,
}

/// The path at which the kernel finds a file that is to be read, and whether that is in a tree.
fn bring(job: &'static Job, dirfd: c_int, path: &[u8]) -> Result<(CString, bool)> {
    match resolve::<c_int>(job, &Purpose::Read, dirfd, path)? {
        Some(path) => Ok((path, true)),
        None => Ok((launch::host_path(dirfd, path)?, false)),
    }
}

fn opened(path: &CStr) -> Result<rustix::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Plans the start of a program.
///
/// # Errors
/// What `execve` would fail with.
///
/// # Safety
/// The pointers of the request are as for `execve`, and outlive the plan.
pub(crate) unsafe fn plan(job: &'static Job, request: &Request<'_>) -> Result<Launch> {
    // SAFETY: the caller says so.
    let argv = unsafe { launch::array(request.argv) };
    let mut argv: Vec<CString> = argv.into_iter().map(CStr::to_owned).collect();
    // SAFETY: the caller says so.
    let mut environment =
        unsafe { launch::environment::handed_on(&job.handed_on, request.environment, None) };
    let mut asked = request.path.to_vec();
    let mut dirfd = request.dirfd;
    if asked.is_empty() {
        return Err(Errno::NOENT);
    }
    for _ in 0..=SCRIPTS_MAX {
        let (program, is_staged) = bring(job, dirfd, &asked)?;
        let launched =
            |program, argv, environment| Ok(Launch::new(Program::Path(program), argv, environment));
        match launch::image_on_host(&program)? {
            Image::Script(script) => {
                let found = bring(job, libc::AT_FDCWD, &script.interpreter);
                if !is_staged && !found.is_ok_and(|(_, is_staged)| is_staged) {
                    // All of it is the host's, so the kernel does the same and tells the script its name.
                    return launched(program, argv, environment);
                }
                let shown = if dirfd == libc::AT_FDCWD || asked.starts_with(b"/") {
                    asked
                } else {
                    launch::host_path(dirfd, &asked)?.into_bytes()
                };
                argv = launch::interpreted(&script, &shown, argv)?;
                (asked, dirfd) = (script.interpreter, libc::AT_FDCWD);
            }
            Image::Static => return Ok(hand_over(job, program, argv, environment)),
            Image::Dynamic => {
                let mut search = Search::new(job, environment.value(LIBRARY_PATH));
                search.all_that(&program)?;
                if let Some(loader) = loader_in_tree(job, &program)? {
                    // The kernel would look for it under its own name.
                    let name = loader.clone();
                    let argv = [name, program].into_iter().chain(argv.into_iter().skip(1));
                    return Ok(hand_over(job, loader, argv.collect(), environment));
                }
                if search.has_paths && job.binary.is_some() {
                    return Ok(hand_over(job, program, argv, environment));
                }
                search.tell(&mut environment);
                return launched(program, argv, environment);
            }
            Image::Unknown => return launched(program, argv, environment),
        }
    }
    Err(Errno::LOOP)
}

/// The loader of a program, if that lies below a map.
fn loader_in_tree(job: &'static Job, program: &CStr) -> Result<Option<CString>> {
    let Ok(open) = opened(program) else { return Ok(None) };
    let loader = image::loader(&|at, into: &mut [u8]| rustix::io::pread(&open, into, at))?;
    if loader.is_empty() {
        return Ok(None);
    }
    // If there is none the kernel says so.
    Ok(bring(job, libc::AT_FDCWD, &loader).ok().filter(|found| found.1).map(|found| found.0))
}

/// A static program asks no hook, and a loader none when it opens what is named by its path: one that traps
/// their system calls starts them, if there is one.
fn hand_over(job: &Job, program: CString, argv: Vec<CString>, environment: Environment) -> Launch {
    let Some(binary) = job.binary.as_ref().filter(|binary| !launch::is_same_file(binary, &program))
    else {
        return Launch::new(Program::Path(program), argv, environment);
    };
    let front = [c"azekura", c"stage", c"inside", c"--via", c"notify", c"--"].map(CStr::to_owned);
    let words = front.into_iter().chain([program]).chain(argv.into_iter().skip(1)).collect();
    Launch::new(Program::Path(binary.clone()), words, environment)
}

/// The job, if starting programs is our business in this process: not in the one that starts static
/// programs, which decides itself what they get.
pub(crate) fn starting() -> Option<&'static Job> {
    static IS_STARTER: OnceLock<bool> = OnceLock::new();
    let job = active()?;
    let is_starter = *IS_STARTER.get_or_init(|| {
        job.binary.as_ref().is_some_and(|binary| launch::is_same_file(c"/proc/self/exe", binary))
    });
    (!is_starter).then_some(job)
}

/// A search for the libraries that a program needs.
struct Search {
    job: &'static Job,
    /// The directories of the search path, as the program has them.
    path: Vec<Vec<u8>>,
    is_set: bool,
    /// Directories of a tree that the loader would not look in.
    further: Vec<Vec<u8>>,
    /// Names of libraries that have been looked for.
    seen: HashSet<Vec<u8>>,
    /// Libraries below maps are named by their paths, which no search path changes.
    has_paths: bool,
    /// The libraries below maps, those first that others need.
    order: Vec<CString>,
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

impl Search {
    fn new(job: &'static Job, path: Option<&[u8]>) -> Self {
        let dirs = path.unwrap_or_default().split(|byte| matches!(byte, b':' | b';'));
        Self {
            job,
            path: dirs.filter(|dir| !dir.is_empty()).map(<[u8]>::to_vec).collect(),
            is_set: path.is_some(),
            further: Vec::new(),
            seen: HashSet::new(),
            has_paths: false,
            order: Vec::new(),
        }
    }

    /// Looks for all libraries that a file needs, and that these need.
    fn all_that(&mut self, file: &CStr) -> Result<()> {
        let Ok(open) = opened(file) else { return Ok(()) };
        let needs = image::needs(&|at, into: &mut [u8]| rustix::io::pread(&open, into, at))?;
        drop(open);
        let origin = parent(file.to_bytes()).to_vec();
        for name in &needs.libraries {
            if self.seen.len() < LIBRARIES_MAX && self.seen.insert(name.clone()) {
                self.one(name, &needs, &origin)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, name: &[u8], needs: &Needs, origin: &[u8]) -> Result<()> {
        if name.contains(&b'/') {
            let found = self.at(name)?;
            self.has_paths |= found.is_some_and(|(_, is_staged)| is_staged);
            return Ok(());
        }
        let mut candidates: Vec<(Vec<u8>, bool)> = needs
            .directories
            .iter()
            .filter_map(|dir| image::beside(dir, origin, name))
            .map(|path| (path, false))
            .collect();
        candidates.extend(self.path.iter().map(|dir| ([dir, &b"/"[..], name].concat(), true)));
        for (candidate, is_searched) in candidates {
            let Some((found, is_staged)) = self.at(&candidate)? else { continue };
            let dir = parent(found.to_bytes()).to_vec();
            if is_staged && !is_searched && !self.further.contains(&dir) {
                self.further.push(dir);
            }
            break;
        }
        Ok(())
    }

    /// The library at a path, if there is one, after those that it needs.
    fn at(&mut self, path: &[u8]) -> Result<Option<(CString, bool)>> {
        let Ok((found, is_staged)) = bring(self.job, libc::AT_FDCWD, path) else { return Ok(None) };
        if rustix::fs::accessat(CWD, &found, rustix::fs::Access::READ_OK, AtFlags::empty()).is_err()
        {
            return Ok(None);
        }
        self.all_that(&found)?;
        if is_staged {
            self.order.push(found.clone());
        }
        Ok(Some((found, is_staged)))
    }

    /// The directory of a tree that stands for a directory of the search path; none for one of the host's.
    fn in_tree(&self, dir: &[u8]) -> Option<Vec<u8>> {
        let path = self.job.absolute(libc::AT_FDCWD, dir)?;
        let (map, cut) = self.job.tree_of(&path)?;
        Some([&map, &path[cut..]].concat())
    }

    /// Gives the loader of the program the directories that it has to look in.
    fn tell(&self, environment: &mut Environment) {
        let told: Vec<Option<Vec<u8>>> = self.path.iter().map(|dir| self.in_tree(dir)).collect();
        if self.further.is_empty() && told.iter().all(Option::is_none) {
            return;
        }
        let dirs =
            self.path.iter().zip(told).map(|(dir, told)| told.unwrap_or_else(|| dir.clone()));
        let dirs: Vec<Vec<u8>> = dirs.chain(self.further.iter().cloned()).collect();
        let before = self.path.join(&b':');
        let mark: &[u8] = if self.is_set { &[WAS_SET] } else { b"" };
        environment.set(LIBRARY_PATH, &dirs.join(&b':'));
        environment.set(LIBRARY_PATH_BEFORE, &[mark, &before].concat());
    }
}

/// Gives this program the search path back that it was to have. The loader has read the other one.
pub(crate) fn restore_library_path() {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    let name = &LIBRARY_PATH_BEFORE[..LIBRARY_PATH_BEFORE.len() - 1];
    let Ok(name) = CString::new(name) else { return };
    let Some(before) = settings::variable(&name) else { return };
    // SAFETY: the process has one thread yet.
    unsafe { libc::unsetenv(name.as_ptr()) };
    let Some(text) = before.strip_prefix(&[WAS_SET]) else {
        // SAFETY: as above.
        unsafe { libc::unsetenv(c"LD_LIBRARY_PATH".as_ptr()) };
        return;
    };
    let Ok(text) = CString::new([LIBRARY_PATH, text].concat()) else { return };
    // SAFETY: as above; the array ends with a null pointer. The text stays for the life of the process.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if CStr::from_ptr(*entry).to_bytes().starts_with(LIBRARY_PATH) {
                *entry = text.into_raw();
                return;
            }
            entry = entry.add(1);
        }
    }
}

/// Paths that the loader was given. They stay: it tells libraries apart by name.
static PATHS: Mutex<Option<HashMap<CString, &'static CStr>>> = Mutex::new(None);

fn lasting(path: CString) -> Option<&'static CStr> {
    let found = crate::hook::run(|| {
        let mut paths = PATHS.lock();
        let paths = paths.get_or_insert_default();
        if let Some(known) = paths.get(&path) {
            return Ok(*known);
        }
        let kept: &'static CStr = Box::leak(Box::new(path.clone()));
        paths.insert(path, kept);
        Ok(kept)
    });
    found.and_then(Result::ok)
}

/// The paths of a library below a map and of all that it needs from below maps, those first that others
/// need; none if the loader finds it by itself.
pub(crate) fn libraries(job: &'static Job, name: &[u8]) -> Option<Vec<&'static CStr>> {
    let path = settings::variable(c"LD_LIBRARY_PATH");
    let mut search = Search::new(job, path.as_deref());
    if name.contains(&b'/') {
        let (found, is_staged) = bring(job, libc::AT_FDCWD, name).ok()?;
        if !is_staged {
            return None;
        }
        search.all_that(&found).ok()?;
        search.order.push(found);
    } else {
        search.one(name, &Needs::default(), b"").ok()?;
        let last = search.order.last()?;
        // It may be that only something that a library of the host needs lies below a map.
        if !last.to_bytes().ends_with(name) {
            return None;
        }
    }
    search.order.into_iter().map(lasting).collect()
}
