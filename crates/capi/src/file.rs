//! Open files: opening, reading, writing, and what else is done with a handle. A handle has no file
//! position, so threads share it without getting into each other's way.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_posix::{Allocation, Errno, LockKind, Namespace, OFlags, OpenOptions, SeekTo};

use crate::call::{count, offset, status};
use crate::container::Container;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::pointers::{Bytes, OutHandle, Room, Text, handle, handle_place};

/// Lock owners within this process; each handle is one.
static OWNERS: AtomicU64 = AtomicU64::new(1);

/// What `azekura_open` takes. `O_CLOEXEC` and the like have no meaning here and do no harm.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::WRONLY)
    .union(OFlags::RDWR)
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::TRUNC)
    .union(OFlags::APPEND)
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::TMPFILE)
    .union(OFlags::DSYNC)
    .union(OFlags::SYNC)
    .union(OFlags::DIRECT)
    .union(OFlags::NOATIME)
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::LARGEFILE)
    .union(OFlags::CLOEXEC);

/// `azekura_file`.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) open: azekura_posix::File,
    pub(crate) names: Namespace,
    /// The owner of the locks that are taken through this handle.
    pub(crate) owner: u64,
}

impl File {
    pub(crate) fn subject(&self) -> Subject<'static> {
        Subject::File(self.open.handle().oid())
    }
}

fn check_flags(flags: c_int) -> Outcome<OFlags> {
    let given = OFlags::from_bits_retain(flags as u32);
    let unknown = given.difference(FLAGS);
    if !unknown.is_empty() {
        let text = format!("open flags {:#o} are not supported", unknown.bits());
        return Err(Failure::with(Errno::INVAL, text));
    }
    if given & OFlags::ACCMODE == OFlags::WRONLY | OFlags::RDWR {
        return Err(Failure::with(Errno::INVAL, "use one of O_RDONLY, O_WRONLY, O_RDWR"));
    }
    Ok(given)
}

/// `azekura_open`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_open(
    container: Option<&Container>,
    path: Text<'_>,
    flags: c_int,
    mode: u32,
    file: OutHandle<'_, File>,
) -> c_int {
    status("azekura_open", || {
        let out = handle_place(file, "file")?;
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        let options = OpenOptions::new(check_flags(flags)?, mode & 0o7777);
        let open = container.names.open(path, &options).about(Subject::Path(path))?;
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        *out = Some(Box::new(File { open, names: container.names.clone(), owner }));
        Ok(())
    })
}

/// `azekura_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_close(file: Option<Box<File>>) -> c_int {
    status("azekura_close", || {
        let Some(file) = file else { return Ok(()) };
        let (fs, oid) = (file.names.filesystem(), file.open.handle().oid());
        let flushed = fs.flush(file.open.handle());
        let ranges = fs.unlock_owner(oid, LockKind::Range, file.owner);
        let whole = fs.unlock_owner(oid, LockKind::Whole, file.owner);
        flushed.and(ranges).and(whole).about(Subject::File(oid))
    })
}

/// `azekura_pread`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pread(
    file: Option<&File>,
    buffer: Room<'_>,
    bytes: usize,
    offset: u64,
) -> isize {
    count("azekura_pread", || {
        let file = handle(file, "file")?;
        // SAFETY: `bytes` is the room in `buffer`.
        let buffer = unsafe { buffer.slice(bytes, "buffer") }?;
        file.open.read_at(buffer, offset).about(file.subject())
    })
}

/// `azekura_pwrite`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pwrite(
    file: Option<&File>,
    data: Bytes<'_>,
    bytes: usize,
    offset: u64,
) -> isize {
    count("azekura_pwrite", || {
        let file = handle(file, "file")?;
        // SAFETY: `bytes` is the length of `data`.
        let data = unsafe { data.slice(bytes, "data") }?;
        file.open.write_at(data, offset).about(file.subject())
    })
}

/// `azekura_append`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_append(file: Option<&File>, data: Bytes<'_>, bytes: usize) -> i64 {
    offset("azekura_append", || {
        let file = handle(file, "file")?;
        // SAFETY: `bytes` is the length of `data`.
        let data = unsafe { data.slice(bytes, "data") }?;
        file.open.append(data).about(file.subject())
    })
}

/// `azekura_fsync`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fsync(file: Option<&File>) -> c_int {
    status("azekura_fsync", || {
        let file = handle(file, "file")?;
        let (fs, open) = (file.names.filesystem(), file.open.handle());
        let synced = match open.kind() {
            azekura_posix::FileKind::Directory => fs.fsync_dir(open.oid()),
            _ => file.open.sync(),
        };
        synced.about(file.subject())
    })
}

/// `azekura_ftruncate`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_ftruncate(file: Option<&File>, size: u64) -> c_int {
    status("azekura_ftruncate", || {
        let file = handle(file, "file")?;
        file.open.set_len(size).about(file.subject())
    })
}

/// `azekura_fallocate`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fallocate(
    file: Option<&File>,
    mode: c_int,
    offset: u64,
    bytes: u64,
) -> c_int {
    const PUNCH_HOLE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP_SIZE: c_int = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    status("azekura_fallocate", || {
        let file = handle(file, "file")?;
        let what = match mode {
            0 => Allocation::Grow,
            libc::FALLOC_FL_KEEP_SIZE => Allocation::KeepSize,
            libc::FALLOC_FL_ZERO_RANGE => Allocation::Zero,
            PUNCH_HOLE => Allocation::PunchHole,
            ZERO_KEEP_SIZE => Allocation::ZeroKeepSize,
            _ => {
                let text = format!("fallocate mode {mode:#x} is not supported");
                return Err(Failure::with(Errno::OPNOTSUPP, text));
            }
        };
        file.open.allocate(offset, bytes, what).about(file.subject())
    })
}

fn seek(file: Option<&File>, from: u64, to: SeekTo) -> Outcome<u64> {
    let file = handle(file, "file")?;
    file.open.seek(from, to).about(file.subject())
}

/// `azekura_seek_data`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_seek_data(file: Option<&File>, from: u64) -> i64 {
    offset("azekura_seek_data", || seek(file, from, SeekTo::Data))
}

/// `azekura_seek_hole`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_seek_hole(file: Option<&File>, from: u64) -> i64 {
    offset("azekura_seek_hole", || seek(file, from, SeekTo::Hole))
}

/// `azekura_copy_range`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_copy_range(
    from: Option<&File>,
    from_offset: u64,
    to: Option<&File>,
    to_offset: u64,
    bytes: u64,
) -> i64 {
    offset("azekura_copy_range", || {
        let (from, to) = (handle(from, "source")?, handle(to, "destination")?);
        let (one, other) = (from.names.filesystem(), to.names.filesystem());
        if !std::ptr::eq(one.pool().as_ref(), other.pool().as_ref()) {
            let text = "the two files were opened through different pool handles";
            return Err(Failure::with(Errno::XDEV, text));
        }
        from.open.copy_range(from_offset, &to.open, to_offset, bytes).about(from.subject())
    })
}
