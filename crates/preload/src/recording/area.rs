//! The record file in memory: its header, and the chunks that this process fills. Owns how room for an entry
//! is found, without a lock: words are taken by adding to a number, and a full chunk is replaced by whoever
//! comes first. What finds no room is counted and left out.

use std::ffi::{CStr, c_char};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use azekura_proto::recording::layout::{
    self, CHUNK_BYTES, CHUNK_WORDS, CHUNKS_MAX, HEADER_BYTES, MAGIC, VERSION, chunk, header,
};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Words of an entry, for the life of the process.
pub(super) type Entry = &'static [AtomicU64];

/// How often another thread's new chunk is waited for.
const TRIES: u32 = 1000;

#[unsafe(link_section = ".data.hot")]
static HEADER: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// The chunk that is being filled.
#[unsafe(link_section = ".data.hot")]
static CHUNK: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Number of the process's first chunk, plus one.
#[unsafe(link_section = ".data.hot")]
static FIRST: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".data.hot")]
static IS_GROWING: AtomicBool = AtomicBool::new(false);

/// The file's number, by which another that has come to the path is told apart.
#[unsafe(link_section = ".data.hot")]
static INODE: AtomicU64 = AtomicU64::new(0);
/// The path of the record file.
#[unsafe(link_section = ".data.hot")]
static PATH: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Whether there is a record file.
pub(super) fn is_there() -> bool {
    !HEADER.load(Ordering::Relaxed).is_null()
}

/// The words of the header; none without a record file.
pub(super) fn header() -> Option<Entry> {
    let start = HEADER.load(Ordering::Acquire);
    // SAFETY: a mapping of a page that stays for the life of the process; all of it is shared as atomics.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, HEADER_BYTES / 8) })
}

/// Something was left out for want of room.
pub(super) fn lost() {
    if let Some(header) = header() {
        header[header::LOST].fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens the record file; gives its number too. It is not kept open: programs close what they do not know, and
/// count on numbers.
fn open_file(path: &CStr) -> Option<(OpenFile, u64)> {
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = OpenFile(file.into_raw_fd());
    let found = rustix::fs::fstat(&file).ok()?;
    // Behind the end of a shorter file a touch would be the end of the program.
    let is_whole = found.st_size.cast_unsigned() == layout::FILE_BYTES;
    is_whole.then_some((file, found.st_ino))
}

/// Closes a number of ours. That of the C library would be a hook, and the program has never seen the number.
pub(super) fn close(number: RawFd) {
    // SAFETY: the caller has opened it, and gives it up.
    unsafe { rustix::io::close(number) };
}

/// The record file while it is open.
struct OpenFile(RawFd);

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until this is dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Opens it again.
fn file() -> Option<OpenFile> {
    let path = PATH.load(Ordering::Acquire);
    if path.is_null() {
        return None;
    }
    // SAFETY: a path that stays for the life of the process.
    let (file, inode) = open_file(unsafe { CStr::from_ptr(path) })?;
    // Whoever had the record may be gone, and its path another's.
    (inode == INODE.load(Ordering::Relaxed)).then_some(file)
}

fn map(file: &OpenFile, offset: u64, bytes: usize) -> Option<*mut AtomicU64> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset)
    };
    start.ok().map(<*mut _>::cast)
}

/// Begins with the record file of this path.
pub(super) fn open(path: &'static CStr) -> bool {
    if !path.to_bytes().starts_with(b"/") {
        return false;
    }
    let Some((file, inode)) = open_file(path) else { return false };
    let Some(start) = map(&file, 0, HEADER_BYTES) else { return false };
    // SAFETY: the header is as long as that.
    let words = unsafe { std::slice::from_raw_parts(start, HEADER_BYTES / 8) };
    let is_ours = words[header::MAGIC].load(Ordering::Relaxed) == MAGIC
        && words[header::VERSION].load(Ordering::Relaxed) == VERSION;
    if is_ours {
        INODE.store(inode, Ordering::Relaxed);
        PATH.store(path.as_ptr().cast_mut(), Ordering::Release);
        // The process's own entry is next: one look at the file serves both. Nobody else may come before it.
        new_chunk(&file, words);
        HEADER.store(start, Ordering::Release);
    }
    is_ours
}

/// The record belongs to another process now; this one begins anew.
pub(super) fn forget_chunks() {
    CHUNK.store(std::ptr::null_mut(), Ordering::Relaxed);
    FIRST.store(0, Ordering::Relaxed);
    IS_GROWING.store(false, Ordering::Relaxed);
}

/// Maps a new chunk in place of `full`; false if there is none to be had.
fn grow(full: *mut AtomicU64) -> bool {
    for _ in 0..TRIES {
        if CHUNK.load(Ordering::Acquire) != full {
            return true;
        }
        if !IS_GROWING.swap(true, Ordering::Acquire) {
            let is_done = CHUNK.load(Ordering::Acquire) != full
                || file().zip(header()).is_some_and(|(file, header)| new_chunk(&file, header));
            IS_GROWING.store(false, Ordering::Release);
            return is_done;
        }
        rustix::thread::sched_yield();
    }
    false
}

fn new_chunk(file: &OpenFile, header: Entry) -> bool {
    let number = header[header::CHUNKS].fetch_add(1, Ordering::Relaxed);
    if number >= CHUNKS_MAX {
        header[header::CHUNKS].store(CHUNKS_MAX, Ordering::Relaxed);
        return false;
    }
    let offset = (HEADER_BYTES as u64) + number * CHUNK_BYTES as u64;
    let Some(start) = map(file, offset, CHUNK_BYTES) else { return false };
    // SAFETY: the mapping is as long as that.
    let words = unsafe { std::slice::from_raw_parts(start, CHUNK_WORDS) };
    let _ = FIRST.compare_exchange(0, number + 1, Ordering::Relaxed, Ordering::Relaxed);
    words[chunk::PROCESS].store(FIRST.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    words[chunk::USED].store(chunk::ENTRIES as u64, Ordering::Relaxed);
    words[chunk::MAGIC].store(MAGIC, Ordering::Release);
    CHUNK.store(start, Ordering::Release);
    true
}

/// Room for an entry of so many words, all of them 0; the caller writes the first word last.
pub(super) fn take(words: usize) -> Option<Entry> {
    for _ in 0..TRIES {
        let start = CHUNK.load(Ordering::Acquire);
        if !start.is_null() {
            // SAFETY: a mapping of a chunk that stays for the life of the process.
            let all: Entry = unsafe { std::slice::from_raw_parts(start, CHUNK_WORDS) };
            let at = all[chunk::USED].fetch_add(words as u64, Ordering::Relaxed) as usize;
            if let Some(entry) = all.get(at..at + words) {
                return Some(entry);
            }
        }
        if !grow(start) {
            break;
        }
    }
    lost();
    None
}
