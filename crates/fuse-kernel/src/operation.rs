//! What the kernel can ask for, as one closed enum that borrows names and data from the read
//! buffer. Owns the typed form only; taking messages apart is `request`'s work.

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time at which the request is carried out.
    Now,
    /// This time.
    At {
        /// Seconds since 1970.
        seconds: i64,
        /// Nanoseconds, below 1,000,000,000.
        nanoseconds: u32,
    },
}

/// The attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Handle of an open file, if the change came through one.
    pub fh: Option<u64>,
    /// New mode.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size, in bytes.
    pub size: Option<u64>,
    /// New time of access.
    pub atime: Option<SetTime>,
    /// New time of modification.
    pub mtime: Option<SetTime>,
    /// New time of attribute change: seconds and nanoseconds.
    pub ctime: Option<(i64, u32)>,
    /// Lock owner of a truncation.
    pub lock_owner: Option<u64>,
    /// The set-user and set-group bits have to go.
    pub kill_suidgid: bool,
}

/// How a byte range is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Shared (`F_RDLCK`).
    Read,
    /// Exclusive (`F_WRLCK`).
    Write,
    /// None (`F_UNLCK`).
    Unlock,
}

/// A lock or a lock to test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// Handle of the open file.
    pub fh: u64,
    /// The kernel's name for whoever holds or asks.
    pub owner: u64,
    /// A whole-file `flock`, not an `fcntl` range.
    pub flock: bool,
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// First byte of the range.
    pub start: u64,
    /// Last byte of the range, inclusive; `i64::MAX` for "to the end".
    pub end: u64,
    /// Process that asks.
    pub pid: u32,
}

/// A write to an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// Handle of the open file.
    pub fh: u64,
    /// Where the data go, in bytes.
    pub offset: u64,
    /// What is written.
    pub data: &'a [u8],
    /// Whose locks count, if that matters.
    pub lock_owner: Option<u64>,
    /// Flags of the open file.
    pub flags: u32,
    /// From the page cache: the handle is a guess.
    pub cached: bool,
    /// The set-user and set-group bits have to go.
    pub kill_suidgid: bool,
}

/// Some entries of an open directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDir {
    /// Handle of the open directory.
    pub fh: u64,
    /// The cookie after which the entries come.
    pub cookie: u64,
    /// Room for the answer, in bytes.
    pub size: u32,
    /// With attributes.
    pub plus: bool,
}

/// A copy between two open files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRange {
    /// Handle of the source.
    pub fh_in: u64,
    /// Where to read, in bytes.
    pub offset_in: u64,
    /// Node of the destination.
    pub node_out: u64,
    /// Handle of the destination.
    pub fh_out: u64,
    /// Where to write, in bytes.
    pub offset_out: u64,
    /// How much, in bytes.
    pub length: u64,
    /// As of `copy_file_range`.
    pub flags: u64,
    /// Answered with 64 bits.
    pub wide: bool,
}

/// One thing to do. All names are without their final zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the names of the calls' own manual pages")]
pub enum Operation<'a> {
    /// Find an entry of the directory.
    Lookup { name: &'a [u8] },
    /// Attributes.
    Getattr { fh: Option<u64> },
    /// Attributes with the creation time.
    Statx { fh: Option<u64>, flags: u32, mask: u32 },
    /// Change attributes.
    Setattr(SetAttr),
    /// Text of a symlink.
    Readlink,
    /// Make a symlink.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// Make a file, fifo, socket or device node.
    Mknod { name: &'a [u8], mode: u32, rdev: u32, umask: u32 },
    /// Make a directory.
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    /// Remove an entry that is no directory.
    Unlink { name: &'a [u8] },
    /// Remove an empty directory.
    Rmdir { name: &'a [u8] },
    /// Move an entry; `flags` as of renameat2.
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    /// Link `existing` into the directory.
    Link { existing: u64, new_name: &'a [u8] },
    /// Open a file.
    Open { flags: u32, kill_suidgid: bool },
    /// Read from an open file.
    Read { fh: u64, offset: u64, size: u32, lock_owner: Option<u64>, flags: u32 },
    /// Write to an open file.
    Write(Write<'a>),
    /// Space and inode counts.
    Statfs,
    /// The last reference to the open file is gone.
    Release { fh: u64, flags: u32, lock_owner: u64, flush: bool, flock_unlock: bool },
    /// Make data durable.
    Fsync { fh: u64, data_only: bool },
    /// Set an extended attribute; `flags` as of setxattr.
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32 },
    /// Read an extended attribute; size 0 asks for its length.
    Getxattr { name: &'a [u8], size: u32 },
    /// List names of extended attributes; size 0 asks for their length.
    Listxattr { size: u32 },
    /// Remove an extended attribute.
    Removexattr { name: &'a [u8] },
    /// One descriptor of the open file was closed.
    Flush { fh: u64, lock_owner: u64 },
    /// Open a directory.
    Opendir { flags: u32 },
    /// List a directory.
    Readdir(ReadDir),
    /// The open directory is closed.
    Releasedir { fh: u64, flags: u32 },
    /// Make a directory durable.
    Fsyncdir { fh: u64, data_only: bool },
    /// Would this lock conflict?
    Getlk(Lock),
    /// Take or give back a lock; `wait` until it is free.
    Setlk { lock: Lock, wait: bool },
    /// Check permission, where the kernel does not do it by itself.
    Access { mask: u32 },
    /// Make and open a file.
    Create { name: &'a [u8], flags: u32, mode: u32, umask: u32, kill_suidgid: bool },
    /// Make and open a file without a name in the directory.
    Tmpfile { flags: u32, mode: u32, umask: u32 },
    /// Allocate or punch; `mode` as of fallocate.
    Fallocate { fh: u64, offset: u64, length: u64, mode: u32 },
    /// Find data or a hole; `whence` as of lseek.
    Lseek { fh: u64, offset: u64, whence: u32 },
    /// Copy between two open files.
    CopyFileRange(CopyRange),
    /// Make the whole file system durable.
    Syncfs,
}
