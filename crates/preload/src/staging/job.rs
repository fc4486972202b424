//! The job of this process. Owns what its agent told at the start, and where the paths of programs lead as
//! far as their text, the working directory and the symlinks of the host tell.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use azekura_posix::{Errno, Result};
use azekura_proto::staging::{JOB_VARIABLE, JobId, MapKind};

use super::maps::{Below, Map, Maps};
use super::text::Text;
use super::{link, maps, standing};

use crate::host_walk::{self, Goal};
use crate::scope::RECORDS_ONLY;
use crate::{guard, hook, host, pointers, report, settings};

/// The job that this process is one of.
pub(crate) struct Job {
    pub(super) id: JobId,
    pub(super) maps: Maps,
    /// The device that files are on which are read as they come.
    arriving: Option<u64>,
    /// The program that starts those which this library cannot serve.
    pub(crate) binary: Option<CString>,
    /// The variables as they have to be in the environment of programs started from here, as
    /// `NAME=value`.
    pub(crate) handed_on: Vec<CString>,
}

static JOB: OnceLock<Job> = OnceLock::new();

/// The job, if there is one.
pub(crate) fn get() -> Option<&'static Job> {
    if RECORDS_ONLY { None } else { JOB.get() }
}

/// The job, for a hook; none for a call of our own.
pub(crate) fn active() -> Option<&'static Job> {
    get().filter(|_| !guard::is_inside())
}

/// Names of the variables that a program started from here needs too.
const VARIABLES: [&CStr; 4] = [c"LD_PRELOAD", c"AZEKURA_STAGE", c"AZEKURA_REPORT", c"AZEKURA_BIN"];

/// Looks in the environment for a job, and for its agent; once, at start.
pub(crate) fn start() {
    debug_assert_eq!(VARIABLES[1].to_bytes(), JOB_VARIABLE.as_bytes());
    let Some(value) = settings::variable(VARIABLES[1]).filter(|value| !value.is_empty()) else {
        return;
    };
    if let Some(file) = settings::report_path() {
        report::enable(Box::leak(Box::new(file)));
    }
    if settings::get().is_some() {
        report::say_once(
            "AZEKURA_STAGE and AZEKURA_POOL are both set, and a program is served by one of them: the \
             pool; to have files staged, unset AZEKURA_POOL",
        );
        return;
    }
    let Some(id) = std::str::from_utf8(&value).ok().and_then(JobId::from_hex) else {
        report::trouble("AZEKURA_STAGE is no job (32 hexadecimal digits): no files are staged");
        return;
    };
    match link::greet(id) {
        Ok(told) => {
            let device = |dir: &[u8]| rustix::fs::stat(dir).map_or(0, |found| found.st_dev);
            let maps = Maps::new(told.maps, device);
            let arriving = told.arriving;
            let binary =
                settings::variable(c"AZEKURA_BIN").and_then(|path| CString::new(path).ok());
            JOB.get_or_init(|| Job {
                id,
                maps,
                arriving,
                binary,
                handed_on: settings::variables(&VARIABLES),
            });
        }
        // Another network name space, or the job has ended: the program is on its own.
        Err(Errno::CONNREFUSED) => {}
        Err(errno) => report::trouble(&format!(
            "the agent of the staging job cannot be reached ({errno}): no files are staged"
        )),
    }
}

/// What `access` comes to that was asked of a tree: nobody may write below some maps, whoever the files in
/// their trees belong to.
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe fn refuse_writing(path: *const c_char, mode: c_int, result: c_int) -> c_int {
    let Some(job) = active().filter(|_| result == 0 && mode & libc::W_OK != 0) else {
        return result;
    };
    // SAFETY: the kernel has read it.
    let Ok(path) = (unsafe { pointers::text(path) }) else { return result };
    match job.maps.find_own(path) {
        Some((map, _)) if map.kind == MapKind::ReadOnly => {
            host::set_errno(libc::EROFS);
            -1
        }
        _ => result,
    }
}

/// A fork is over, in the child.
pub(crate) fn after_fork_in_child() {
    if get().is_some() {
        link::abandon();
    }
}

/// A place below a map.
pub(super) struct Place<'a> {
    pub(super) below: Below,
    /// Its absolute path, as the program means it.
    pub(super) path: &'a [u8],
}

impl Place<'_> {
    pub(super) fn map(&self) -> &'static Map {
        self.below.map
    }

    /// What follows the map's directory.
    pub(super) fn rest(&self) -> &[u8] {
        &self.path[self.below.cut..]
    }
}

impl Goal for Maps {
    fn is_at(&self, dir: &[u8]) -> bool {
        self.has_at(dir)
    }

    fn is_below(&self, dir: &[u8]) -> bool {
        self.has_below(dir)
    }

    fn has_component(&self, name: &[u8]) -> bool {
        self.have_component(name)
    }
}

impl Job {
    /// The device that programs are told of a file on this one: one that is read as it comes is, to them, the one
    /// that will stand in the tree, whose inode number it has.
    pub(crate) fn device(&self, device: u64) -> u64 {
        if self.arriving == Some(device) { self.maps.device() } else { device }
    }

    /// Whether a path could lead below a map, as far as can be told without asking the kernel and without
    /// room for another path. It is what every call of the host pays.
    pub(super) fn may_lead_in(&self, dirfd: c_int, path: &[u8]) -> bool {
        match path.first() {
            None => false,
            Some(b'/') => self.maps.are_named_by(path) || maps::has_parent(path),
            Some(_) => standing::may_matter(dirfd, path),
        }
    }

    /// The place that a path leads to by its text; `buffer` is room for its absolute path.
    pub(super) fn place<'a>(
        &'static self,
        dirfd: c_int,
        path: &'a [u8],
        buffer: &'a mut Text,
    ) -> Result<Option<Place<'a>>> {
        if path.first() == Some(&b'/') {
            if let Some(below) = self.maps.find(path) {
                return Ok(Some(Place { below, path }));
            }
        } else {
            if path.is_empty() || !standing::base(&self.maps, dirfd, path, buffer) {
                return Ok(None);
            }
            buffer.push(b"/")?;
        }
        buffer.push(path)?;
        self.place_in(buffer)
    }

    /// The place that an absolute path leads to, which may name the agent's own directories or have `..`
    /// on its way to a map.
    fn place_in<'a>(&'static self, buffer: &'a mut Text) -> Result<Option<Place<'a>>> {
        if let Some((map, cut)) = self.maps.find_own(buffer.as_bytes()) {
            buffer.replace_start(cut, &map.dir)?;
        }
        let mut found = self.maps.find(buffer.as_bytes());
        if found.is_none()
            && maps::has_parent(buffer.as_bytes())
            && let Some(path) = self.led_by_dots(buffer.as_bytes())
        {
            buffer.truncate(0);
            buffer.push(&path)?;
            found = self.maps.find(buffer.as_bytes());
        }
        Ok(found.map(|below| Place { below, path: buffer.as_bytes() }))
    }

    /// Where a path with `..` in it leads that does not begin in a map: the symlinks of the host on its
    /// way decide.
    fn led_by_dots(&self, path: &[u8]) -> Option<Vec<u8>> {
        if !self.maps.are_named_by(&maps::without_dots(path)) {
            return None;
        }
        host_walk::leads_in(&self.maps, libc::AT_FDCWD, path)
            .map(|(at, below)| [at, below].concat())
    }

    /// The absolute path in a map that a path leads to through symlinks of the host, or from above a map;
    /// for one that the kernel has not found.
    pub(super) fn behind_symlinks(&self, dirfd: c_int, path: &[u8]) -> Option<Vec<u8>> {
        let led = hook::caught(|| Ok(host_walk::leads_in(&self.maps, dirfd, path)));
        led.ok().flatten().map(|(at, below)| [at, below].concat())
    }

    /// The path that programs know something by which the kernel finds in the agent's directories.
    pub(crate) fn shown(&self, path: &[u8]) -> Option<Vec<u8>> {
        let path = match path.strip_suffix(b" (deleted)") {
            Some(before) if self.maps.is_list(before) => before,
            _ => path,
        };
        let (map, cut) = self.maps.find_own(path)?;
        Some([&map.dir, &path[cut..]].concat())
    }

    /// The absolute path below a map that a path leads to, if any. Only from inside our code.
    pub(crate) fn absolute(&'static self, dirfd: c_int, path: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = Text::new();
        if let Ok(Some(place)) = self.place(dirfd, path, &mut buffer) {
            return Some(place.path.to_vec());
        }
        let led = host_walk::leads_in(&self.maps, dirfd, path)?;
        Some([led.0, led.1].concat())
    }

    /// Whether a path leads below a map, or to a directory above one.
    pub(crate) fn matters(&'static self, path: &[u8]) -> bool {
        let found = hook::caught(|| {
            let mut text = Text::new();
            Ok(self.absolute(libc::AT_FDCWD, path).is_some()
                || path.starts_with(b"/") && self.maps.has_below(&maps::without_dots(path))
                || standing::base(&self.maps, libc::AT_FDCWD, path, &mut text))
        });
        found.unwrap_or(false)
    }

    /// The path that the kernel has for a descriptor, or for the working directory. Only from inside our
    /// code.
    pub(crate) fn kernel_path(&self, dirfd: c_int) -> Option<Vec<u8>> {
        let mut text = Text::new();
        standing::path_of(&self.maps, dirfd, &mut text).ok()?;
        Some(text.as_bytes().to_vec())
    }

    /// The path that programs know a directory by which was made to be listed and is open under this number.
    pub(crate) fn path_of_list(&self, fd: c_int) -> Option<Vec<u8>> {
        let mut text = Text::new();
        if fd < 0 || !standing::may_matter(fd, b"") {
            return None;
        }
        standing::base(&self.maps, fd, b"", &mut text);
        if !self.maps.is_list(text.as_bytes()) {
            return None;
        }
        self.shown(text.as_bytes())
    }
}

impl Job {
    /// The tree of the map that an absolute path lies below, and where in the path that ends.
    pub(super) fn tree_of(&'static self, path: &[u8]) -> Option<(Vec<u8>, usize)> {
        let below = self.maps.find(path)?;
        Some((below.map.tree.clone(), below.cut))
    }
}
