//! Answers to the kernel. A [`Replier`] sends exactly one answer: every sending method consumes
//! it, and dropping it without an answer sends `EIO`, so that no caller hangs.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{self, Attr, AttrOut, CreateOut, EntryOut, OpenOut, StatfsOut, StatxOut};
use crate::channel::Channel;
use crate::lent::LentFile;
use crate::operation::{Lock, LockKind};
use crate::slot::Slot;

/// A found or new node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Number under which the kernel will ask for the node; 0 says "no such entry" and lets the
    /// kernel remember that for `entry_ttl`.
    pub node: u64,
    /// Tells reuses of the same number apart.
    pub generation: u64,
    /// How long the kernel may go on using the name.
    pub entry_ttl: Duration,
    /// How long the kernel may go on using the attributes.
    pub attr_ttl: Duration,
    /// Attributes of the node.
    pub attr: Attr,
}

impl Entry {
    /// The same, used for no longer than this.
    #[must_use]
    pub fn believed_for(self, at_most: Duration) -> Self {
        Self {
            entry_ttl: self.entry_ttl.min(at_most),
            attr_ttl: self.attr_ttl.min(at_most),
            ..self
        }
    }
}

/// How the kernel has to treat an open file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags {
    bits: u32,
    /// Of a file that the kernel was lent.
    backing: i32,
}

impl OpenFlags {
    /// Reads and writes go past the page cache.
    pub const DIRECT_IO: Self = Self::of(1 << 0);
    /// What the page cache has from earlier opens is still good.
    pub const KEEP_CACHE: Self = Self::of(1 << 1);
    /// The listing may be cached.
    pub const CACHE_DIR: Self = Self::of(1 << 3);
    /// Closing needs no flush request.
    pub const NO_FLUSH: Self = Self::of(1 << 5);
    /// Direct writes within the file's size may go on side by side.
    pub const PARALLEL_DIRECT_WRITES: Self = Self::of(1 << 6);

    const PASSTHROUGH: u32 = 1 << 7;

    const fn of(bits: u32) -> Self {
        Self { bits, backing: 0 }
    }

    /// The kernel reads and writes this file by itself. While a node is open so, all who open it have to be told
    /// the same.
    pub fn passthrough(lent: &LentFile) -> Self {
        Self { bits: Self::PASSTHROUGH, backing: lent.number() }
    }

    /// Both; of those that name a lent file at most one.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits, backing: self.backing | other.backing }
    }

    /// Whether all of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.bits & other.bits == other.bits
    }
}

/// Space and inode counts of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statfs {
    /// Size, in units of `fragment_bytes`.
    pub blocks: u64,
    /// Free space, likewise.
    pub blocks_free: u64,
    /// Free space for ordinary users, likewise.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred transfer size, in bytes.
    pub block_bytes: u32,
    /// Unit of the counts, in bytes.
    pub fragment_bytes: u32,
    /// Longest name, in bytes.
    pub name_bytes_max: u32,
}

/// A time of statx.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The way that an answer takes, which is the one that the request came.
#[derive(Debug)]
pub(crate) enum Way {
    Device(Arc<Channel>),
    Ring(Arc<Slot>),
}

impl Way {
    pub(crate) fn reply(&self, unique: u64, parts: [&[u8]; 2]) {
        match self {
            Self::Device(channel) => channel.reply(unique, parts),
            Self::Ring(slot) => slot.reply(parts),
        }
    }

    pub(crate) fn reply_error(&self, unique: u64, errno: Errno) {
        match self {
            Self::Device(channel) => channel.reply_error(unique, errno),
            Self::Ring(slot) => slot.reply_error(errno),
        }
    }
}

/// Sends the one answer to a request. May be kept, and moved to another thread.
#[derive(Debug)]
pub struct Replier {
    way: Way,
    unique: u64,
    answered: bool,
}

impl Drop for Replier {
    fn drop(&mut self) {
        if !self.answered {
            self.way.reply_error(self.unique, Errno::IO);
        }
    }
}

impl Replier {
    pub(crate) fn new(way: Way, unique: u64) -> Self {
        Self { way, unique, answered: false }
    }

    /// Number of the request that is answered; an interrupt names it.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// The request failed.
    pub fn error(mut self, errno: Errno) {
        self.answered = true;
        self.way.reply_error(self.unique, errno);
    }

    /// The request was carried out and has nothing to tell.
    pub fn ok(self) {
        self.parts([&[], &[]]);
    }

    /// Bytes: file data, a symlink's text, packed directory entries, an attribute's value.
    pub fn data(self, bytes: &[u8]) {
        self.parts([bytes, &[]]);
    }

    /// Bytes that `fill` puts into a buffer of `size` bytes, whose first ones are the answer: as many
    /// as it says. Where it can be, the buffer is the memory that the kernel takes them from.
    pub fn fill(mut self, size: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let fill = match &self.way {
            Way::Ring(slot) => match slot.fill(size, fill) {
                Ok(()) => {
                    self.answered = true;
                    return;
                }
                Err(fill) => fill,
            },
            Way::Device(_) => fill,
        };
        with_reply_buffer(size, |buffer| match fill(buffer) {
            Ok(bytes) => self.data(&buffer[..bytes]),
            Err(errno) => self.error(errno),
        });
    }

    /// A found or new node.
    pub fn entry(self, entry: &Entry) {
        self.structure(&entry_out(entry));
    }

    /// Attributes, good for `ttl`.
    pub fn attr(self, attr: &Attr, ttl: Duration) {
        self.structure(&AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: *attr,
        });
    }

    /// An open file or directory.
    pub fn open(self, fh: u64, flags: OpenFlags) {
        self.structure(&open_out(fh, flags));
    }

    /// A new file that is open.
    pub fn create(self, entry: &Entry, fh: u64, flags: OpenFlags) {
        self.structure(&CreateOut { entry: entry_out(entry), open: open_out(fh, flags) });
    }

    /// So many bytes were written.
    pub fn written(self, size: u32) {
        self.structure(&abi::WriteOut { size, padding: 0 });
    }

    /// So many bytes were copied; `wide` as in the request.
    pub fn copied(self, bytes: u64, wide: bool) {
        if wide {
            self.structure(&abi::CopyOut64 { bytes });
        } else {
            self.written(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Space and inode counts.
    pub fn statfs(self, statfs: &Statfs) {
        self.structure(&StatfsOut {
            blocks: statfs.blocks,
            bfree: statfs.blocks_free,
            bavail: statfs.blocks_available,
            files: statfs.files,
            ffree: statfs.files_free,
            bsize: statfs.block_bytes,
            namelen: statfs.name_bytes_max,
            frsize: statfs.fragment_bytes,
            padding: 0,
            spare: [0; 6],
        });
    }

    /// Answers both forms of GETXATTR and LISTXATTR: the length if the caller's `size` is 0, the
    /// `value` if it fits, and `ERANGE` if it does not.
    pub fn xattr(self, value: &[u8], size: u32) {
        if size == 0 {
            self.structure(&abi::GetxattrOut { size: value.len() as u32, padding: 0 });
        } else if value.len() > size as usize {
            self.error(Errno::RANGE);
        } else {
            self.data(value);
        }
    }

    /// Answer to a test: the conflicting lock, or `None` if there is none.
    pub fn lock(self, conflict: Option<&Lock>) {
        let raw = match conflict {
            None => abi::LkOut { typ: 2, ..abi::LkOut::default() },
            Some(lock) => {
                let typ = match lock.kind {
                    LockKind::Read => 0,
                    LockKind::Write => 1,
                    LockKind::Unlock => 2,
                };
                abi::LkOut { start: lock.start, end: lock.end, typ, pid: lock.pid }
            }
        };
        self.structure(&raw);
    }

    /// Offset that a seek has found.
    pub fn seek(self, offset: u64) {
        self.structure(&abi::LseekOut { offset });
    }

    /// Attributes with the creation time, if it is known.
    pub fn statx(self, attr: &Attr, birth: Option<Timestamp>, ttl: Duration) {
        /// `STATX_BASIC_STATS` and `STATX_BTIME`.
        const BASIC: u32 = 0x7ff;
        const BTIME: u32 = 0x800;
        let time = |seconds, nanoseconds| abi::SxTime { seconds, nanoseconds, reserved: 0 };
        let born = birth.unwrap_or_default();
        let stat = abi::Statx {
            mask: if birth.is_some() { BASIC | BTIME } else { BASIC },
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime, attr.atimensec),
            btime: time(born.seconds, born.nanoseconds),
            ctime: time(attr.ctime, attr.ctimensec),
            mtime: time(attr.mtime, attr.mtimensec),
            // The kernel's 32-bit device form: minor 7..0, major 19..8, rest of minor above.
            rdev_major: (attr.rdev >> 8) & 0xfff,
            rdev_minor: (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xfff_ff00),
            ..abi::Statx::default()
        };
        self.structure(&StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat,
        });
    }

    fn structure(self, structure: &(impl IntoBytes + Immutable)) {
        self.parts([structure.as_bytes(), &[]]);
    }

    fn parts(mut self, parts: [&[u8]; 2]) {
        self.answered = true;
        self.way.reply(self.unique, parts);
    }
}

pub(crate) fn entry_out(entry: &Entry) -> EntryOut {
    EntryOut {
        nodeid: entry.node,
        generation: entry.generation,
        entry_valid: entry.entry_ttl.as_secs(),
        attr_valid: entry.attr_ttl.as_secs(),
        entry_valid_nsec: entry.entry_ttl.subsec_nanos(),
        attr_valid_nsec: entry.attr_ttl.subsec_nanos(),
        attr: entry.attr,
    }
}

fn open_out(fh: u64, flags: OpenFlags) -> OpenOut {
    OpenOut { fh, open_flags: flags.bits, backing_id: flags.backing as u32 }
}

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the calling thread's reply buffer, `size` bytes of it, to `fill`. The buffer is kept
/// between requests, so that its memory is zeroed only once; what it holds is left over from
/// earlier replies.
pub fn with_reply_buffer<R>(size: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with(|cell| {
        let mut buffer = cell.take();
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let result = fill(&mut buffer[..size]);
        cell.set(buffer);
        result
    })
}
