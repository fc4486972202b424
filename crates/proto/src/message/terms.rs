//! The words that requests are made of: shards, locks, conditions, modes.

use serde::{Deserialize, Serialize};

use crate::ids::{Incarnation, Oid};

/// The data of one shard of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardRef {
    /// The object.
    pub oid: Oid,
    /// Its shard.
    pub shard: u16,
    /// Whether it is a file of the file system, which must have an inode, or a plain array.
    pub is_file: bool,
}

/// What `fallocate` does to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Allocation {
    /// Reserve space; grow the file if need be.
    Grow,
    /// Reserve space; keep the length.
    KeepSize,
    /// Make a hole; keep the length.
    PunchHole,
    /// Zeros; grow the file if need be.
    Zero,
    /// Zeros; keep the length.
    ZeroKeepSize,
}

/// Which lock table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// `fcntl` byte ranges.
    Range,
    /// `flock`, on the whole file.
    Whole,
}

/// A lock's strength.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum LockMode {
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
}

/// A lock as asked for, held or in the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// Which table.
    pub kind: LockKind,
    /// The owner within the session.
    pub owner: u64,
    /// The process to show to others.
    pub pid: u32,
    /// The strength.
    pub mode: LockMode,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` for the end of the file.
    pub end: u64,
}

/// What an update of a value requires of what was there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Condition<'a> {
    /// Nothing.
    Always,
    /// A value must be there.
    MustExist,
    /// No value may be there.
    MustNotExist,
    /// This value must be there.
    Equals(&'a [u8]),
}

/// One update of a single value; `value: None` punches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ValueUpdate<'a> {
    /// Distribution key. All updates of a batch must live on one target.
    pub dkey: &'a [u8],
    /// Attribute key.
    pub akey: &'a [u8],
    /// The new value; `None` removes it.
    pub value: Option<&'a [u8]>,
    /// What must hold before; if one condition of a batch fails nothing is done.
    #[serde(borrow)]
    pub condition: Condition<'a>,
}

/// How rename treats the new name (`renameat2`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace what is there.
    Replace,
    /// Fail if something is there.
    NoReplace,
    /// Exchange the two names.
    Exchange,
    /// Replace what is there, and leave this under the old name (`RENAME_WHITEOUT`): a character device
    /// that the client has made without a name.
    Whiteout(Oid),
}

/// How `setxattr` treats an attribute that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Must not be there.
    Create,
    /// Must be there.
    Replace,
}

/// A write lease of the names in one shard of a directory: nobody but its holder looks at them or makes
/// some while it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamesLease {
    /// The directory.
    pub dir: Oid,
    /// Its shard.
    pub shard: u16,
    /// The lease's epoch.
    pub epoch: u64,
}

/// What a change belongs to that reaches its engine through another one: when the client has given the stream up,
/// what it still brings is not carried out. Told by [`Request::Fence`](super::Request::Fence) for
/// [`RELAY_SLOT`](crate::limits::RELAY_SLOT), or by a change of a stream with a higher number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangeStream {
    /// The client numbers its streams upwards.
    pub number: u32,
    /// Of the change; grows from one to the next, in all streams of the session.
    pub sequence: u64,
    /// The run of the engine that is to carry it out, as the client has met it. Another run does not know what was
    /// fenced.
    pub run: Incarnation,
}
