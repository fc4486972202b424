//! Requests and replies between a client and an engine, and between engines. Owns their meaning;
//! the bytes are [`crate::frame`]'s. Names and values in requests borrow from the receive buffer.

use serde::{Deserialize, Serialize};

use crate::attr::{Attr, AttrChange, Inheritance, NewInode, Timestamp};
use crate::ids::{ContainerId, EngineId, Incarnation, Oid, PoolId, SessionId, TargetId};
use crate::pool_map::PoolMap;
use crate::status::Status;
use crate::transaction::{Action, Entry, Outcome, TransactionId};

/// The first bytes of every connection.
pub const MAGIC: [u8; 8] = *b"AZEKURA\n";
/// The protocol version. Both sides must have the same.
pub const VERSION: u32 = 1;
/// Bytes of a handshake nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a handshake proof (HMAC-SHA-256).
pub const PROOF_BYTES: usize = 32;

/// Who opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A client.
    Client,
    /// Another engine of the pool.
    Engine,
}

/// Opens a connection (first message, from the side that connects).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// The pool that the caller means.
    pub pool: PoolId,
    /// The caller's session.
    pub session: SessionId,
    /// Who calls.
    pub role: Role,
    /// Drawn at random for this connection.
    pub nonce: [u8; NONCE_BYTES],
}

/// The engine's answer to [`Hello`]: its proof, and its own challenge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// Drawn at random for this connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Shows that the engine knows the pool's secret.
    pub proof: [u8; PROOF_BYTES],
}

/// The caller's proof that it knows the pool's secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// HMAC over both nonces.
    pub proof: [u8; PROOF_BYTES],
}

/// The engine lets the caller in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Which engine this is.
    pub engine: EngineId,
    /// Which run of it.
    pub incarnation: Incarnation,
    /// Version of its pool map.
    pub map_version: u32,
    /// The engine did not know the session: a caller that believes to hold objects or locks there
    /// has lost them, and claims them again.
    pub fresh_session: bool,
}

/// Why an engine does not let the caller in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another protocol version.
    #[error(
        "the engine speaks protocol version {engine}, this program version {VERSION}: install the same release on both"
    )]
    Version {
        /// The engine's version.
        engine: u32,
    },
    /// The engine serves another pool.
    #[error("the engine at this address serves another pool: is the pool file old?")]
    WrongPool,
    /// The proof is wrong.
    #[error("the engine refused the pool secret: is the pool file the one of this pool?")]
    WrongSecret,
    /// As many connections or sessions as the engine serves are open.
    #[error("the engine has no room for another connection")]
    Full,
    /// The engine is about to stop.
    #[error("the engine is stopping")]
    Stopping,
}

/// What stands in front of each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestHead {
    /// The target that is to do it.
    pub target: TargetId,
    /// Version of the pool map that the target was computed with.
    pub map_version: u32,
    /// The slot of the session: at most one request with an exact retry is under way per slot.
    pub slot: u16,
    /// Number within the slot; grows with every request that changes something.
    pub sequence: u64,
    /// The request may have been carried out already: its first answer is wanted again.
    pub resent: bool,
}

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

/// What a scan for `fs check` walks over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ScanKind {
    /// Directory entries.
    Entries,
    /// Inodes.
    Inodes,
    /// Shards of directories.
    DirShards,
    /// Files with object data.
    DataShards,
    /// Transactions that are not finished.
    Transactions,
}

/// One record found by a scan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ScanItem {
    /// A directory entry.
    Entry {
        /// The directory.
        dir: Oid,
        /// The name.
        name: Vec<u8>,
        /// What it leads to.
        entry: Entry,
    },
    /// An inode, with what its own record says (no shard is asked).
    Inode {
        /// The record.
        attr: Attr,
        /// Removed, but still open somewhere or not yet reclaimed.
        orphan: bool,
    },
    /// A shard of a directory.
    DirShard {
        /// The directory.
        dir: Oid,
        /// Its counts.
        stat: DirShardStat,
    },
    /// A file with object data.
    DataShard {
        /// The object.
        oid: Oid,
        /// Its shard.
        shard: u16,
        /// Length in bytes.
        bytes: u64,
    },
    /// A transaction that is prepared or decided but not finished.
    Transaction {
        /// Which.
        id: TransactionId,
        /// Decided here, or waiting for a decision.
        decided: bool,
    },
}

/// A repair that `fs check` asks for, on records of one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Repair {
    /// Take away an entry that leads nowhere.
    RemoveEntry {
        /// The directory.
        dir: Oid,
        /// The name.
        name: Vec<u8>,
    },
    /// Put an entry for an inode that no entry leads to.
    InsertEntry {
        /// The directory.
        dir: Oid,
        /// The name.
        name: Vec<u8>,
        /// The inode.
        entry: Entry,
    },
    /// Correct a link count.
    SetLinks {
        /// The inode.
        oid: Oid,
        /// The number of entries that lead to it.
        links: u32,
    },
    /// Correct the directory above a directory.
    SetParent {
        /// The directory.
        dir: Oid,
        /// The directory whose entry leads to it.
        parent: Oid,
    },
    /// Count the entries of a directory's shard anew.
    RecountShard {
        /// The directory.
        dir: Oid,
    },
    /// Remove an inode and its data.
    RemoveObject {
        /// The inode.
        oid: Oid,
    },
    /// Remove one file with object data that belongs to no inode.
    RemoveData {
        /// The object.
        oid: Oid,
        /// Its shard.
        shard: u16,
    },
}

/// What one shard of a directory knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirShardStat {
    /// Entries in this shard.
    pub entries: u64,
    /// Those that are directories.
    pub subdirs: u32,
    /// When an entry last came or went.
    pub changed: Timestamp,
}

/// What one shard of an array knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardStat {
    /// Length of the shard's file in bytes.
    pub bytes: u64,
    /// Storage in use, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last write.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
}

/// Container properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Container {
    /// The id.
    pub id: ContainerId,
    /// The name.
    pub name: String,
    /// Its root directory.
    pub root: Oid,
    /// Defaults of the root, which new directories inherit.
    pub inheritance: Inheritance,
}

/// What is asked of an engine.
///
/// The target of the head is: for entry requests the one that holds the entry, for inode and lock
/// requests the object's home, for shard requests the one that holds the shard, for container
/// requests target 0, else any target of the engine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    // -- sessions and pool
    /// Nothing; keeps the session alive. Answer: `Done`.
    Ping,
    /// The session ends: drop its holds and locks now. Answer: `Done`.
    Goodbye,
    /// After the engine restarted: this session still has these open and locked.
    /// Answer: `Done`; `Locked` if a lock is lost, `Stale` if an object is.
    Claim {
        /// Objects held open.
        holds: Vec<Oid>,
        /// Locks held.
        locks: Vec<(Oid, Lock)>,
    },
    /// The pool map. Answer: `Map`.
    Map,
    /// Become engine `engine` of a new pool. Taken only by an engine that belongs to none and was
    /// reached with the zero pool id. Answer: `Done`.
    Adopt {
        /// The map of the pool.
        map: PoolMap,
        /// Which engine of the map this one is.
        engine: EngineId,
    },
    /// What the engine says of itself. Answer: `Report`.
    Report,
    /// Space of the target. Answer: `Space`.
    Space,

    // -- containers
    /// Make a container. Answer: `Container`.
    ContainerCreate {
        /// Its name.
        name: String,
        /// Defaults.
        inheritance: Inheritance,
    },
    /// Find a container by name. Answer: `Container`.
    ContainerOpen {
        /// Its name.
        name: &'a str,
    },
    /// All containers. Answer: `Containers`.
    ContainerList,
    /// Remove a container with all that is in it. Answer: `Done`.
    ContainerDestroy {
        /// Its name.
        name: &'a str,
    },
    /// Forget the name and give the container's data to reclaim on this target (from target 0).
    ContainerReclaim {
        /// Which.
        container: ContainerId,
    },
    /// Change the defaults. Answer: `Container`.
    ContainerChange {
        /// Its name.
        name: &'a str,
        /// New defaults.
        inheritance: Inheritance,
    },

    // -- directory entries
    /// What a name leads to. Answer: `Entry`, with attributes if the inode's home is this engine.
    Lookup {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
    },
    /// A new object and its entry. Answer: `Created`, or `Entry` if the name exists already.
    Create {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
        /// What it starts with.
        inode: NewInode,
        /// Hold it open for this session (also if it exists already and is local).
        hold: bool,
    },
    /// A new object without an entry, held open for this session (`O_TMPFILE`).
    /// Answer: `Created`.
    CreateUnlinked {
        /// The container.
        container: ContainerId,
        /// What it starts with.
        inode: NewInode,
    },
    /// Remove an entry that leads to anything but a directory. Answer: `Done`.
    Unlink {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
    },
    /// Remove an empty directory. Answer: `Done`.
    RemoveDirectory {
        /// The directory above.
        dir: Oid,
        /// The name.
        name: &'a [u8],
    },
    /// Another name for an object. Answer: `Done`.
    Link {
        /// The object.
        oid: Oid,
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
    },
    /// Move an entry. Sent to the target of the new name. Answer: `Done`.
    Rename {
        /// The old directory.
        from_dir: Oid,
        /// The old name.
        from_name: &'a [u8],
        /// The new directory.
        to_dir: Oid,
        /// The new name.
        to_name: &'a [u8],
        /// What happens to what is there.
        mode: RenameMode,
    },
    /// A page of one shard of a directory, in cookie order. Answer: `Entries`.
    ReadDirectory {
        /// The directory.
        dir: Oid,
        /// Entries after this cookie; 0 starts the shard.
        after: u64,
        /// About this many bytes of entries.
        page_bytes: u32,
        /// With attributes where the inode is local and narrow.
        with_attrs: bool,
    },
    /// What the target's shard of a directory knows. Answer: `DirShard`.
    DirShard {
        /// The directory.
        dir: Oid,
    },

    // -- inodes
    /// Attributes. Answer: `Attr`.
    GetAttr {
        /// The inode.
        oid: Oid,
    },
    /// Change attributes. Answer: `Attr`, as they are then.
    SetAttr {
        /// The inode.
        oid: Oid,
        /// The change.
        change: AttrChange,
    },
    /// Hold an object open for this session. Answer: `Attr`.
    Open {
        /// The inode.
        oid: Oid,
    },
    /// This session no longer has these objects open. **No answer.**
    Release {
        /// The objects.
        oids: Vec<Oid>,
    },
    /// The file is going to have data beyond chunk 0. Answer: `Done`.
    Widen {
        /// The inode.
        oid: Oid,
    },
    /// The text of a symlink. Answer: `Bytes`.
    ReadLink {
        /// The inode.
        oid: Oid,
    },
    /// An extended attribute. Answer: `Bytes`.
    GetXattr {
        /// The inode.
        oid: Oid,
        /// Its name.
        name: &'a [u8],
    },
    /// Set an extended attribute. Answer: `Done`.
    SetXattr {
        /// The inode.
        oid: Oid,
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Create, replace or either.
        mode: XattrMode,
    },
    /// Remove an extended attribute. Answer: `Done`.
    RemoveXattr {
        /// The inode.
        oid: Oid,
        /// Its name.
        name: &'a [u8],
    },
    /// Names of the extended attributes, each ended by a zero byte. Answer: `Bytes`.
    ListXattrs {
        /// The inode.
        oid: Oid,
    },

    // -- data
    /// Bytes of a shard. Answer: `Data` with bulk; fewer bytes where the shard's file ends.
    Read {
        /// The shard.
        data: ShardRef,
        /// Offset in the shard's file, in bytes.
        offset: u64,
        /// How many bytes, at most the bulk bound.
        bytes: u32,
    },
    /// Write the bulk data. Answer: `Done`.
    Write {
        /// The shard.
        data: ShardRef,
        /// Offset in the shard's file, in bytes.
        offset: u64,
    },
    /// Write the bulk data at the end of the file, atomically. Sent to the object's home.
    /// Answer: `Appended`.
    Append {
        /// The file.
        oid: Oid,
    },
    /// Cut the shard's file to at most `bytes`, or make it exactly that long.
    /// Answer: `Done`.
    ShardTruncate {
        /// The shard.
        data: ShardRef,
        /// Local length in bytes.
        bytes: u64,
        /// Grow it to that length if it is shorter.
        exactly: bool,
    },
    /// Length, blocks and times of the shard's file. Answer: `Shard`.
    ShardStat {
        /// The shard.
        data: ShardRef,
    },
    /// `fallocate` on a range of the shard's file. Answer: `Done`.
    ShardAllocate {
        /// The shard.
        data: ShardRef,
        /// Local offset in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// What to do.
        what: Allocation,
    },
    /// Next data (or hole) of the shard's file at or after an offset. Answer: `Offset`.
    ShardSeek {
        /// The shard.
        data: ShardRef,
        /// Local offset in bytes.
        offset: u64,
        /// Look for a hole instead of data.
        hole: bool,
    },
    /// Set the time of last write. Answer: `Done`.
    ShardTouch {
        /// The shard.
        data: ShardRef,
        /// The time.
        mtime: Timestamp,
    },
    /// Make the shard's data (if it exists) and the target's key-values durable.
    /// Answer: `Done`.
    Sync {
        /// The shard; `None` for the key-values alone.
        data: Option<ShardRef>,
    },
    /// Remove the shard's file. Answer: `Done`.
    ShardRemove {
        /// The shard.
        data: ShardRef,
    },

    // -- key-values of the object API
    /// A serial number for an object id. Answer: `Serial`.
    AllocateSerial,
    /// A single value. Answer: `Bytes`.
    ValueGet {
        /// The object.
        oid: Oid,
        /// Distribution key.
        dkey: &'a [u8],
        /// Attribute key.
        akey: &'a [u8],
    },
    /// Atomic updates of single values on one target. Answer: `Done`.
    ValueUpdate {
        /// The object.
        oid: Oid,
        /// The updates.
        #[serde(borrow)]
        updates: Vec<ValueUpdate<'a>>,
    },
    /// Remove all values under a dkey (or of the whole object). Answer: `Done`.
    ValuePunch {
        /// The object.
        oid: Oid,
        /// The dkey; `None`: all of this target's.
        dkey: Option<&'a [u8]>,
    },
    /// Keys in order, a page. Answer: `Keys`.
    ValueList {
        /// The object.
        oid: Oid,
        /// `None` lists dkeys; a dkey lists its akeys.
        dkey: Option<&'a [u8]>,
        /// After this key.
        after: Option<&'a [u8]>,
        /// At most so many.
        limit: u32,
    },

    // -- locks
    /// Take a lock, or weaken or strengthen one. Answer: `Done`, or status `Locked`.
    LockAcquire {
        /// The file.
        oid: Oid,
        /// The lock.
        lock: Lock,
        /// Wait for up to [`crate::limits::LOCK_WAIT_SLICE_MS`] before `Locked` is answered.
        wait: bool,
    },
    /// Give back a range. Answer: `Done`.
    LockRelease {
        /// The file.
        oid: Oid,
        /// Which table, owner and range; pid and mode do not count.
        lock: Lock,
    },
    /// Which lock is in the way of this one. Answer: `LockInTheWay`.
    LockTest {
        /// The file.
        oid: Oid,
        /// The lock that one would like.
        lock: Lock,
    },

    // -- between engines
    /// First phase: check and reserve. Answer: `Done`, or why not.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// This target's part.
        actions: Vec<Action>,
    },
    /// Second phase: do it. Answer: `Done`, also if it was done before.
    Commit {
        /// The transaction.
        id: TransactionId,
    },
    /// Forget it. Answer: `Done`.
    Abort {
        /// The transaction.
        id: TransactionId,
    },
    /// Asked of the coordinator. Answer: `Outcome`.
    AskOutcome {
        /// The transaction.
        id: TransactionId,
    },
    /// Whether the directory is there and not being removed. Asked of its home before the first
    /// entry goes into another shard, and of every directory above before one is moved.
    /// Answer: `Parent`, or status `NotFound` or `Busy`.
    AskDirectory {
        /// The directory.
        dir: Oid,
    },

    // -- check and repair
    /// A page of raw records. Answer: `Scanned`.
    Scan {
        /// Of what.
        kind: ScanKind,
        /// Of this container.
        container: ContainerId,
        /// Where the last page ended.
        after: Option<Vec<u8>>,
    },
    /// Repair a record. Answer: `Done`.
    Repair {
        /// What to do.
        repair: Repair,
    },
}

impl Request<'_> {
    /// Whether the engine answers; the one request without an answer is `Release`.
    pub fn has_reply(&self) -> bool {
        !matches!(self, Self::Release { .. })
    }

    /// Whether doing it twice differs from doing it once, so that it needs an exact retry.
    pub fn needs_exact_retry(&self) -> bool {
        matches!(
            self,
            Self::ContainerCreate { .. }
                | Self::ContainerDestroy { .. }
                | Self::Create { .. }
                | Self::CreateUnlinked { .. }
                | Self::Unlink { .. }
                | Self::RemoveDirectory { .. }
                | Self::Link { .. }
                | Self::Rename { .. }
                | Self::SetXattr { .. }
                | Self::RemoveXattr { .. }
                | Self::Append { .. }
                | Self::ValueUpdate { .. }
        )
    }

    /// The name under which the request is counted and logged.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Goodbye => "goodbye",
            Self::Claim { .. } => "claim",
            Self::Map => "map",
            Self::Adopt { .. } => "adopt",
            Self::Report => "report",
            Self::Space => "space",
            Self::ContainerCreate { .. } => "container_create",
            Self::ContainerOpen { .. } => "container_open",
            Self::ContainerList => "container_list",
            Self::ContainerDestroy { .. } => "container_destroy",
            Self::ContainerReclaim { .. } => "container_reclaim",
            Self::ContainerChange { .. } => "container_change",
            Self::Lookup { .. } => "lookup",
            Self::Create { .. } => "create",
            Self::CreateUnlinked { .. } => "create_unlinked",
            Self::Unlink { .. } => "unlink",
            Self::RemoveDirectory { .. } => "remove_directory",
            Self::Link { .. } => "link",
            Self::Rename { .. } => "rename",
            Self::ReadDirectory { .. } => "read_directory",
            Self::DirShard { .. } => "dir_shard",
            Self::GetAttr { .. } => "get_attr",
            Self::SetAttr { .. } => "set_attr",
            Self::Open { .. } => "open",
            Self::Release { .. } => "release",
            Self::Widen { .. } => "widen",
            Self::ReadLink { .. } => "read_link",
            Self::GetXattr { .. } => "get_xattr",
            Self::SetXattr { .. } => "set_xattr",
            Self::RemoveXattr { .. } => "remove_xattr",
            Self::ListXattrs { .. } => "list_xattrs",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Append { .. } => "append",
            Self::ShardTruncate { .. } => "shard_truncate",
            Self::ShardStat { .. } => "shard_stat",
            Self::ShardAllocate { .. } => "shard_allocate",
            Self::ShardSeek { .. } => "shard_seek",
            Self::ShardTouch { .. } => "shard_touch",
            Self::Sync { .. } => "sync",
            Self::ShardRemove { .. } => "shard_remove",
            Self::AllocateSerial => "allocate_serial",
            Self::ValueGet { .. } => "value_get",
            Self::ValueUpdate { .. } => "value_update",
            Self::ValuePunch { .. } => "value_punch",
            Self::ValueList { .. } => "value_list",
            Self::LockAcquire { .. } => "lock_acquire",
            Self::LockRelease { .. } => "lock_release",
            Self::LockTest { .. } => "lock_test",
            Self::Prepare { .. } => "prepare",
            Self::Commit { .. } => "commit",
            Self::Abort { .. } => "abort",
            Self::AskOutcome { .. } => "ask_outcome",
            Self::AskDirectory { .. } => "ask_directory",
            Self::Scan { .. } => "scan",
            Self::Repair { .. } => "repair",
        }
    }
}

/// One entry of a directory page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub entry: Entry,
    /// Where a listing goes on after this entry. See [`DirCookie`].
    pub cookie: u64,
    /// Attributes, if they were asked for and are at hand.
    pub attr: Option<Attr>,
}

/// Where a directory listing goes on. Bits 62..51 hold the shard, 50..3 the upper 48 bits of the
/// name's hash, 2..0 the place among names with the same 48 bits. It depends on the name alone, so
/// it stays true while others insert and remove, and it never is 0, 1 or 2, which stand for the
/// start and the dot entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirCookie {
    /// The shard of the directory.
    pub shard: u16,
    /// Upper 48 bits of the name's hash, never 0.
    pub hash: u64,
    /// Place among equals, 0 to 7.
    pub place: u8,
}

impl DirCookie {
    /// The 48 bits that order the entries of a shard.
    pub fn order_bits(name_hash: u64) -> u64 {
        (name_hash >> 16).max(1)
    }

    /// As the number that readdir gives out.
    pub fn encode(self) -> u64 {
        u64::from(self.shard) << 51 | self.hash << 3 | u64::from(self.place & 7)
    }

    /// From the number that readdir gave out.
    pub fn decode(cookie: u64) -> Self {
        Self {
            shard: (cookie >> 51) as u16 & 0xfff,
            hash: cookie >> 3 & 0xffff_ffff_ffff,
            place: cookie as u8 & 7,
        }
    }
}

/// Space of one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceStat {
    /// Size of the file system below, in bytes.
    pub total_bytes: u64,
    /// Free for ordinary users, in bytes.
    pub available_bytes: u64,
    /// Names the file system below, so that targets sharing one are counted once.
    pub device: u64,
    /// Inodes on the target, about.
    pub objects: u64,
}

/// One target of an engine's report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetReport {
    /// Which.
    pub target: TargetId,
    /// Directory of the target on the engine's host.
    pub path: String,
    /// Its space.
    pub space: SpaceStat,
    /// Removed objects that wait for reclaim.
    pub reclaim_backlog: u64,
    /// Transactions not finished.
    pub transactions: u64,
}

/// What an engine says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineReport {
    /// Which.
    pub engine: EngineId,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Whether it is draining.
    pub stopping: bool,
    /// Its targets.
    pub targets: Vec<TargetReport>,
    /// Sessions it knows.
    pub sessions: u64,
    /// Connections open.
    pub connections: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Bytes read by clients since the start.
    pub read_bytes: u64,
    /// Bytes written by clients since the start.
    pub written_bytes: u64,
    /// Requests per second over the last seconds.
    pub requests_per_s: u64,
    /// Bytes read per second over the last seconds.
    pub read_bytes_per_s: u64,
    /// Bytes written per second over the last seconds.
    pub written_bytes_per_s: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

/// An answer. It comes in the order of the requests of its connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// The pool map.
    Map(PoolMap),
    /// The engine's report.
    Report(Box<EngineReport>),
    /// Space of a target.
    Space(SpaceStat),
    /// A container.
    Container(Container),
    /// All containers.
    Containers(Vec<Container>),
    /// What a name leads to.
    Entry {
        /// The entry.
        entry: Entry,
        /// Attributes, if the inode's home is at this engine; else ask its home.
        attr: Option<Box<Attr>>,
    },
    /// A new object.
    Created(Box<Attr>),
    /// A page of a directory's shard.
    Entries {
        /// The entries, in cookie order.
        entries: Vec<DirEntry>,
        /// The shard ends here.
        end: bool,
    },
    /// A directory's shard.
    DirShard(DirShardStat),
    /// Attributes.
    Attr(Box<Attr>),
    /// A value or text.
    Bytes(Vec<u8>),
    /// The bulk data has this many bytes (also in the frame's head).
    Data {
        /// How many.
        bytes: u32,
        /// From shard 0 of a file: whether it is wide, so that a short read need not be its end.
        wide: bool,
    },
    /// Where the data went.
    Appended {
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// A shard's file; `None` if it has none.
    Shard(Option<ShardStat>),
    /// A local offset; `None` if there is none before the end.
    Offset(Option<u64>),
    /// A serial number.
    Serial(u64),
    /// Keys in order.
    Keys {
        /// The keys.
        keys: Vec<Vec<u8>>,
        /// No more after these.
        end: bool,
    },
    /// A lock in the way, if any.
    LockInTheWay(Option<Lock>),
    /// How a transaction ended.
    Outcome(Outcome),
    /// The directory above.
    Parent(Oid),
    /// Records of a scan.
    Scanned {
        /// The records.
        items: Vec<ScanItem>,
        /// Where to go on; `None` at the end.
        next: Option<Vec<u8>>,
    },
}

/// What a reply frame's body holds.
pub type Answer = Result<Reply, Status>;

/// The kind of an entry whose object has an inode of this kind.
pub fn entry_of(attr: &Attr) -> Entry {
    Entry { oid: attr.oid, kind: attr.kind }
}

/// Whether a directory entry may have this name: 1 to 255 bytes, no slash, no zero byte, not a dot
/// entry.
///
/// # Errors
/// `NameTooLong` or `Invalid`.
pub fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.len() > crate::limits::NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        return Err(Status::Invalid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[test]
    fn a_request_with_borrowed_names_survives_the_wire() {
        let head = RequestHead {
            target: TargetId(3),
            map_version: 1,
            slot: 2,
            sequence: 77,
            resent: false,
        };
        let dir = Oid::new(ContainerId(1), crate::ObjectClass::SX, TargetId(0), 1);
        let request = Request::Lookup { dir, name: b"caf\xc3\xa9\xff" };
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &(head, &request), 0).unwrap();
        let back: (RequestHead, Request<'_>) =
            frame::decode_borrowed(&frame[frame::HEAD_BYTES..]).unwrap();
        assert_eq!(back, (head, request));
    }

    #[test]
    fn cookies_lead_back_and_avoid_the_dots() {
        for (shard, hash, place) in [(0, 0, 0), (4095, u64::MAX, 7), (3, 0x1234_5678_9abc_def0, 1)]
        {
            let cookie = DirCookie { shard, hash: DirCookie::order_bits(hash), place };
            assert_eq!(DirCookie::decode(cookie.encode()), cookie);
            assert!(cookie.encode() > 2 && i64::try_from(cookie.encode()).is_ok());
        }
    }

    #[test]
    fn names_that_no_entry_may_have() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(check_name(name), Err(Status::Invalid));
        }
        assert_eq!(check_name(&[b'a'; 256]), Err(Status::NameTooLong));
        assert_eq!(check_name(&[b'a'; 255]), Ok(()));
    }
}
