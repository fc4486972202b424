//! Whose path is it. Owns the way from the arguments of a call to a place in the container, in
//! whatever form the path comes: absolute, relative to the working directory or to a descriptor,
//! through symlinks of the host into the container, and through symlinks of the container out again.

pub(crate) mod working_directory;

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int};

use azekura_posix::{Errno, LEFT, Namespace, Result, below_prefix};

use crate::descriptors::table;
use crate::guard::Guard;
use crate::host::{self, Failing};
use crate::host_walk;
pub(crate) use crate::pointers::{is_plausible, text};
use crate::recording;
use crate::report::Counter;
use crate::service;
use crate::settings::{self, Intercept, Settings};
use crate::staging::{self, Pair, Purpose};
use crate::{guard, hook};

/// Times that a path may lead from one to the other.
const CROSSINGS_MAX: u32 = 40;

/// A place in the container: a name space, and a path in it. The path is never empty.
#[derive(Debug)]
pub(crate) struct Spot {
    /// The name space, with the base that relative paths count from.
    pub(crate) ns: Namespace,
    /// The path.
    pub(crate) path: Vec<u8>,
    /// The absolute path of the base below the container's root; not used by absolute paths.
    base: Vec<u8>,
}

impl Spot {
    /// The absolute path below the container's root, as far as the text alone tells it.
    pub(crate) fn absolute(&self) -> Vec<u8> {
        if self.path.first() == Some(&b'/') {
            return self.path.clone();
        }
        [&self.base, &b"/"[..], &self.path].concat()
    }
}

/// Where a path leads as far as its text tells.
enum Route {
    Host,
    Pool(Base, Vec<u8>),
}

/// What a path in the container counts from.
enum Base {
    Root,
    WorkingDirectory,
    Descriptor(c_int),
}

/// What a call with a path that leads into the container comes to.
enum Led<R> {
    Done(R),
    /// Out of the container again, to this path. None if it leads elsewhere by now.
    Out(Option<Vec<u8>>),
}

/// Whether the descriptor itself is meant (`AT_EMPTY_PATH`), and no path.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn means_descriptor(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: it can be one of a program, so it is a C string.
    flags & libc::AT_EMPTY_PATH != 0 && is_plausible(path) && unsafe { *path } == 0
}

/// The number in a path that the kernel keeps for descriptors of this process.
pub(crate) fn descriptor_path(path: &[u8]) -> Option<c_int> {
    let digits = match path {
        b"/dev/stdin" => b"0",
        b"/dev/stdout" => b"1",
        b"/dev/stderr" => b"2",
        _ => path.strip_prefix(b"/proc/self/fd/").or_else(|| path.strip_prefix(b"/dev/fd/"))?,
    };
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn classify(settings: &Settings, dirfd: c_int, path: &[u8]) -> Route {
    // Not for a path of the host's, which costs no more than looking at it.
    let guarded = |base, path: &[u8]| {
        let _guard = Guard::enter();
        Route::Pool(base, path.to_vec())
    };
    match path.first() {
        Some(b'/') => match below_prefix(&settings.prefix, path) {
            Some(b"") => guarded(Base::Root, b"/"),
            Some(below) => guarded(Base::Root, below),
            None => match descriptor_path(path).filter(|number| table::is_ours(*number)) {
                Some(number) => classify_descriptor(number),
                None => Route::Host,
            },
        },
        Some(_) if dirfd == libc::AT_FDCWD && working_directory::is_ours() => {
            guarded(Base::WorkingDirectory, path)
        }
        Some(_) if table::is_ours(dirfd) => guarded(Base::Descriptor(dirfd), path),
        _ => Route::Host,
    }
}

/// Where a path leads that names one of our descriptors.
fn classify_descriptor(number: c_int) -> Route {
    let _guard = Guard::enter();
    match table::get(number) {
        Some(description) if !description.path().is_empty() => {
            Route::Pool(Base::Root, description.path().to_vec())
        }
        _ => Route::Host,
    }
}

fn spot(base: &Base, path: Vec<u8>) -> Result<Spot> {
    let (ns, base) = match base {
        Base::Root => (service::root_towards(&path)?, Vec::new()),
        Base::WorkingDirectory => {
            let root = service::root()?;
            let at = working_directory::get().ok_or(Errno::NOENT)?;
            (root.at(at.oid()?), at.path.clone())
        }
        Base::Descriptor(fd) => {
            let root = service::root()?;
            let description = table::get(*fd).ok_or(Errno::BADF)?;
            (root.at(description.dir()?), description.path().to_vec())
        }
    };
    Ok(Spot { ns, path, base })
}

/// Whether the calls that name files are ours.
fn active() -> Option<&'static Settings> {
    settings::get().filter(|settings| settings.intercept == Intercept::All && !guard::is_inside())
}

/// A call with a path: `ours` if it leads into the container, else `hosts`, which gets the descriptor
/// and the path to use. A path that leads from one to the other is followed. `purpose` is for a staging
/// job, where `hosts` gets the path of what has come.
///
/// # Safety
/// `path` is null or a C string; `hosts` calls the C library with what it is given.
pub(crate) unsafe fn by_path<R: Failing>(
    counter: &'static Counter,
    purpose: &Purpose<'_, R>,
    dirfd: c_int,
    path: *const c_char,
    ours: impl Fn(&Spot) -> Result<R>,
    hosts: impl Fn(c_int, *const c_char) -> R,
) -> R {
    let Some(settings) = active() else {
        return match staging::active() {
            // SAFETY: the caller says so.
            Some(job) => unsafe { staging::by_path(job, counter, purpose, dirfd, path, &hosts) },
            None => {
                recording::named(recording::Kind::of(purpose), dirfd, path, || hosts(dirfd, path))
            }
        };
    };
    if !is_plausible(path) {
        return hosts(dirfd, path);
    }
    // SAFETY: not null, so a C string.
    let first = unsafe { CStr::from_ptr(path) };
    if first.count_bytes() >= libc::PATH_MAX as usize {
        // Longer than any path can be: the kernel answers with the right error.
        return hosts(dirfd, path);
    }
    let mut at = (dirfd, Cow::Borrowed(first));
    for _ in 0..CROSSINGS_MAX {
        let mut route = classify(settings, at.0, at.1.to_bytes());
        if matches!(route, Route::Host) {
            counter.passed();
            let result = hosts(at.0, at.1.as_ptr());
            if !(result.is_failed() && matches!(host::errno(), libc::ENOENT | libc::ENOTDIR)) {
                return result;
            }
            let found = hook::run(|| Ok(leads_in(settings, at.0, at.1.to_bytes())));
            match found {
                Some(Ok(Some(below))) => route = Route::Pool(Base::Root, below),
                _ => return result,
            }
        }
        let Route::Pool(base, below) = route else { return R::FAILED };
        let result = hook::run(|| {
            let spot = spot(&base, below)?;
            match ours(&spot) {
                Err(LEFT) => Ok(Led::Out(spot.ns.way_out(&spot.path))),
                other => other.map(Led::Done),
            }
        });
        match result {
            None => return hosts(at.0, at.1.as_ptr()),
            Some(Ok(Led::Out(None))) => {}
            Some(Ok(Led::Out(Some(out)))) => match std::ffi::CString::new(out) {
                Ok(out) => at = (libc::AT_FDCWD, Cow::Owned(out)),
                Err(_) => return hook::conclude(counter, Err(Errno::INVAL)),
            },
            Some(Ok(Led::Done(result))) => return hook::conclude(counter, Ok(result)),
            Some(Err(errno)) => return hook::conclude(counter, Err(errno)),
        }
    }
    hook::conclude(counter, Err(Errno::LOOP))
}

/// A call with two paths: `ours` if both lead into the container, `EXDEV` if one does, else `hosts`.
///
/// # Safety
/// The paths are null or C strings.
pub(crate) unsafe fn by_two_paths<R: Failing>(
    counter: &'static Counter,
    pair: Pair,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    ours: impl Fn(&Spot, &Spot) -> Result<R>,
    hosts: impl Fn((c_int, *const c_char), (c_int, *const c_char)) -> R,
) -> R {
    let Some(settings) = active() else {
        return match staging::active() {
            // SAFETY: the caller says so.
            Some(job) => unsafe { staging::by_two_paths(job, counter, pair, from, to, &hosts) },
            None => {
                recording::named(Some(recording::Kind::RENAMES), to.0, to.1, || hosts(from, to))
            }
        };
    };
    let hosts = || hosts(from, to);
    if !is_plausible(from.1) || !is_plausible(to.1) {
        // The kernel reads both before it looks at either.
        host::set_errno(libc::EFAULT);
        return R::FAILED;
    }
    // SAFETY: not null, so C strings.
    let (from_text, to_text) =
        unsafe { (CStr::from_ptr(from.1).to_bytes(), CStr::from_ptr(to.1).to_bytes()) };
    if from_text.len().max(to_text.len()) >= libc::PATH_MAX as usize {
        return hosts();
    }
    let (from, to) = ((from.0, from_text), (to.0, to_text));
    let is_hosts = |(dirfd, path)| matches!(classify(settings, dirfd, path), Route::Host);
    let mut tried = None;
    if is_hosts(from) && is_hosts(to) {
        counter.passed();
        let result = hosts();
        if !(result.is_failed() && matches!(host::errno(), libc::ENOENT | libc::ENOTDIR)) {
            return result;
        }
        tried = Some(result);
    }
    let result = hook::run(|| match (locate(settings, from)?, locate(settings, to)?) {
        (Some(from), Some(to)) => match ours(&from, &to) {
            Err(LEFT) => Err(Errno::XDEV),
            other => other.map(Some),
        },
        (None, None) => Ok(None),
        _ => Err(Errno::XDEV),
    });
    hook::conclude_or(counter, result, || tried.unwrap_or_else(hosts))
}

/// The path below the container's root that a path of the host leads to, if it does.
fn leads_in(settings: &Settings, dirfd: c_int, path: &[u8]) -> Option<Vec<u8>> {
    let goal = host_walk::Prefix(&settings.prefix);
    host_walk::leads_in(&goal, dirfd, path).map(|(_, below)| below)
}

/// Where a path leads, if into the container.
fn locate(settings: &Settings, (dirfd, path): (c_int, &[u8])) -> Result<Option<Spot>> {
    match classify(settings, dirfd, path) {
        Route::Pool(base, below) => spot(&base, below).map(Some),
        Route::Host => {
            leads_in(settings, dirfd, path).map(|below| spot(&Base::Root, below)).transpose()
        }
    }
}

/// The place that a path leads to if it leads into the container by its text, or through symlinks of
/// the host; for calls that have no C function to try first. Only from inside our code.
pub(crate) fn find(dirfd: c_int, path: &[u8]) -> Result<Option<Spot>> {
    match settings::get().filter(|settings| settings.intercept == Intercept::All) {
        Some(settings) => locate(settings, (dirfd, path)),
        None => Ok(None),
    }
}
