//! The record file in memory: its header, and the chunks that this process fills. Owns how room for an entry
//! is found, without a lock: words are taken by adding to a number, and a full chunk is replaced by whoever
//! comes first. What finds no room is counted and left out.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use azekura_proto::recording::layout::{
    self, CHUNK_BYTES, CHUNK_WORDS, CHUNKS_MAX, HEADER_BYTES, MAGIC, VERSION, chunk, header,
};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Words of an entry, for the life of the process.
pub(super) type Entry = &'static [AtomicU64];

/// How often another thread's new chunk is waited for.
const TRIES: u32 = 1000;

static HEADER: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// The chunk that is being filled.
static CHUNK: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Number of the process's first chunk, plus one.
static FIRST: AtomicU64 = AtomicU64::new(0);
static IS_GROWING: AtomicBool = AtomicBool::new(false);

/// The path of the record file, with its zero byte: the program may change the variable.
static PATH: [AtomicU64; layout::PATH_BYTES_MAX / 8] =
    [const { AtomicU64::new(0) }; layout::PATH_BYTES_MAX / 8];
static PATH_BYTES: AtomicUsize = AtomicUsize::new(0);

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

fn path() -> &'static [u8] {
    let bytes = PATH_BYTES.load(Ordering::Acquire);
    // SAFETY: written once, before the length.
    unsafe { std::slice::from_raw_parts(PATH.as_ptr().cast(), bytes) }
}

fn map(offset: u64, bytes: usize) -> rustix::io::Result<*mut AtomicU64> {
    let Ok(path) = CStr::from_bytes_with_nul(path()) else { return Err(rustix::io::Errno::INVAL) };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    // Behind the end of a shorter file a touch would be the end of the program.
    if rustix::fs::fstat(&file)?.st_size.cast_unsigned() != layout::FILE_BYTES {
        return Err(rustix::io::Errno::INVAL);
    }
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, offset)?
    };
    Ok(start.cast())
}

/// Opens the record file.
pub(super) fn open(file: &CStr) -> bool {
    let bytes = file.to_bytes_with_nul();
    if bytes.len() > layout::PATH_BYTES_MAX || bytes[0] != b'/' {
        return false;
    }
    // SAFETY: the process has one thread yet; there is that much room.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), PATH.as_ptr().cast_mut().cast(), bytes.len());
    }
    PATH_BYTES.store(bytes.len(), Ordering::Release);
    let Ok(start) = map(0, HEADER_BYTES) else { return false };
    // SAFETY: the header is as long as that.
    let words = unsafe { std::slice::from_raw_parts(start, HEADER_BYTES / 8) };
    let is_ours = words[header::MAGIC].load(Ordering::Relaxed) == MAGIC
        && words[header::VERSION].load(Ordering::Relaxed) == VERSION;
    if is_ours {
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
            let is_done = CHUNK.load(Ordering::Acquire) != full || new_chunk();
            IS_GROWING.store(false, Ordering::Release);
            return is_done;
        }
        rustix::thread::sched_yield();
    }
    false
}

fn new_chunk() -> bool {
    let Some(header) = header() else { return false };
    let number = header[header::CHUNKS].fetch_add(1, Ordering::Relaxed);
    if number >= CHUNKS_MAX {
        header[header::CHUNKS].store(CHUNKS_MAX, Ordering::Relaxed);
        return false;
    }
    let Ok(start) = map((HEADER_BYTES as u64) + number * CHUNK_BYTES as u64, CHUNK_BYTES) else {
        return false;
    };
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
