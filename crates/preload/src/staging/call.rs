//! The calls of the C library that have paths, made in the agent's directories. Owns when a call is simply
//! tried in the tree, when the agent is asked first, and when a call that has failed is made again. A call
//! that changes something is never tried: the agent decides what may be changed, and where.

use std::ffi::{CStr, CString, c_char, c_int};

use azekura_posix::{Errno, Result};
use azekura_proto::staging::MapKind;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat2};

use super::found::Found;
use super::job::{Job, Place};
use super::questions::{Need, Settled};
use super::text::Text;
use crate::host::{self, Failing};
use crate::report::Counter;
use crate::{hook, pointers};

/// How often a file is asked for again that is gone by the time it is opened: a full cache loses files
/// that nobody has open.
const TRIES: u32 = 4;
/// Where files are opened that are read as they come.
const ARRIVING: &[u8] = b"/proc/";
/// What a write-only open, a creation or a cut has among its flags.
const CHANGING: c_int = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;

/// What a call is going to do at its path.
pub(crate) enum Purpose<'a, R> {
    /// It asks about something, and gets this where that has not come.
    Look {
        /// Whether a symlink at the end is followed.
        follow: bool,
        /// What the call comes to.
        found: &'a dyn Fn(&Found) -> Result<R>,
        /// Whether the call has told of a directory: one of a tree is not the one at home.
        told_directory: &'a dyn Fn() -> bool,
    },
    /// It needs the content.
    Read,
    /// It opens.
    Open(Open<R>),
    /// It lists a directory.
    List,
    /// It enters a directory.
    Enter,
    /// It makes something that must not be there.
    Make,
    /// It removes a name; this is its success.
    Remove(R),
    /// It changes a file or its attributes.
    Write {
        /// Whether a symlink at the end is followed.
        follow: bool,
    },
}

/// How something is opened.
pub(crate) struct Open<R> {
    /// As for `open`.
    pub(crate) flags: c_int,
    /// Gives back what was opened in a tree if that is a directory: there it has not all names.
    pub(crate) gives_back: fn(R) -> bool,
}

impl<R> Purpose<'_, R> {
    /// Whether a symlink at the end of its path is followed.
    pub(crate) fn follows(&self) -> bool {
        match self {
            Self::Look { follow, .. } | Self::Write { follow } => *follow,
            Self::Open(open) => open.flags & libc::O_NOFOLLOW == 0,
            Self::Read | Self::List | Self::Enter => true,
            Self::Make | Self::Remove(_) => false,
        }
    }

    fn need(&self) -> Need {
        let follow = self.follows();
        match self {
            Self::Look { .. } => Need::Look { follow },
            Self::Open(open) if changes(open.flags) => Need::Open(open.flags),
            Self::Open(open) if open.flags & libc::O_DIRECTORY != 0 => Need::List,
            Self::Read => Need::Read { follow },
            Self::Open(_) => Need::Content { follow },
            Self::List | Self::Enter => Need::List,
            Self::Make => Need::Make,
            Self::Remove(_) => Need::Remove,
            Self::Write { .. } => Need::Write { follow },
        }
    }

    /// Whether what has come answers the call, so that it can be tried without a question.
    fn is_tried(&self) -> bool {
        match self {
            Self::Look { .. } | Self::Read | Self::Enter => true,
            Self::Open(_) => matches!(self.need(), Need::Content { .. }),
            Self::List | Self::Make | Self::Remove(_) | Self::Write { .. } => false,
        }
    }
}

fn changes(flags: c_int) -> bool {
    flags & libc::O_PATH == 0
        && (flags & CHANGING != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE)
}

fn is_missing(errno: c_int) -> bool {
    matches!(errno, libc::ENOENT | libc::ENOTDIR)
}

/// The path of a place in its tree, if the kernel goes the way that the program means. Where programs may
/// write there can be symlinks, whose texts count from the map and not from the tree: the agent follows them.
fn in_tree(place: &Place<'_>, follow: bool, into: &mut Text) -> bool {
    if place.below.climbs
        || into.push(&place.map().tree).is_err()
        || into.push(place.rest()).is_err()
    {
        return false;
    }
    if place.map().kind == MapKind::ReadOnly {
        return true;
    }
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let found = openat2(CWD, into.as_bytes(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    matches!(found, Ok(_) | Err(Errno::NAMETOOLONG | Errno::ACCESS))
}

/// A call with a path: made in the agent's directories if the path leads below a map, else as it is.
///
/// # Safety
/// `path` is null or a C string; `hosts` calls the C library with what it is given.
pub(crate) unsafe fn by_path<R: Failing>(
    job: &'static Job,
    counter: &'static Counter,
    purpose: &Purpose<'_, R>,
    dirfd: c_int,
    path: *const c_char,
    hosts: &dyn Fn(c_int, *const c_char) -> R,
) -> R {
    if !pointers::is_plausible(path) {
        return hosts(dirfd, path);
    }
    // SAFETY: not null, so a C string.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    if text.len() >= libc::PATH_MAX as usize {
        return hosts(dirfd, path);
    }
    if job.may_lead_in(dirfd, text)
        && let Some(result) = in_map(job, counter, purpose, (dirfd, text), hosts)
    {
        return result;
    }
    counter.passed();
    let result = hosts(dirfd, path);
    if result.is_failed()
        && is_missing(host::errno())
        && let Some(led) = job.behind_symlinks(dirfd, text)
    {
        let led = in_map(job, counter, purpose, (libc::AT_FDCWD, &led), hosts);
        return led.unwrap_or(result);
    }
    result
}

/// Apart from its caller, so that a call of the host does not pay for the room of two paths.
#[inline(never)]
fn in_map<R: Failing>(
    job: &'static Job,
    counter: &'static Counter,
    purpose: &Purpose<'_, R>,
    (dirfd, path): (c_int, &[u8]),
    hosts: &dyn Fn(c_int, *const c_char) -> R,
) -> Option<R> {
    let mut buffer = Text::new();
    match hook::caught(|| job.place(dirfd, path, &mut buffer)) {
        Ok(place) => Some(at_place(job, counter, purpose, &place?, hosts)),
        Err(errno) => Some(hook::conclude(counter, Err(errno))),
    }
}

fn at_place<R: Failing>(
    job: &Job,
    counter: &'static Counter,
    purpose: &Purpose<'_, R>,
    place: &Place<'_>,
    hosts: &dyn Fn(c_int, *const c_char) -> R,
) -> R {
    let errno = host::errno();
    let mut need = purpose.need();
    let mut tree = Text::new();
    if purpose.is_tried() && in_tree(place, purpose.follows(), &mut tree) {
        let result = hosts(libc::AT_FDCWD, tree.as_ptr());
        match purpose {
            Purpose::Open(open) if !result.is_failed() && (open.gives_back)(result) => {
                need = Need::List;
            }
            Purpose::Look { told_directory, .. } if !result.is_failed() && told_directory() => {}
            _ if result.is_failed() && is_missing(host::errno()) => {}
            _ => {
                counter.served();
                return result;
            }
        }
    }
    for tried in 0..TRIES {
        let path = match hook::caught(|| job.settle(need, place)) {
            Ok(Settled::At(path)) => path,
            Ok(Settled::Found(found)) => {
                host::set_errno(errno);
                return hook::conclude(counter, as_found(purpose, &found));
            }
            Err(errno) => return hook::conclude(counter, Err(errno)),
        };
        let result = hosts(libc::AT_FDCWD, path.as_ptr());
        let is_missing = result.is_failed() && host::errno() == libc::ENOENT && job.is_own(&path);
        if matches!(need, Need::Content { .. })
            && result.is_failed()
            && path.to_bytes().starts_with(ARRIVING)
            && matches!(host::errno(), libc::ENOENT | libc::EACCES | libc::EPERM)
        {
            // It is whole by now, or the agent's descriptors are not to be seen from here.
            if tried > 0 {
                need = Need::Read { follow: purpose.follows() };
            }
            continue;
        }
        match purpose {
            // It was only at home; that it is gone is marked.
            Purpose::Remove(done) if is_missing => {
                host::set_errno(errno);
                return hook::conclude(counter, Ok(*done));
            }
            Purpose::Look { .. } | Purpose::Read | Purpose::Open(_) if is_missing => {}
            _ => {
                counter.served();
                if !result.is_failed() {
                    host::set_errno(errno);
                }
                return result;
            }
        }
    }
    hook::conclude(counter, Err(Errno::NOENT))
}

fn as_found<R>(purpose: &Purpose<'_, R>, found: &Found) -> Result<R> {
    match purpose {
        Purpose::Look { found: tell, .. } => tell(found),
        // The agent says `Found` to a look only.
        _ => Err(Errno::IO),
    }
}

/// The path at which a call is to be made that cannot be tried and made again; none if the path as it is.
///
/// # Errors
/// What the call fails with.
fn resolve_need(
    job: &'static Job,
    mut need: Need,
    is_tried: bool,
    (dirfd, path): (c_int, &[u8]),
) -> Result<Option<CString>> {
    let mut buffer = Text::new();
    let mut led = None;
    let mut place =
        if job.may_lead_in(dirfd, path) { job.place(dirfd, path, &mut buffer)? } else { None };
    if place.is_none() && !path.is_empty() && !is_on_host(dirfd, path) {
        led = job.behind_symlinks(dirfd, path);
    }
    let mut again = Text::new();
    if let Some(led) = &led {
        place = job.place(libc::AT_FDCWD, led, &mut again)?;
    }
    let Some(place) = place else { return Ok(None) };
    let mut tree = Text::new();
    if is_tried
        && in_tree(&place, true, &mut tree)
        && let Ok(found) = rustix::fs::statat(CWD, tree.as_bytes(), AtFlags::empty())
    {
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        if !(is_directory && matches!(need, Need::Read { .. } | Need::Content { .. })) {
            return CString::new(tree.as_bytes()).map(Some).map_err(|_| Errno::INVAL);
        }
        need = Need::List;
    }
    match job.settle(need, &place)? {
        Settled::At(path) => Ok(Some(path)),
        Settled::Found(_) => Err(Errno::IO),
    }
}

fn is_on_host(dirfd: c_int, path: &[u8]) -> bool {
    // SAFETY: a number that is not open fails in the kernel like any other.
    let at = unsafe {
        std::os::fd::BorrowedFd::borrow_raw(if dirfd < 0 { libc::AT_FDCWD } else { dirfd })
    };
    rustix::fs::statat(at, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// As [`by_path`], for a call that cannot be tried and made again: the path at which to make it; none if
/// the path as it is.
///
/// # Errors
/// What the call fails with.
pub(crate) fn resolve<R>(
    job: &'static Job,
    purpose: &Purpose<'_, R>,
    dirfd: c_int,
    path: &[u8],
) -> Result<Option<CString>> {
    hook::caught(|| resolve_need(job, purpose.need(), purpose.is_tried(), (dirfd, path)))
}

/// What a call with two paths does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    /// The first loses its name to the second; with the flags of `renameat2`.
    Rename(libc::c_uint),
    /// The first gets a further name.
    Link {
        /// Whether a symlink at the end of the first is followed.
        follow: bool,
    },
}

impl Pair {
    /// What has to be so of either.
    fn needs(self) -> (Need, Need) {
        match self {
            Self::Rename(flags) if flags & libc::RENAME_EXCHANGE != 0 => {
                let kept = Need::Write { follow: false };
                (kept, kept)
            }
            Self::Rename(flags) if flags & libc::RENAME_NOREPLACE != 0 => (Need::Move, Need::Make),
            Self::Rename(_) => (Need::Move, Need::Take),
            Self::Link { follow } => (Need::Read { follow }, Need::Make),
        }
    }
}

/// A call with two paths.
///
/// # Safety
/// The paths are null or C strings; `hosts` calls the C library with what it is given.
pub(crate) unsafe fn by_two_paths<R: Failing>(
    job: &'static Job,
    counter: &'static Counter,
    pair: Pair,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    hosts: &dyn Fn((c_int, *const c_char), (c_int, *const c_char)) -> R,
) -> R {
    if !pointers::is_plausible(from.1) || !pointers::is_plausible(to.1) {
        return hosts(from, to);
    }
    // SAFETY: not null, so C strings.
    let (from_text, to_text) =
        unsafe { (CStr::from_ptr(from.1).to_bytes(), CStr::from_ptr(to.1).to_bytes()) };
    let (from_need, to_need) = pair.needs();
    let errno = host::errno();
    let settled = hook::caught(|| {
        // In this order: where nothing can be made, nothing is marked as gone.
        let to_led = resolve_need(job, to_need, false, (to.0, to_text))?;
        let from_led = resolve_need(job, from_need, false, (from.0, from_text))?;
        // A further name elsewhere would let others change what stands here for the file at home.
        if matches!(pair, Pair::Link { .. })
            && job.tree_at(from_led.as_ref()) != job.tree_at(to_led.as_ref())
        {
            return Err(Errno::XDEV);
        }
        Ok((from_led, to_led))
    });
    match settled {
        Err(errno) => hook::conclude(counter, Err(errno)),
        Ok((None, None)) => {
            counter.passed();
            hosts(from, to)
        }
        Ok((from_led, to_led)) => {
            counter.served();
            let or = |led: &Option<CString>, as_it_is: (c_int, *const c_char)| {
                led.as_ref().map_or(as_it_is, |led| (libc::AT_FDCWD, led.as_ptr()))
            };
            host::set_errno(errno);
            hosts(or(&from_led, from), or(&to_led, to))
        }
    }
}
