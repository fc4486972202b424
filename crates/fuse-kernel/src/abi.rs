//! The kernel's FUSE ABI as plain data: message structures, operation codes and flag bits, as the
//! kernel lays them out in memory (native byte order). Owns nothing but these facts; it must never
//! hold behaviour.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version that is spoken here.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version whose messages are known here.
pub(crate) const MINOR_NEWEST: u32 = 45;
/// Oldest minor version that is served (Linux 5.4).
pub(crate) const MINOR_OLDEST: u32 = 31;

/// Operation codes.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Capability bits of INIT; bits 32 and up travel in `flags2`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub(crate) const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Commands to the device by `ioctl`.
pub(crate) mod device {
    /// Of all of them.
    pub(crate) const GROUP: u8 = 229;
    /// Takes a [`super::BackingMap`]; gives the number by which the file is named from then on.
    pub(crate) const BACKING_OPEN: u8 = 1;
    /// Takes that number.
    pub(crate) const BACKING_CLOSE: u8 = 2;
}

/// Commands to the device that a ring carries.
pub(crate) mod ring {
    /// Lends a header and a payload to a queue, and waits for a request.
    pub(crate) const REGISTER: u32 = 1;
    /// Answers a request, and waits for the next.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
    /// Where the operation's own structure lies in the header, in bytes.
    pub(crate) const ARGUMENTS_AT: usize = 128;
    /// Where [`super::RingEntry`] lies in the header, in bytes.
    pub(crate) const ENTRY_AT: usize = 256;
    /// Smallest payload that the kernel takes, in bytes, however little is written at once.
    pub(crate) const PAYLOAD_BYTES_MIN: usize = 8192;
}

/// Bits that say which fields of SETATTR are meant.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

pub(crate) const GETATTR_FH: u32 = 1 << 0;
pub(crate) const LK_FLOCK: u32 = 1 << 0;
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const RELEASE_FLUSH: u32 = 1 << 0;
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
pub(crate) const NOTIFY_EXPIRE_ONLY: u32 = 1 << 0;
/// Extension type of the supplementary group list.
pub(crate) const EXT_GROUPS: u32 = 32;

/// Codes of messages that the server sends by itself.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const RETRIEVE: i32 = 5;
    pub(crate) const DELETE: i32 = 6;
}

macro_rules! incoming {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

incoming! {
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { flags: u32, dummy: u32, fh: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32 }
    GetxattrIn { size: u32, padding: u32 }
    FileLock { start: u64, end: u64, typ: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn { mask: u32, padding: u32 }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InterruptIn { unique: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    ExtHeader { size: u32, typ: u32 }
    /// A file that the kernel is to use by itself.
    BackingMap { fd: i32, flags: u32, padding: u64 }
    /// How much of the payload is used; in both directions.
    RingEntry { flags: u64, commit_id: u64, payload_bytes: u32, padding: u32, reserved: u64 }
}

macro_rules! outgoing {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

outgoing! {
    OutHeader { len: u32, error: i32, unique: u64 }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    OpenOut { fh: u64, open_flags: u32, backing_id: u32 }
    CreateOut { entry: EntryOut, open: OpenOut }
    WriteOut { size: u32, padding: u32 }
    CopyOut64 { bytes: u64 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut { size: u32, padding: u32 }
    LkOut { start: u64, end: u64, typ: u32, pid: u32 }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    LseekOut { offset: u64 }
    Dirent { ino: u64, off: u64, namelen: u32, typ: u32 }
    InvalInodeOut { ino: u64, off: i64, len: i64 }
    InvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    DeleteOut { parent: u64, child: u64, namelen: u32, padding: u32 }
    RetrieveOut { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
    RingCommand { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6] }
    SxTime { seconds: i64, nanoseconds: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
}

/// Attributes of a node, in the kernel's own layout so that a reply needs no conversion.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Attr {
    /// Inode number that programs see.
    pub ino: u64,
    /// Size, in bytes.
    pub size: u64,
    /// Allocated space, in blocks of 512 bytes.
    pub blocks: u64,
    /// Time of last access, in seconds.
    pub atime: i64,
    /// Time of last change of the data, in seconds.
    pub mtime: i64,
    /// Time of last change of the attributes, in seconds.
    pub ctime: i64,
    /// Nanoseconds of `atime`.
    pub atimensec: u32,
    /// Nanoseconds of `mtime`.
    pub mtimensec: u32,
    /// Nanoseconds of `ctime`.
    pub ctimensec: u32,
    /// File type and permission bits (`st_mode`).
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit form.
    pub rdev: u32,
    /// Preferred block size, in bytes.
    pub blksize: u32,
    /// Attribute flags of the protocol; 0.
    pub flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_the_kernel_checks() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<CreateOut>(), 144);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<ReadIn>(), 40);
        assert_eq!(size_of::<LkIn>(), 48);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<StatxOut>(), 288);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<RetrieveOut>(), 32);
        assert_eq!(size_of::<RingEntry>(), 32);
        assert_eq!(size_of::<RingCommand>(), 24);
        assert_eq!(size_of::<BackingMap>(), 16);
    }
}
