//! `posix_spawn` and its file actions. Owns what is remembered of the actions of a program's own
//! lists: which files of the pool were opened for them, and where they lead the child to.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

use azekura_posix::{Errno, Result};
use libc::{mode_t, pid_t};
use parking_lot::Mutex;

use super::exec::{Server, search, server, shell_arguments};
use super::{close, hooks, open};
use crate::descriptors::{Description, reserve, table};
use crate::launch::{self, Inherited, Launch, Request};
use crate::report::counter;
use crate::settings::Settings;
use crate::staging::{self, Job, Open, Purpose};
use crate::{hook, host, paths, recording};

type Array = *const *const c_char;
/// A list of file actions; only its address matters here.
type List = *mut c_void;

mod real {
    use super::{Array, List, c_char, c_int, c_void, mode_t, pid_t};
    use crate::host::host;

    host! {
        fn posix_spawn(pid: *mut pid_t, path: *const c_char, list: List, attributes: *const c_void, argv: Array, environment: Array) -> c_int;
        fn posix_spawnp(pid: *mut pid_t, path: *const c_char, list: List, attributes: *const c_void, argv: Array, environment: Array) -> c_int;
        fn posix_spawn_file_actions_init(list: List) -> c_int;
        fn posix_spawn_file_actions_destroy(list: List) -> c_int;
        fn posix_spawn_file_actions_addopen(list: List, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
        fn posix_spawn_file_actions_adddup2(list: List, fd: c_int, new: c_int) -> c_int;
        fn posix_spawn_file_actions_addclose(list: List, fd: c_int) -> c_int;
        fn posix_spawn_file_actions_addclosefrom_np(list: List, first: c_int) -> c_int;
        fn posix_spawn_file_actions_addchdir_np(list: List, path: *const c_char) -> c_int;
        fn posix_spawn_file_actions_addfchdir_np(list: List, fd: c_int) -> c_int;
    }
}

/// From here on lie the numbers of files that are opened for a child, where there is room.
const LOWEST: c_int = 512;

/// One action, as far as it concerns us.
#[derive(Clone, Debug)]
enum Action {
    /// The child gets this file of ours under this number, from a number that is held for it.
    Open {
        held: c_int,
        fd: c_int,
        file: Arc<Description>,
    },
    Duplicate {
        fd: c_int,
        new: c_int,
    },
    Close(c_int),
    CloseFrom(c_int),
    /// The working directory, below the container's root; `None` for one of the host's.
    Directory(Option<Vec<u8>>),
}

static LISTS: Mutex<Option<HashMap<usize, Vec<Action>>>> = Mutex::new(None);

fn remember(list: List, action: Action) {
    LISTS.lock().get_or_insert_default().entry(list as usize).or_default().push(action);
}

fn remembered(list: List) -> Vec<Action> {
    let lists = LISTS.lock();
    lists.as_ref().and_then(|lists| lists.get(&(list as usize))).cloned().unwrap_or_default()
}

/// Forgets a list, and closes what was opened for it.
fn forget(list: List) {
    let actions = LISTS.lock().as_mut().and_then(|lists| lists.remove(&(list as usize)));
    for action in actions.into_iter().flatten() {
        if let Action::Open { held, .. } = action {
            close::release(held);
            // SAFETY: a number that was reserved for this list.
            unsafe { host::close(held) };
        }
    }
}

/// Notes an action after the C library has taken it. It is made here: where nothing is noted, there is nothing
/// to be dropped either, and the recorder gets by without all that a file of ours is made of.
fn note(list: List, result: c_int, action: impl FnOnce() -> Action) -> c_int {
    if result == 0 && launch::active().is_some() {
        hook::inside(|| {
            remember(list, action());
        });
    }
    result
}

/// Opens a file of ours for a child, under a number out of the way.
fn hold(spot: &paths::Spot, flags: c_int, mode: mode_t) -> Result<(c_int, Arc<Description>)> {
    let low = open::open_at(spot, flags | libc::O_CLOEXEC, mode)?;
    let file = table::get(low).ok_or(Errno::BADF)?;
    match reserve::reserve(LOWEST, true) {
        Ok(high) if table::set(high, Arc::clone(&file)) => {
            table::take(low);
            // SAFETY: it was reserved just now, and nobody has seen it.
            unsafe { host::close(low) };
            Ok((high, file))
        }
        // No number from `LOWEST` on is free: the low one serves as well.
        _ => Ok((low, file)),
    }
}

/// # Safety
/// As for `posix_spawn_file_actions_addopen`.
unsafe fn add_open(
    list: List,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Option<Result<c_int>> {
    launch::active()?;
    let result = hook::run(|| {
        // SAFETY: the caller says so.
        let found = paths::find(libc::AT_FDCWD, unsafe { paths::text(path)? })?;
        let Some(spot) = found else { return Ok(None) };
        let (held, file) = hold(&spot, flags, mode)?;
        // SAFETY: the list is the caller's.
        let result = unsafe { real::posix_spawn_file_actions_adddup2(list, held, fd) };
        remember(list, Action::Open { held, fd, file });
        Ok(Some(result))
    })?;
    match result {
        Err(azekura_posix::LEFT) => None,
        other => other.transpose(),
    }
}

/// # Safety
/// As for `posix_spawn_file_actions_addchdir_np`.
unsafe fn add_directory(list: List, path: *const c_char) -> Option<Result<c_int>> {
    launch::active()?;
    let result = hook::run(|| {
        // SAFETY: the caller says so.
        let Some(spot) = paths::find(libc::AT_FDCWD, unsafe { paths::text(path)? })? else {
            remember(list, Action::Directory(None));
            return Ok(None);
        };
        let attr = spot.ns.resolve(&spot.path, true)?;
        if attr.kind != azekura_posix::FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        remember(list, Action::Directory(Some(spot.absolute())));
        Ok(Some(0))
    })?;
    result.transpose()
}

/// # Safety
/// As for `posix_spawn_file_actions_addchdir_np`.
unsafe fn add_staged_directory(job: &'static Job, list: List, path: *const c_char) -> c_int {
    let led = match staged(job, list, path, &Purpose::Enter) {
        Ok(led) => led,
        Err(errno) => return errno.raw_os_error(),
    };
    // SAFETY: the caller says so.
    let result = unsafe { real::posix_spawn_file_actions_addchdir_np(list, led.as_ptr()) };
    if result == 0 {
        hook::inside(|| {
            remember(list, Action::Directory(Some(led.into_bytes())));
        });
    }
    result
}

/// What a child starts with after the actions of a list.
fn after_actions(list: List) -> (Option<Vec<u8>>, Inherited) {
    let mut directory = launch::own_directory();
    let mut inherited = Inherited::now();
    for action in remembered(list) {
        match action {
            Action::Open { fd, file, .. } => inherited.set(fd, Some(file)),
            Action::Duplicate { fd, new } => {
                let file = inherited.get(fd);
                inherited.set(new, file);
            }
            Action::Close(fd) => inherited.set(fd, None),
            Action::CloseFrom(first) => inherited.close_from(first),
            Action::Directory(path) => directory = path,
        }
    }
    (directory, inherited)
}

/// Where the actions of a list lead a child of a staging job to, if they do.
fn directory_of(list: List) -> Option<Vec<u8>> {
    let actions = hook::run(|| Ok(remembered(list))).and_then(Result::ok).unwrap_or_default();
    actions.into_iter().rev().find_map(|action| match action {
        Action::Directory(path) => path,
        _ => None,
    })
}

/// A path of a child, which counts from where its actions have led it to.
fn path_in_child(list: List, path: &[u8]) -> Vec<u8> {
    match directory_of(list) {
        Some(dir) if !path.starts_with(b"/") => [&dir, &b"/"[..], path].concat(),
        _ => path.to_vec(),
    }
}

/// The path that an action of a child of a staging job gets.
fn staged(
    job: &'static Job,
    list: List,
    path: *const c_char,
    purpose: &Purpose<'_, c_int>,
) -> Result<CString> {
    // SAFETY: the path is null or a C string, as for all actions.
    let path = path_in_child(list, unsafe { paths::text(path)? });
    match staging::resolve(job, purpose, libc::AT_FDCWD, &path)? {
        Some(led) => Ok(led),
        None => CString::new(path).map_err(|_| Errno::INVAL),
    }
}

/// # Safety
/// As for `posix_spawn`.
unsafe fn plan_staged(
    job: &'static Job,
    path: *const c_char,
    list: List,
    argv: Array,
    environment: Array,
) -> Result<Launch> {
    // SAFETY: the caller says so.
    let path = path_in_child(list, unsafe { paths::text(path)? });
    let request =
        staging::launch::Request { path: &path, dirfd: libc::AT_FDCWD, argv, environment };
    // SAFETY: the caller says so.
    hook::caught(|| unsafe { staging::launch::plan(job, &request) })
}

/// # Safety
/// As for `posix_spawn`.
unsafe fn plan(
    settings: &Settings,
    path: *const c_char,
    list: List,
    argv: Array,
    environment: Array,
) -> Result<Launch> {
    let (directory, inherited) = after_actions(list);
    // SAFETY: the caller says so.
    let path = unsafe { paths::text(path)? };
    let mut absolute = Vec::new();
    // The child looks for a relative path where the actions have led it to.
    if let Some(below) = &directory
        && path.first().is_some_and(|byte| *byte != b'/')
        && *below != launch::own_directory().unwrap_or_default()
    {
        absolute = [settings.prefix.as_slice(), below, b"/", path].concat();
    }
    let path = if absolute.is_empty() { path } else { &absolute };
    let dirfd = libc::AT_FDCWD;
    let request = Request { path, dirfd, argv, environment, directory, inherited };
    // SAFETY: the caller says so.
    unsafe { launch::plan(settings, &request) }
}

/// # Safety
/// As for `posix_spawn`.
unsafe fn spawn(
    server: Server,
    pid: *mut pid_t,
    path: *const c_char,
    list: List,
    attributes: *const c_void,
    (argv, environment): (Array, Array),
) -> Result<()> {
    counter!("posix_spawn").served();
    let plan = match server {
        // SAFETY: the caller says so.
        Server::Agent(job) => unsafe { plan_staged(job, path, list, argv, environment)? },
        Server::Pool(settings) => {
            // SAFETY: the caller says so.
            hook::run(|| unsafe { plan(settings, path, list, argv, environment) })
                .unwrap_or(Err(Errno::IO))?
        }
    };
    let path = launch::path_for_child(&plan.program)?;
    launch::prepare();
    // SAFETY: the plan's arrays are as the call wants them; the rest is the caller's.
    let result = unsafe {
        let (argv, environment) = (plan.argv(), plan.environment());
        real::posix_spawn(pid, path.as_ptr(), list, attributes, argv, environment)
    };
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

fn conclude(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(Errno::raw_os_error)
}

/// `posix_spawnp` of the host; only recording has to know which program is meant.
///
/// # Safety
/// As for `posix_spawnp`.
unsafe fn spawn_found(
    pid: *mut pid_t,
    name: *const c_char,
    list: List,
    attributes: *const c_void,
    (argv, environment): (Array, Array),
) -> c_int {
    let mut found = None;
    if recording::is_on() && paths::is_plausible(name) {
        // SAFETY: plausible, so a C string.
        search(unsafe { CStr::from_ptr(name) }, |path| {
            match rustix::fs::access(path, rustix::fs::Access::EXEC_OK) {
                Ok(()) => {
                    found = Some(path.to_owned());
                    Errno::CANCELED
                }
                Err(errno) => errno,
            }
        });
    }
    let path = found.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
    // SAFETY: the caller says so.
    unsafe {
        let spawn =
            |environment| real::posix_spawnp(pid, name, list, attributes, argv, environment);
        let program = (libc::AT_FDCWD, path);
        recording::starting(program, environment, false, spawn, |no| *no != 0)
    }
}

hooks! {
    /// `posix_spawn`.
    fn [posix_spawn](
        pid: *mut pid_t, path: *const c_char, list: List, attributes: *const c_void, argv: Array,
        environment: Array,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            let Some(server) = server() else {
                let spawn = |environment| {
                    real::posix_spawn(pid, path, list, attributes, argv, environment)
                };
                let program = (libc::AT_FDCWD, path);
                return recording::starting(program, environment, false, spawn, |no| *no != 0);
            };
            conclude(spawn(server, pid, path, list, attributes, (argv, environment)).map(|()| 0))
        }
    }

    /// `posix_spawnp`.
    fn [posix_spawnp](
        pid: *mut pid_t, name: *const c_char, list: List, attributes: *const c_void, argv: Array,
        environment: Array,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            let (Some(server), false) = (server(), name.is_null()) else {
                return spawn_found(pid, name, list, attributes, (argv, environment));
            };
            let mut started = false;
            let errno = search(CStr::from_ptr(name), |path| {
                let mut start = |path: *const c_char, argv| {
                    let result = spawn(server, pid, path, list, attributes, (argv, environment));
                    started = result.is_ok();
                    // Anything but a reason to look further ends the search.
                    result.err().unwrap_or(Errno::CANCELED)
                };
                let errno = start(path.as_ptr(), argv);
                if errno != Errno::NOEXEC {
                    return errno;
                }
                start(c"/bin/sh".as_ptr(), shell_arguments(path, argv).as_ptr())
            });
            if started { 0 } else { errno.raw_os_error() }
        }
    }

    /// `posix_spawn_file_actions_init`.
    fn [posix_spawn_file_actions_init](list: List) -> c_int {
        hook::inside(|| {
            forget(list);
        });
        // SAFETY: as for the C function.
        unsafe { real::posix_spawn_file_actions_init(list) }
    }

    /// `posix_spawn_file_actions_destroy`.
    fn [posix_spawn_file_actions_destroy](list: List) -> c_int {
        hook::inside(|| {
            forget(list);
        });
        // SAFETY: as for the C function.
        unsafe { real::posix_spawn_file_actions_destroy(list) }
    }

    /// `posix_spawn_file_actions_addopen`: a file of the pool is opened here and now.
    fn [posix_spawn_file_actions_addopen](
        list: List, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            if let Some(result) = add_open(list, fd, path, flags, mode) {
                counter!("posix_spawn_file_actions_addopen").served();
                return conclude(result);
            }
            if let Some(job) = staging::active() {
                let purpose = Purpose::Open(Open { flags, gives_back: |_| false });
                return match staged(job, list, path, &purpose) {
                    Ok(path) => real::posix_spawn_file_actions_addopen(
                        list, fd, path.as_ptr(), flags, mode,
                    ),
                    Err(errno) => errno.raw_os_error(),
                };
            }
            let result = real::posix_spawn_file_actions_addopen(list, fd, path, flags, mode);
            note(list, result, || Action::Close(fd))
        }
    }

    /// `posix_spawn_file_actions_adddup2`.
    fn [posix_spawn_file_actions_adddup2](list: List, fd: c_int, new: c_int) -> c_int {
        // SAFETY: as for the C function.
        let result = unsafe { real::posix_spawn_file_actions_adddup2(list, fd, new) };
        note(list, result, || Action::Duplicate { fd, new })
    }

    /// `posix_spawn_file_actions_addclose`.
    fn [posix_spawn_file_actions_addclose](list: List, fd: c_int) -> c_int {
        // SAFETY: as for the C function.
        let result = unsafe { real::posix_spawn_file_actions_addclose(list, fd) };
        note(list, result, || Action::Close(fd))
    }

    /// `posix_spawn_file_actions_addclosefrom_np`.
    fn [posix_spawn_file_actions_addclosefrom_np](list: List, first: c_int) -> c_int {
        // SAFETY: as for the C function.
        let result = unsafe { real::posix_spawn_file_actions_addclosefrom_np(list, first) };
        note(list, result, || Action::CloseFrom(first))
    }

    /// `posix_spawn_file_actions_addchdir_np`: a directory of the pool is handed on by name.
    fn [posix_spawn_file_actions_addchdir_np posix_spawn_file_actions_addchdir](
        list: List, path: *const c_char,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            match add_directory(list, path) {
                Some(result) => conclude(result),
                None => match staging::active() {
                    Some(job) => add_staged_directory(job, list, path),
                    None => real::posix_spawn_file_actions_addchdir_np(list, path),
                },
            }
        }
    }

    /// `posix_spawn_file_actions_addfchdir_np`.
    fn [posix_spawn_file_actions_addfchdir_np posix_spawn_file_actions_addfchdir](
        list: List, fd: c_int,
    ) -> c_int {
        let ours = hook::run(|| {
            let Some(file) = table::get(fd) else { return Ok(None) };
            file.dir()?;
            remember(list, Action::Directory(Some(file.path().to_vec())));
            Ok(Some(0))
        });
        if let Some(result) = ours.and_then(Result::transpose) {
            return conclude(result);
        }
        // SAFETY: as for the C function.
        let result = unsafe { real::posix_spawn_file_actions_addfchdir_np(list, fd) };
        if let Some(job) = staging::active() {
            hook::inside(|| {
                remember(list, Action::Directory(job.kernel_path(fd)));
            });
        }
        note(list, result, || Action::Directory(None))
    }
}
