//! Starting programs and loading libraries that lie below a map. The kernel and the loader open files past
//! every hook, so all that they will open comes first. Owns what is started in place of a program, and what the
//! loader of the program is told of libraries: it names the tree where the program's own variables name a map,
//! and is put right again before the program begins.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use azekura_executable::Needs;
use azekura_posix::{Errno, OFlags, Result};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode};

use super::call::{Purpose, resolve};
use super::job::{Job, active};
use crate::launch::environment::{Environment, is_own, is_separator};
use crate::launch::image::{self, Image};
use crate::launch::{self, Launch, Program};
use crate::settings;

/// Scripts that are interpreters of scripts, as in Linux.
const SCRIPTS_MAX: u32 = 5;
/// Libraries that are looked for to start one program, or to load one library.
const LIBRARIES_MAX: usize = 1024;

/// A variable that the loader reads.
struct Variable {
    name: &'static [u8],
    /// The name of the one that keeps what it was: the text, after a mark that there was one.
    before: &'static [u8],
}

const LIBRARY_PATH: Variable =
    Variable { name: b"LD_LIBRARY_PATH=", before: b"AZEKURA_STAGE_LIBRARY_PATH=" };
const PRELOAD: Variable = Variable { name: b"LD_PRELOAD=", before: b"AZEKURA_STAGE_PRELOAD=" };
const WAS_SET: u8 = b'=';

impl Variable {
    /// Gives the loader another value than the program is to have.
    fn tell(&self, environment: &mut Environment, told: &[u8]) {
        let before = environment.value(self.name);
        let before = before.map_or_else(Vec::new, |text| [&[WAS_SET], text].concat());
        environment.set(self.name, told);
        environment.set(self.before, &before);
    }
}

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
        unsafe { launch::environment::handed_on(&job.handed_on, request.environment, None, None) };
    let mut asked = request.path.to_vec();
    let mut dirfd = request.dirfd;
    if asked.is_empty() {
        return Err(Errno::NOENT);
    }
    let mut search = Search::new(job, environment.value(LIBRARY_PATH.name));
    search.preload(&mut environment)?;
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
                search.all_that(&program)?;
                if let Some(loader) = loader_in_tree(job, &program)? {
                    // The kernel would look for it under its own name.
                    let name = loader.clone();
                    let argv = [name, program].into_iter().chain(argv.into_iter().skip(1));
                    return Ok(hand_over(job, loader, argv.collect(), environment));
                }
                if search.has_other_names && job.binary.is_some() {
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
    path: Vec<Searched>,
    /// Directories of a tree that the loader would not look in.
    further: Vec<Vec<u8>>,
    /// Names of libraries that have been looked for.
    seen: HashSet<Vec<u8>>,
    /// Libraries below maps are asked for by names that they do not have in the tree: by their paths, or by a
    /// symlink. No search path leads the loader to these.
    has_other_names: bool,
    /// The libraries below maps, those first that others need.
    order: Vec<CString>,
}

/// A directory of the search path.
struct Searched {
    /// As the program has it.
    dir: Vec<u8>,
    /// Where the loader is to look instead.
    told: Vec<Vec<u8>>,
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

fn push_new(dirs: &mut Vec<Vec<u8>>, dir: &[u8]) {
    if !dirs.iter().any(|other| other == dir) {
        dirs.push(dir.to_vec());
    }
}

impl Searched {
    fn new(job: &'static Job, dir: &[u8]) -> Self {
        let in_tree = |path: Vec<u8>| {
            let (tree, cut) = job.tree_of(&path)?;
            Some([&tree, &path[cut..]].concat())
        };
        let told = job.absolute(libc::AT_FDCWD, dir).and_then(in_tree);
        Self { dir: dir.to_vec(), told: vec![told.unwrap_or_else(|| dir.to_vec())] }
    }
}

impl Search {
    fn new(job: &'static Job, path: Option<&[u8]>) -> Self {
        let dirs = path.unwrap_or_default().split(|byte| matches!(byte, b':' | b';'));
        let dirs = dirs.filter(|dir| !dir.is_empty());
        Self {
            job,
            path: dirs.map(|dir| Searched::new(job, dir)).collect(),
            further: Vec::new(),
            seen: HashSet::new(),
            has_other_names: false,
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
                let found = self.one(name, &needs, &origin)?;
                self.has_other_names |= found.is_some_and(|found| !is_named(&found, name));
            }
        }
        Ok(())
    }

    /// The library of a name, if that lies below a map, after those that it needs.
    fn one(&mut self, name: &[u8], needs: &Needs, origin: &[u8]) -> Result<Option<CString>> {
        let staged = |(found, is_staged)| if is_staged { Some(found) } else { None };
        if name.contains(&b'/') {
            return Ok(self.at(name)?.and_then(staged));
        }
        let beside = needs.directories.iter().filter_map(|dir| image::beside(dir, origin, name));
        let beside: Vec<_> = beside.map(|path| (path, None)).collect();
        let searched = self.path.iter().enumerate();
        let searched =
            searched.map(|(at, searched)| ([&searched.dir, &b"/"[..], name].concat(), Some(at)));
        for (candidate, searched) in beside.into_iter().chain(searched.collect::<Vec<_>>()) {
            let Some(found) = self.at(&candidate)? else { continue };
            let found = staged(found);
            if let Some(found) = &found {
                // Where a symlink has led to is not where the loader looks by the text.
                let dirs = match searched {
                    Some(at) => &mut self.path[at].told,
                    None => &mut self.further,
                };
                push_new(dirs, parent(found.to_bytes()));
            }
            return Ok(found);
        }
        Ok(None)
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

    /// Has the libraries come that the program is to have besides, as `LD_PRELOAD` names them, and gives its
    /// loader their paths in the tree.
    fn preload(&mut self, environment: &mut Environment) -> Result<()> {
        let asked = environment.value(PRELOAD.name).unwrap_or_default().to_vec();
        let mut told = Vec::new();
        let mut is_other = false;
        for name in asked.split(|byte| is_separator(*byte)).filter(|name| !name.is_empty()) {
            // This library, which is the usual one, needs nothing of a map.
            let found = if is_own(name) { None } else { self.one(name, &Needs::default(), b"")? };
            is_other |= found.is_some();
            told.push(found.map_or_else(|| name.to_vec(), CString::into_bytes));
        }
        if is_other {
            PRELOAD.tell(environment, &told.join(&b':'));
        }
        Ok(())
    }

    /// Gives the loader of the program the directories that it has to look in.
    fn tell(&self, environment: &mut Environment) {
        let dirs: Vec<Vec<u8>> = self
            .path
            .iter()
            .flat_map(|searched| &searched.told)
            .chain(&self.further)
            .cloned()
            .collect();
        if !dirs.iter().eq(self.path.iter().map(|searched| &searched.dir)) {
            LIBRARY_PATH.tell(environment, &dirs.join(&b':'));
        }
    }
}

/// Whether a file has this name; never one that is a path.
fn is_named(file: &CStr, name: &[u8]) -> bool {
    file.to_bytes().rsplit(|byte| *byte == b'/').next() == Some(name)
}

/// Gives this program the variables back that it was to have. The loader has read the others.
pub(crate) fn restore_variables() {
    for variable in [LIBRARY_PATH, PRELOAD] {
        restore(&variable);
    }
}

fn restore(variable: &Variable) {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    let bare = |name: &[u8]| CString::new(&name[..name.len() - 1]);
    let (Ok(name), Ok(kept)) = (bare(variable.name), bare(variable.before)) else { return };
    let Some(before) = settings::variable(&kept) else { return };
    // SAFETY: the process has one thread yet.
    unsafe { libc::unsetenv(kept.as_ptr()) };
    let Some(text) = before.strip_prefix(&[WAS_SET]) else {
        // SAFETY: as above.
        unsafe { libc::unsetenv(name.as_ptr()) };
        return;
    };
    let Ok(text) = CString::new([variable.name, text].concat()) else { return };
    // SAFETY: as above; the array ends with a null pointer. The text stays for the life of the process.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if CStr::from_ptr(*entry).to_bytes().starts_with(variable.name) {
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
    // It may be that only something that a library of the host needs lies below a map.
    search.one(name, &Needs::default(), b"").ok()??;
    search.order.into_iter().map(lasting).collect()
}
