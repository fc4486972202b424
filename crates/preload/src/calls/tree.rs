//! `ftw` and `nftw`. The C library walks with calls that go past the hooks, so trees whose root is in
//! the container, or that reach a map of a staging job, are walked here, with the hooks; others by the C
//! library. `fts` is not offered there: it fails, and the report says so.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libc::{DIR, dirent64};

use super::{convert, cwd, directories, hooks, stat};
use crate::{guard, hook, host, paths, report, staging};

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;

const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;

const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

/// Where the name of an entry begins, and how deep it lies.
#[repr(C)]
pub struct Ftw {
    base: c_int,
    level: c_int,
}

type OnEntry = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;
type OnEntryAt = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Ftw) -> c_int;

mod hosts {
    use std::ffi::{c_char, c_int, c_void};

    use super::{OnEntry, OnEntryAt};

    crate::host::host! {
        fn ftw64(path: *const c_char, on_entry: OnEntry, open_max: c_int) -> c_int;
        fn fts_open(
            roots: *const *mut c_char, options: c_int, compare: *const c_void,
        ) -> *mut c_void;
        fn nftw64(path: *const c_char, on_entry: OnEntryAt, open_max: c_int, flags: c_int) -> c_int;
    }
}

#[derive(Clone, Copy)]
enum Callback {
    Plain(OnEntry),
    At(OnEntryAt),
}

struct Walk {
    callback: Callback,
    flags: c_int,
    device: u64,
    /// Directories that have been entered, where symlinks are followed and could lead back.
    seen: HashSet<(u64, u64)>,
}

/// How the walk goes on after an entry.
enum After {
    Next,
    SkipBelow,
    SkipSiblings,
    Stop(c_int),
}

/// Text as C has it. It comes from C, so there is no zero byte in it.
fn c_text(path: &[u8]) -> CString {
    CString::new(path).unwrap_or_default()
}

fn blank_stat() -> libc::stat {
    // SAFETY: a structure of numbers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// The names in a directory. `None` if it cannot be read.
fn names(path: &CStr) -> Option<Vec<Vec<u8>>> {
    // SAFETY: a C string; the stream is used and closed here only.
    unsafe {
        let dir: *mut DIR = directories::opendir(path.as_ptr());
        if dir.is_null() {
            return None;
        }
        let mut names = Vec::new();
        loop {
            let entry: *mut dirent64 = directories::readdir64(dir);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((&raw const (*entry).d_name).cast()).to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        directories::closedir(dir);
        Some(names)
    }
}

impl Walk {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    fn tell(
        &self,
        path: &CStr,
        found: &libc::stat,
        kind: c_int,
        base: usize,
        level: c_int,
    ) -> After {
        // SAFETY: the caller of the C function gave a callback of this form.
        let answer = unsafe {
            match self.callback {
                Callback::Plain(call) => {
                    let kind = if kind == FTW_SL || kind == FTW_SLN { FTW_F } else { kind };
                    call(path.as_ptr(), found, kind)
                }
                Callback::At(call) => {
                    let mut place = Ftw { base: base as c_int, level };
                    call(path.as_ptr(), found, kind, &raw mut place)
                }
            }
        };
        match answer {
            0 => After::Next,
            FTW_SKIP_SUBTREE if self.has(FTW_ACTIONRETVAL) => After::SkipBelow,
            FTW_SKIP_SIBLINGS if self.has(FTW_ACTIONRETVAL) => After::SkipSiblings,
            other => After::Stop(other),
        }
    }

    /// The attributes of what is at a path, and the type flag that the function is called with.
    fn look(&self, at: &CStr) -> Result<(libc::stat, c_int), c_int> {
        let mut found = blank_stat();
        // SAFETY: a C string and a structure.
        unsafe {
            let failed = if self.has(FTW_PHYS) {
                stat::lstat(at.as_ptr(), &raw mut found) != 0
            } else {
                stat::stat(at.as_ptr(), &raw mut found) != 0
            };
            if failed {
                let errno = host::errno();
                if !matches!(errno, libc::ENOENT | libc::EACCES | libc::ELOOP | libc::ENOTDIR) {
                    return Err(errno);
                }
                if !self.has(FTW_PHYS)
                    && stat::lstat(at.as_ptr(), &raw mut found) == 0
                    && found.st_mode & libc::S_IFMT == libc::S_IFLNK
                {
                    return Ok((found, FTW_SLN));
                }
                return Ok((found, FTW_NS));
            }
        }
        let kind = match found.st_mode & libc::S_IFMT {
            libc::S_IFDIR => FTW_D,
            libc::S_IFLNK => FTW_SL,
            _ => FTW_F,
        };
        Ok((found, kind))
    }

    fn entry(&mut self, path: &[u8], base: usize, level: c_int) -> After {
        let text = c_text(path);
        let inside = self.has(FTW_CHDIR) && level > 0;
        let at = if inside { c_text(&path[base..]) } else { text.clone() };
        let (found, kind) = match self.look(&at) {
            Ok(found) => found,
            Err(errno) => {
                host::set_errno(errno);
                return After::Stop(-1);
            }
        };
        if self.has(FTW_MOUNT) && kind != FTW_NS && found.st_dev != self.device {
            return After::Next;
        }
        if kind != FTW_D {
            return self.tell(&text, &found, kind, base, level);
        }
        if !self.has(FTW_PHYS) && !self.seen.insert((found.st_dev, found.st_ino)) {
            return After::Next;
        }
        self.directory((path, base, level), (&text, &at), &found)
    }

    fn directory(
        &mut self,
        (path, base, level): (&[u8], usize, c_int),
        (text, at): (&CStr, &CStr),
        found: &libc::stat,
    ) -> After {
        let Some(names) = names(at) else {
            if host::errno() != libc::EACCES {
                return After::Stop(-1);
            }
            return self.tell(text, found, FTW_DNR, base, level);
        };
        if !self.has(FTW_DEPTH) {
            match self.tell(text, found, FTW_D, base, level) {
                After::Next => {}
                After::SkipBelow => return After::Next,
                other => return other,
            }
        }
        let back = self.has(FTW_CHDIR).then(|| {
            // SAFETY: without a buffer the path comes in new memory, which is ours then.
            unsafe { cwd::getcwd(std::ptr::null_mut(), 0) }
        });
        // SAFETY: a C string.
        if back.is_some() && unsafe { cwd::chdir(at.as_ptr()) } != 0 {
            return After::Stop(-1);
        }
        let mut stopped = None;
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        for name in names {
            let below = [path, slash, &name].concat();
            match self.entry(&below, below.len() - name.len(), level + 1) {
                After::Next | After::SkipBelow => {}
                After::SkipSiblings => break,
                After::Stop(answer) => {
                    stopped = Some(answer);
                    break;
                }
            }
        }
        if let Some(back) = back.filter(|back| !back.is_null()) {
            // SAFETY: it came from `getcwd`.
            unsafe {
                let errno = host::errno();
                cwd::chdir(back);
                libc::free(back.cast());
                host::set_errno(errno);
            }
        }
        match stopped {
            Some(answer) => After::Stop(answer),
            None if self.has(FTW_DEPTH) => self.tell(text, found, FTW_DP, base, level),
            None => After::Next,
        }
    }
}

/// Whether the root of a tree lies in the container.
///
/// # Safety
/// As for `lstat`.
unsafe fn starts_here(path: *const c_char) -> Option<u64> {
    let is_of_pool = crate::settings::get().is_some();
    if path.is_null() || guard::is_inside() || !is_of_pool && staging::get().is_none() {
        return None;
    }
    let errno = host::errno();
    let mut found = blank_stat();
    // SAFETY: the caller says so.
    let failed = unsafe { stat::stat(path, &raw mut found) } != 0
        && unsafe { stat::lstat(path, &raw mut found) } != 0;
    host::set_errno(errno);
    let is_here = match staging::get() {
        // SAFETY: the caller says so.
        Some(job) => unsafe { paths::text(path) }.is_ok_and(|path| job.matters(path)),
        None => found.st_dev == convert::DEVICE,
    };
    (!failed && is_here).then_some(found.st_dev)
}

/// Whether the root of a tree is the host's for all that a staging job does below it: of a directory above a
/// map the C library walks what the host has.
///
/// # Safety
/// Null or a C string.
unsafe fn is_beside_maps(path: *const c_char) -> bool {
    let Some(job) = staging::get() else { return false };
    // SAFETY: the caller says so.
    let Ok(path) = (unsafe { paths::text(path) }) else { return true };
    hook::caught(|| Ok(job.absolute(libc::AT_FDCWD, path).is_none())).unwrap_or(true)
}

/// # Safety
/// As for `nftw`.
unsafe fn walk(path: *const c_char, callback: Callback, flags: c_int, device: u64) -> c_int {
    // SAFETY: `starts_here` has seen that it is not null.
    let mut root = unsafe { CStr::from_ptr(path) }.to_bytes().to_vec();
    while root.len() > 1 && root.ends_with(b"/") {
        root.pop();
    }
    let base = root.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let base = if base == root.len() { 0 } else { base };
    let mut walk = Walk { callback, flags, device, seen: HashSet::new() };
    match walk.entry(&root, base, 0) {
        After::Stop(answer) => answer,
        After::Next | After::SkipBelow | After::SkipSiblings => 0,
    }
}

hooks! {
    /// `nftw`.
    fn [nftw nftw64](
        path: *const c_char, on_entry: OnEntryAt, open_max: c_int, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            match starts_here(path) {
                Some(device) => walk(path, Callback::At(on_entry), flags, device),
                None => hosts::nftw64(path, on_entry, open_max, flags),
            }
        }
    }

    /// `ftw`.
    fn [ftw ftw64](path: *const c_char, on_entry: OnEntry, open_max: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            match starts_here(path) {
                Some(device) => walk(path, Callback::Plain(on_entry), 0, device),
                None => hosts::ftw64(path, on_entry, open_max),
            }
        }
    }
    /// `fts_open`, for trees of the host.
    fn [fts_open fts64_open](
        roots: *const *mut c_char, options: c_int, compare: *const c_void,
    ) -> *mut c_void {
        let mut root = roots;
        // SAFETY: as for the C function: the roots end with a null pointer.
        unsafe {
            while !root.is_null() && !(*root).is_null() {
                if starts_here(*root).is_some() && !is_beside_maps(*root) {
                    hook::inside(|| {
                        report::trouble(
                            "fts_open on a tree of the pool, or of a map, failed with EOPNOTSUPP",
                        );
                    });
                    host::set_errno(libc::EOPNOTSUPP);
                    return std::ptr::null_mut();
                }
                root = root.add(1);
            }
            hosts::fts_open(roots, options, compare)
        }
    }
}
