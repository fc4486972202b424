//! `scandir` and `glob`: calls that list directories inside the C library. Where a directory is the
//! pool's they are done here, with the hooks of directory streams.

use std::ffi::{c_char, c_int, c_void};

use libc::{DIR, dirent64, size_t};

use super::{close, directories, hooks, open, stat};
use crate::{host, settings, staging};

type Select = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int>;
type OnError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

/// As the C library has it, with the fields that `GLOB_ALTDIRFUNC` brings in.
#[repr(C)]
pub struct Glob {
    count: size_t,
    paths: *mut *mut c_char,
    first: size_t,
    flags: c_int,
    closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut dirent64>,
    opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
}

mod hosts {
    use std::ffi::{c_char, c_int};

    use libc::dirent64;

    use super::{Compare, Glob, OnError, Select};

    crate::host::host! {
        fn scandirat(
            dirfd: c_int, path: *const c_char, list: *mut *mut *mut dirent64, select: Select,
            compare: Compare,
        ) -> c_int;
        fn glob(
            pattern: *const c_char, flags: c_int, on_error: OnError, found: *mut Glob,
        ) -> c_int;
    }
}

/// Entries in memory of the C library, which the caller frees.
struct List {
    start: *mut *mut dirent64,
    count: usize,
    room: usize,
}

impl List {
    const EMPTY: Self = Self { start: std::ptr::null_mut(), count: 0, room: 0 };

    /// Adds a copy. False if there is no memory.
    ///
    /// # Safety
    /// The entry is whole.
    unsafe fn add(&mut self, entry: *const dirent64) -> bool {
        // SAFETY: memory of the C library, with room as counted.
        unsafe {
            if self.count == self.room {
                let room = (self.room * 2).max(16);
                let bytes = room * size_of::<*mut dirent64>();
                let start = libc::realloc(self.start.cast(), bytes);
                if start.is_null() {
                    return false;
                }
                (self.start, self.room) = (start.cast(), room);
            }
            let bytes = usize::from((*entry).d_reclen);
            let copy = libc::malloc(bytes);
            if copy.is_null() {
                return false;
            }
            copy.copy_from(entry.cast(), bytes);
            self.start.add(self.count).write(copy.cast());
        }
        self.count += 1;
        true
    }

    fn free(self) {
        // SAFETY: all of it came from the C library.
        unsafe {
            for index in 0..self.count {
                libc::free(self.start.add(index).read().cast());
            }
            libc::free(self.start.cast());
        }
    }
}

/// Reads a stream to its end. The callbacks are the host's, so this is not in our code.
///
/// # Safety
/// As for `scandir`.
unsafe fn collect(dir: *mut DIR, select: Select) -> Option<List> {
    let mut list = List::EMPTY;
    loop {
        host::set_errno(0);
        // SAFETY: the stream is open; the callback takes an entry.
        unsafe {
            let entry = directories::readdir64(dir);
            if entry.is_null() {
                break;
            }
            if select.is_some_and(|select| select(entry) == 0) {
                continue;
            }
            if !list.add(entry) {
                host::set_errno(libc::ENOMEM);
                break;
            }
        }
    }
    if host::errno() == 0 {
        return Some(list);
    }
    let errno = host::errno();
    list.free();
    host::set_errno(errno);
    None
}

/// # Safety
/// As for `scandir`.
unsafe fn scan(
    dir: *mut DIR,
    into: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> c_int {
    let before = host::errno();
    // SAFETY: the caller keeps the conditions of `scandir`.
    unsafe {
        let Some(list) = collect(dir, select) else {
            let errno = host::errno();
            directories::closedir(dir);
            host::set_errno(errno);
            return -1;
        };
        directories::closedir(dir);
        if let Some(compare) = compare
            && list.count > 1
        {
            type AnyCompare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
            // SAFETY: it gets pointers to elements, which are pointers to entries.
            let compare = std::mem::transmute::<
                unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int,
                AnyCompare,
            >(compare);
            let bytes = size_of::<*mut dirent64>();
            libc::qsort(list.start.cast(), list.count, bytes, Some(compare));
        }
        into.write(list.start);
        host::set_errno(before);
        list.count as c_int
    }
}

/// A stream on a directory relative to another.
///
/// # Safety
/// As for `openat`.
unsafe fn open_stream(dirfd: c_int, path: *const c_char) -> *mut DIR {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the caller keeps the conditions of `openat`.
    unsafe {
        let fd = open::openat(dirfd, path, flags, 0);
        if fd < 0 {
            return std::ptr::null_mut();
        }
        let dir = directories::fdopendir(fd);
        if dir.is_null() {
            let errno = host::errno();
            close::close(fd);
            host::set_errno(errno);
        }
        dir
    }
}

unsafe extern "C" fn glob_opendir(path: *const c_char) -> *mut c_void {
    // SAFETY: called as `opendir`.
    unsafe { directories::opendir(path).cast() }
}

unsafe extern "C" fn glob_readdir(dir: *mut c_void) -> *mut dirent64 {
    // SAFETY: called as `readdir`.
    unsafe { directories::readdir64(dir.cast()) }
}

unsafe extern "C" fn glob_closedir(dir: *mut c_void) {
    // SAFETY: called as `closedir`.
    unsafe { directories::closedir(dir.cast()) };
}

unsafe extern "C" fn glob_stat(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: called as `stat`.
    unsafe { stat::stat(path, into) }
}

unsafe extern "C" fn glob_lstat(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: called as `lstat`.
    unsafe { stat::lstat(path, into) }
}

hooks! {
    /// `scandirat`.
    fn [scandirat scandirat64](
        dirfd: c_int, path: *const c_char, list: *mut *mut *mut dirent64, select: Select,
        compare: Compare,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            if settings::get().is_none() && staging::active().is_none() {
                return hosts::scandirat(dirfd, path, list, select, compare);
            }
            let dir = open_stream(dirfd, path);
            if dir.is_null() {
                return -1;
            }
            scan(dir, list, select, compare)
        }
    }

    /// `scandir`.
    fn [scandir scandir64](
        path: *const c_char, list: *mut *mut *mut dirent64, select: Select, compare: Compare,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe { scandirat(libc::AT_FDCWD, path, list, select, compare) }
    }

    /// `glob`, which the C library does with the hooks in place of its own calls.
    fn [glob glob64](
        pattern: *const c_char, flags: c_int, on_error: OnError, found: *mut Glob,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            let is_served = settings::get().is_some() || staging::active().is_some();
            if !is_served || flags & libc::GLOB_ALTDIRFUNC != 0 || found.is_null() {
                return hosts::glob(pattern, flags, on_error, found);
            }
            (*found).closedir = Some(glob_closedir);
            (*found).readdir = Some(glob_readdir);
            (*found).opendir = Some(glob_opendir);
            (*found).lstat = Some(glob_lstat);
            (*found).stat = Some(glob_stat);
            let result = hosts::glob(pattern, flags | libc::GLOB_ALTDIRFUNC, on_error, found);
            (*found).flags &= !libc::GLOB_ALTDIRFUNC;
            result
        }
    }
}
