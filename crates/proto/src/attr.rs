//! What an inode says about itself on the wire: kinds, times, attributes and changes of them. Owns
//! no rule about who may change what; permissions are the business of `posix`.

use serde::{Deserialize, Serialize};

use crate::class::ObjectClass;
use crate::ids::Oid;
use crate::limits::{CHUNK_BYTES_DEFAULT, DIRECTORY_BYTES};

/// The extended attribute that says what a program file can do for whoever runs it (`capabilities(7)`). A write
/// takes it away.
pub const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// A point in time since the epoch, as POSIX `timespec`. `nanos` is below 1,000,000,000.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl Timestamp {
    /// So much later.
    #[must_use]
    pub fn after(self, time: std::time::Duration) -> Self {
        let nanos = u64::from(self.nanos) + u64::from(time.subsec_nanos());
        let secs = self.secs.saturating_add_unsigned(time.as_secs() + nanos / 1_000_000_000);
        Self { secs, nanos: (nanos % 1_000_000_000) as u32 }
    }
}

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file: an array object with records of one byte.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link; its text stands in the inode.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A UNIX-domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The `S_IFMT` bits.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind that the `S_IFMT` bits of `mode` name.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// What new entries of a directory get unless their creator says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inheritance {
    /// Class of new files.
    pub file_class: ObjectClass,
    /// Class of new directories.
    pub dir_class: ObjectClass,
    /// Chunk size of new files, in bytes.
    pub chunk_bytes: u32,
}

impl Default for Inheritance {
    fn default() -> Self {
        Self {
            file_class: ObjectClass::SX,
            dir_class: ObjectClass::SX,
            chunk_bytes: CHUNK_BYTES_DEFAULT,
        }
    }
}

/// The attributes of an inode, complete with the size and times that its shards know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// The object.
    pub oid: Oid,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky (`mode & 07777`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links; for a directory 2 plus its subdirectories, 0 once it is removed.
    pub nlink: u32,
    /// Length in bytes: of the data, or of the symlink text; 0 for the rest.
    pub size: u64,
    /// Storage in use, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
    /// Birth; see [`DirectoryChange`].
    pub btime: Timestamp,
    /// Device number of a device node (`dev_t`). A regular file may keep there what its maker put in.
    pub rdev: u64,
    /// Chunk size of a regular file, in bytes; for a directory that of new files.
    pub chunk_bytes: u32,
    /// Whether a regular file may have data beyond chunk 0.
    pub striped: bool,
    /// Whether the object has extended attributes.
    pub has_xattrs: bool,
    /// What new entries inherit; directories only.
    pub inheritance: Option<Inheritance>,
    /// The directory above; directories only. The root is its own parent.
    pub parent: Option<Oid>,
}

impl Attr {
    /// What an engine tells of an object that was made at this time in this directory, and of which nothing
    /// has been changed since.
    pub fn of_new(oid: Oid, new: &NewInode, dir: Oid, born: Timestamp) -> Self {
        let is_directory = new.kind == FileKind::Directory;
        let inheritance = is_directory.then(|| new.inheritance.unwrap_or_default());
        Self {
            oid,
            kind: new.kind,
            mode: new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            nlink: if is_directory { 2 } else { 1 },
            size: if is_directory { DIRECTORY_BYTES } else { new.symlink_text.len() as u64 },
            blocks_512: if is_directory { DIRECTORY_BYTES / 512 } else { 0 },
            atime: born,
            mtime: born,
            ctime: born,
            btime: born,
            rdev: new.rdev,
            chunk_bytes: inheritance.map_or(new.chunk_bytes, |given| given.chunk_bytes),
            striped: false,
            has_xattrs: false,
            inheritance,
            parent: is_directory.then_some(dir),
        }
    }
}

/// What of a file decides who may write to it or change its attributes, what that takes from it, and where
/// its data lie. Whoever has judged a change by these says so with it, so that it is carried out only if
/// they still hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileGuard {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Chunk size, in bytes.
    pub chunk_bytes: u32,
    /// Whether it has extended attributes.
    pub has_xattrs: bool,
}

impl FileGuard {
    /// What the attributes say.
    pub fn of(attr: &Attr) -> Self {
        let Attr { mode, uid, gid, chunk_bytes, has_xattrs, .. } = *attr;
        Self { mode, uid, gid, chunk_bytes, has_xattrs }
    }
}

/// What of a directory decides who may make a name in it, and what is made there starts with. Whoever has
/// judged a creation by these may say so with it, so that it is carried out only if they still hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectoryGuard {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What new entries inherit.
    pub inheritance: Option<Inheritance>,
}

impl DirectoryGuard {
    /// What the attributes say.
    pub fn of(attr: &Attr) -> Self {
        let Attr { mode, uid, gid, inheritance, .. } = *attr;
        Self { mode, uid, gid, inheritance }
    }
}

/// What a change of a file's data shows of itself: its length and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangeMark {
    /// Length in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
}

impl ChangeMark {
    /// What the attributes say.
    pub fn of(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

/// When a directory last changed, as the creation of an entry in it tells. The reply to a creation has
/// room for the attributes of the new object and nothing else. So the time of that change stands there in
/// the place of the time of birth, and who has made the object reads it there and puts that of its other
/// times in its place: these functions are the only ones that know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryChange {
    /// When.
    pub time: Timestamp,
}

impl DirectoryChange {
    /// What stands for the time of birth in the answer to the creation.
    pub fn as_birth(self) -> Timestamp {
        self.time
    }

    /// The change that a new object was made with, as its attributes have it.
    pub fn of_newborn(attr: &Attr) -> Self {
        Self { time: attr.btime }
    }

    /// The change that a new object was made with, taken out of its attributes; its birth is then at its
    /// other times.
    pub fn take_from_newborn(attr: &mut Attr) -> Self {
        let change = Self::of_newborn(attr);
        attr.btime = attr.ctime;
        change
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// The engine's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// A change of attributes; what is `None` stays. All of it is applied in one atomic step, but the
/// truncation of a striped file, which comes first and shard by shard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AttrChange {
    /// New permission bits (`mode & 07777`).
    pub mode: Option<u16>,
    /// Bits to take away from the mode as it is then, such as setuid on a write.
    pub clear_mode_bits: u16,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New time of last access.
    pub atime: Option<SetTime>,
    /// New time of last change of contents.
    pub mtime: Option<SetTime>,
    /// New length in bytes; regular files only.
    pub size: Option<u64>,
    /// New inheritance; directories only.
    pub inheritance: Option<Inheritance>,
    /// New chunk size in bytes; regular files that have no data yet only.
    pub chunk_bytes: Option<u32>,
}

/// What a new inode starts with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewInode {
    /// The type.
    pub kind: FileKind,
    /// Permission bits (`mode & 07777`), umask already applied.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device nodes.
    pub rdev: u64,
    /// Text, for symlinks.
    pub symlink_text: Vec<u8>,
    /// Class of the object.
    pub class: ObjectClass,
    /// Chunk size in bytes, for regular files.
    pub chunk_bytes: u32,
    /// What its entries inherit, for directories.
    pub inheritance: Option<Inheritance>,
}
