//! Directory streams. A stream on a directory of the pool is an object of this module's own, told from
//! the C library's by its address. It reads as the kernel would: the place of the listing is that of
//! the descriptor, a page ahead.

use std::collections::{HashSet, VecDeque};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use azekura_posix::{AttrsWanted, Errno, FileKind, Listed, OFlags, Result};
use libc::{DIR, dirent64, off_t, size_t, ssize_t};
use parking_lot::{Mutex, RwLock};

use super::{close, hooks, open, position};
use crate::descriptors::{Description, on_fd, table};
use crate::host::Failing;
use crate::paths::by_path;
use crate::report::{Counter, counter};
use crate::staging::{self, Purpose};
use crate::{guard, hook, host, service};

mod hosts {
    use std::ffi::{c_char, c_int, c_long, c_void};

    use libc::{DIR, dirent64, off_t, size_t, ssize_t};

    crate::host::host! {
        fn opendir(path: *const c_char) -> *mut DIR;
        fn fdopendir(fd: c_int) -> *mut DIR;
        fn readdir64(dir: *mut DIR) -> *mut dirent64;
        fn readdir64_r(dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int;
        fn telldir(dir: *mut DIR) -> c_long;
        // These two return nothing; what stands in the register is not looked at.
        fn seekdir(dir: *mut DIR, place: c_long) -> c_int;
        fn rewinddir(dir: *mut DIR) -> c_int;
        fn dirfd(dir: *mut DIR) -> c_int;
        fn closedir(dir: *mut DIR) -> c_int;
        fn getdents64(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
        fn getdirentries64(
            fd: c_int, buffer: *mut c_char, bytes: size_t, base: *mut off_t,
        ) -> ssize_t;
    }
}

const CWD: c_int = libc::AT_FDCWD;
/// How a stream's directory is opened.
const OPEN: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
/// Names fetched at a time, in bytes.
const PAGE_BYTES: u32 = 64 * 1024;
/// Bytes of an entry before its name.
const HEADER_BYTES: usize = std::mem::offset_of!(dirent64, d_name);

/// A stream on a directory of the pool.
struct Stream {
    fd: c_int,
    reading: Mutex<Reading>,
}

/// How far a stream has come.
struct Reading {
    ahead: VecDeque<Listed>,
    /// Where the last entry that was given out ends.
    place: u64,
    at_end: bool,
    /// What `readdir` points to.
    shown: Box<dirent64>,
}

static STREAMS: RwLock<Option<HashSet<usize>>> = RwLock::new(None);
/// How many there are, so that a program without any pays one load from memory.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the stream is one of ours. Only from inside our code.
fn is_registered(dir: *mut DIR) -> bool {
    STREAMS.read().as_ref().is_some_and(|known| known.contains(&dir.addr()))
}

fn may_be_ours() -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && !guard::is_inside()
}

fn register(fd: c_int, place: u64) -> *mut DIR {
    // SAFETY: a structure of numbers, for which zero is a value.
    let shown = Box::new(unsafe { std::mem::zeroed::<dirent64>() });
    let reading = Reading { ahead: VecDeque::new(), place, at_end: false, shown };
    let stream = Box::into_raw(Box::new(Stream { fd, reading: Mutex::new(reading) }));
    STREAMS.write().get_or_insert_default().insert(stream.addr());
    COUNT.fetch_add(1, Ordering::Relaxed);
    stream.cast()
}

fn check_listable(file: &Description) -> Result<()> {
    if file.open_flags().contains(OFlags::PATH) {
        return Err(Errno::BADF);
    }
    file.dir().map(drop)
}

struct Page {
    entries: Vec<Listed>,
    end: bool,
}

/// The next entries of a directory, from the place of its descriptor on; the place moves behind those
/// that `keep` counts.
fn fetch(
    file: &Description,
    page_bytes: u32,
    keep: impl FnOnce(&[Listed]) -> Result<usize>,
) -> Result<Page> {
    check_listable(file)?;
    let root = service::root()?;
    let dir = file.dir()?;
    file.position().locked(|place| {
        let mut page = root
            .filesystem()
            .readdir(root.caller(), dir, place.offset(), page_bytes, AttrsWanted::No)
            .map_err(|errno| if errno == Errno::STALE { Errno::NOENT } else { errno })?;
        let kept = keep(&page.entries)?;
        let end = page.end && kept == page.entries.len();
        page.entries.truncate(kept);
        if let Some(last) = page.entries.last() {
            place.set(last.cookie);
        }
        Ok(Page { entries: page.entries, end })
    })
}

fn record_bytes(name: &[u8]) -> usize {
    (HEADER_BYTES + name.len() + 1).next_multiple_of(8)
}

/// Writes an entry as the kernel lays it out.
///
/// # Safety
/// There is room for the bytes that [`record_bytes`] tells.
unsafe fn write_record(entry: &Listed, into: *mut u8) {
    let bytes = record_bytes(&entry.name);
    // The kernel's number of a type stands in the upper bits of a mode.
    let kind = (entry.kind.mode_bits() >> 12) as u8;
    // SAFETY: the caller says that there is room.
    unsafe {
        into.write_bytes(0, bytes);
        into.cast::<u64>().write_unaligned(entry.oid.inode_number());
        into.add(8).cast::<i64>().write_unaligned(entry.cookie as i64);
        into.add(16).cast::<u16>().write_unaligned(bytes as u16);
        into.add(18).write(kind);
        into.add(HEADER_BYTES).copy_from_nonoverlapping(entry.name.as_ptr(), entry.name.len());
    }
}

impl Stream {
    /// The stream at an address that is registered.
    ///
    /// # Safety
    /// The stream is not closed meanwhile, which the C library asks of its callers too.
    unsafe fn at<'a>(dir: *mut DIR) -> &'a Self {
        // SAFETY: registered addresses are streams.
        unsafe { &*dir.cast::<Self>() }
    }

    fn description(&self) -> Result<Arc<Description>> {
        table::get(self.fd).ok_or(Errno::BADF)
    }

    /// The next entry in the stream's own memory; null at the end.
    fn next(&self) -> Result<*mut dirent64> {
        let mut reading = self.reading.lock();
        if reading.ahead.is_empty() && !reading.at_end {
            let page = fetch(&*self.description()?, PAGE_BYTES, |entries| Ok(entries.len()))?;
            reading.at_end = page.end || page.entries.is_empty();
            reading.ahead = page.entries.into();
        }
        let Some(entry) = reading.ahead.pop_front() else { return Ok(std::ptr::null_mut()) };
        reading.place = entry.cookie;
        let shown: *mut dirent64 = &raw mut *reading.shown;
        // SAFETY: names have up to 255 bytes, for which a `dirent64` has room.
        unsafe { write_record(&entry, shown.cast()) };
        Ok(shown)
    }

    fn go_to(&self, place: u64) -> Result<()> {
        let mut reading = self.reading.lock();
        reading.ahead.clear();
        reading.at_end = false;
        reading.place = place;
        self.description()?.position().locked(|position| position.set(place));
        Ok(())
    }
}

/// A call with a stream: `ours`, or the C library's.
fn on_stream<R: Failing>(
    counter: &'static Counter,
    dir: *mut DIR,
    ours: impl FnOnce(&Stream) -> Result<R>,
    hosts: impl FnOnce() -> R,
) -> R {
    let result = if may_be_ours() {
        hook::run(|| {
            if !is_registered(dir) {
                return Ok(None);
            }
            // SAFETY: it is registered.
            ours(unsafe { Stream::at(dir) }).map(Some)
        })
    } else {
        None
    };
    hook::conclude_or(counter, result, || {
        counter.passed();
        hosts()
    })
}

/// Entries as many as fit into a buffer.
///
/// # Safety
/// As for `getdents64`.
unsafe fn give_entries(file: &Description, start: *mut c_void, bytes: size_t) -> Result<ssize_t> {
    // SAFETY: the caller says so.
    let buffer = unsafe { super::buffer(start, bytes)? };
    let page = fetch(file, buffer.len().min(PAGE_BYTES as usize) as u32, |entries| {
        let mut used = 0;
        let fitting = entries.iter().take_while(|entry| {
            used += record_bytes(&entry.name);
            used <= buffer.len()
        });
        match fitting.count() {
            0 if !entries.is_empty() => Err(Errno::INVAL),
            fitting => Ok(fitting),
        }
    })?;
    let mut used = 0;
    for entry in &page.entries {
        // SAFETY: those that do not fit have been left out.
        unsafe { write_record(entry, buffer.as_mut_ptr().add(used)) };
        used += record_bytes(&entry.name);
    }
    Ok(used as ssize_t)
}

/// Takes a stream of ours apart; gives its descriptor. `None` for the C library's.
fn dissolve(dir: *mut DIR) -> Option<c_int> {
    if !may_be_ours() {
        return None;
    }
    let fd = hook::run(|| {
        if !STREAMS.write().as_mut().is_some_and(|known| known.remove(&dir.addr())) {
            return Ok(None);
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it came from a box, and nobody finds it any more.
        Ok(Some(unsafe { Box::from_raw(dir.cast::<Stream>()) }.fd))
    });
    fd.and_then(Result::ok).flatten()
}

hooks! {
    /// `opendir`.
    fn [opendir](path: *const c_char) -> *mut DIR {
        // SAFETY: as for the C function.
        unsafe {
            by_path(
                counter!("opendir"),
                &Purpose::List,
                CWD,
                path,
                |spot| open::open_at(spot, OPEN, 0).map(|fd| register(fd, 0)),
                |_, path| {
                    let dir = hosts::opendir(path);
                    if !dir.is_null() && staging::active().is_some() {
                        staging::renewed(hosts::dirfd(dir));
                    }
                    dir
                },
            )
        }
    }

    /// `fdopendir`.
    fn [fdopendir](fd: c_int) -> *mut DIR {
        on_fd(
            counter!("fdopendir"),
            fd,
            |file| {
                // A mere place fails once it is read, as in the C library.
                file.dir()?;
                // SAFETY: the number is open; the C library sets this flag too.
                unsafe { host::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize) };
                #[expect(clippy::redundant_closure_for_method_calls, reason = "lifetimes")]
                let place = file.position().locked(|moving| moving.offset());
                Ok(register(fd, place))
            },
            // SAFETY: as for the C function.
            || unsafe { hosts::fdopendir(fd) },
        )
    }

    /// `readdir`.
    fn [readdir64 readdir](dir: *mut DIR) -> *mut dirent64 {
        // SAFETY: as for the C function.
        on_stream(counter!("readdir"), dir, Stream::next, || unsafe { hosts::readdir64(dir) })
    }

    /// `readdir_r`, which returns its error.
    fn [readdir64_r readdir_r](
        dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64,
    ) -> c_int {
        on_stream(
            counter!("readdir_r"),
            dir,
            |stream| {
                // SAFETY: as for the C function.
                unsafe {
                    *result = std::ptr::null_mut();
                    match stream.next() {
                        Ok(found) if found.is_null() => Ok(0),
                        Ok(found) => {
                            let bytes = usize::from((*found).d_reclen);
                            entry.cast::<u8>().copy_from(found.cast(), bytes);
                            *result = entry;
                            Ok(0)
                        }
                        Err(errno) => Ok(errno.raw_os_error()),
                    }
                }
            },
            // SAFETY: as for the C function.
            || unsafe { hosts::readdir64_r(dir, entry, result) },
        )
    }

    /// `telldir`.
    fn [telldir](dir: *mut DIR) -> c_long {
        on_stream(
            counter!("telldir"),
            dir,
            |stream| Ok(stream.reading.lock().place as c_long),
            // SAFETY: as for the C function.
            || unsafe { hosts::telldir(dir) },
        )
    }

    /// `dirfd`.
    fn [dirfd](dir: *mut DIR) -> c_int {
        // SAFETY: as for the C function.
        on_stream(counter!("dirfd"), dir, |stream| Ok(stream.fd), || unsafe { hosts::dirfd(dir) })
    }

    /// `closedir`.
    fn [closedir](dir: *mut DIR) -> c_int {
        match dissolve(dir) {
            // SAFETY: the stream's own descriptor.
            Some(fd) => unsafe { close::close(fd) },
            // SAFETY: as for the C function.
            None => unsafe { hosts::closedir(dir) },
        }
    }

    /// `getdents64`.
    fn [getdents64](fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
        on_fd(
            counter!("getdents64"),
            fd,
            |file| {
                if file.kind() != FileKind::Directory {
                    return Err(Errno::NOTDIR);
                }
                // SAFETY: as for the C function.
                unsafe { give_entries(file, buffer, bytes) }
            },
            // SAFETY: as for the C function.
            || unsafe { hosts::getdents64(fd, buffer, bytes) },
        )
    }

    /// `getdirentries`.
    fn [getdirentries64 getdirentries](
        fd: c_int, buffer: *mut c_char, bytes: size_t, base: *mut off_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            if !table::is_ours(fd) {
                return hosts::getdirentries64(fd, buffer, bytes, base);
            }
            let place = position::lseek(fd, 0, libc::SEEK_CUR);
            let given = getdents64(fd, buffer.cast(), bytes);
            if given >= 0 && !base.is_null() {
                *base = place;
            }
            given
        }
    }
}

/// `seekdir`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(dir: *mut DIR, place: c_long) {
    on_stream(
        counter!("seekdir"),
        dir,
        |stream| stream.go_to(place as u64).map(|()| 0),
        // SAFETY: as for the C function.
        || unsafe { hosts::seekdir(dir, place) },
    );
}

/// `rewinddir`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(dir: *mut DIR) {
    on_stream(
        counter!("rewinddir"),
        dir,
        |stream| stream.go_to(0).map(|()| 0),
        // SAFETY: as for the C function.
        || unsafe { hosts::rewinddir(dir) },
    );
}
