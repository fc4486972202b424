//! What is asked of an engine.

use serde::{Deserialize, Serialize};

use super::check::{Repair, ScanKind};
use super::terms::{
    Allocation, ChangeStream, Lock, NamesLease, RenameMode, ShardRef, ValueUpdate, XattrMode,
};
use crate::attr::{AttrChange, DirectoryGuard, FileGuard, Inheritance, NewInode, Timestamp};
use crate::dependence::Dependences;
use crate::ids::{ContainerId, EngineId, Oid, SessionId, TargetId};
use crate::pool_map::PoolMap;
use crate::transaction::{Action, TransactionId};

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
    /// Which connection of the slot it comes over; each next one has a higher number. What an older one
    /// still brings is not carried out ([`Request::is_fenced`]).
    pub connection: u32,
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
    /// The session ends: drop its open references and locks now. Answer: `Done`.
    Goodbye,
    /// After the engine restarted: this session still has these open and locked.
    /// Answer: `Done`; `Locked` if a lock is lost, `Stale` if an object is.
    Claim {
        /// Objects held open.
        open: Vec<Oid>,
        /// Locks held.
        locks: Vec<(Oid, Lock)>,
    },
    /// The pool map. Answer: `Map`.
    Map,
    /// Become engine `engine` of a new pool: taken by an engine that belongs to none and was reached with
    /// the zero pool id. An engine of that pool takes a newer map, in which it has the targets that it
    /// has; with the map that it has it agrees. Answer: `Done`; `Exists` from an engine of another pool.
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
    /// What each name on a path leads to, as far as this engine knows: up to the first that is not there, or
    /// is not here, and to what is no directory. Answer: `Walked`.
    Walk {
        /// Where the path begins.
        dir: Oid,
        /// Names with a slash between them, at most [`crate::limits::WALK_NAMES_MAX`].
        path: &'a [u8],
        /// With the attributes of the directory where it begins.
        with_dir: bool,
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
        open: bool,
    },
    /// A new object without an entry, held open for this session (`O_TMPFILE`, or the whiteout of a rename).
    /// Answer: `Created`.
    CreateUnlinked {
        /// The container.
        container: ContainerId,
        /// What it starts with.
        inode: NewInode,
    },
    /// Remove an entry that leads to anything but a directory. Answer: `Changed`; `Done` to one
    /// that was sent again.
    Unlink {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
    },
    /// Remove an empty directory. Answer: as to `Unlink`.
    RemoveDirectory {
        /// The directory above.
        dir: Oid,
        /// The name.
        name: &'a [u8],
    },
    /// Another name for an object. Answer: as to `Unlink`.
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
        /// With attributes where the inode is local and the file is not striped.
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
    SetStriped {
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
        /// On whose behalf: that client's own write lease is nothing to wait for.
        asker: Option<SessionId>,
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
        /// On whose behalf: that client's own write lease is nothing to wait for.
        asker: Option<SessionId>,
    },
    /// Make the shard's data (if it exists) and the target's key-values durable.
    /// Answer: `Done`.
    Sync {
        /// The shard; `None` for the key-values alone.
        data: Option<ShardRef>,
        /// The shard's times need not be durable.
        data_only: bool,
    },
    /// Make everything of the target durable, all data and all key-values. Answer: `Done`.
    SyncAll,
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
    /// First phase: check and reserve. Answer: `DoneAfter`, or why not.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// This target's part.
        actions: Vec<Action>,
    },
    /// Second phase: do it. Answer: `DoneAfter`, also if it was done before.
    Commit {
        /// The transaction.
        id: TransactionId,
        /// What the decision relies on, the decision itself included.
        after: Dependences,
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

    // -- reading ahead
    /// Promise that the shard's data stay as they are for a moment, so that what is read ahead may be
    /// used without asking again. Answer: `Leased`.
    LeaseRead {
        /// The shard.
        data: ShardRef,
    },

    // -- writes in flight
    /// Promise that whoever else looks at the shard or changes it waits for a moment, so that writes may
    /// be answered to the program before they are here. Answer: `Leased`, with the lease's epoch.
    LeaseWrite {
        /// The shard.
        data: ShardRef,
        /// The epoch of this client's lease so far. It is over then: what is still on its way under
        /// it is refused. If others have used the shard since, there is no lease.
        instead_of: Option<u64>,
    },
    /// Write the bulk data under a write lease, and renew it. Answer: `Leased`; status
    /// `ConditionFailed`, and nothing is written, if the lease of that epoch is over.
    WriteLeased {
        /// The shard.
        data: ShardRef,
        /// Offset in the shard's file, in bytes.
        offset: u64,
        /// The lease's epoch.
        epoch: u64,
    },
    /// This client needs its write lease no longer. Answer: `Done`.
    ReleaseWrite {
        /// The shard.
        data: ShardRef,
        /// The lease's epoch.
        epoch: u64,
    },
    /// Asked between engines: make a commit of the target durable, though not what it relies on.
    /// Answer: `Held`.
    Hold {
        /// The history that the commit is of.
        epoch: u64,
        /// Its number.
        seq: u64,
    },

    // -- appending
    /// Make a shard's file longer, so that nobody else's append lands there. Asked by a file's home.
    /// Answer: `Done`; status `ConditionFailed` if it has become longer than `from`.
    ShardExtend {
        /// The shard.
        data: ShardRef,
        /// How long the file is at most, in bytes.
        from: u64,
        /// How long it gets, in bytes.
        to: u64,
        /// Names this extension: when it arrives once more it is known again.
        token: u64,
    },

    // -- connections that were given up
    /// Of these slots nothing is carried out any more that comes over the connection of this number or
    /// an older one. Answer: `Done`, once what was under way there has ended.
    Fence {
        /// Slots, each with the number of a connection.
        slots: Vec<(u16, u32)>,
    },

    // -- files without an open handle
    /// Attributes of a regular file, and those bytes of a range that lie at its home in one run: all of
    /// them if it has one shard, else those before the end of chunk 0. Owner and mode are from before
    /// the bytes were read, length and times from after it.
    /// Answer: `FileData` with bulk; fewer bytes where the home's shard ends.
    ReadFile {
        /// The file.
        oid: Oid,
        /// Offset in the file, in bytes.
        offset: u64,
        /// How many bytes, at most the bulk bound.
        bytes: u32,
    },
    /// Write the bulk data into a regular file, all within chunk 0 if it has several shards.
    /// Answer: `Written`; status `ConditionFailed`, and nothing is written, if the guard does not hold.
    WriteFile {
        /// The file.
        oid: Oid,
        /// Offset in the file, in bytes.
        offset: u64,
        /// By what the write was judged.
        guard: FileGuard,
    },
    /// Change attributes if the object has not changed since. Answer: `Attr`, as they are then; status
    /// `ConditionFailed`, and nothing is changed, if its time of last change is another.
    SetAttrIf {
        /// The inode.
        oid: Oid,
        /// The change.
        change: AttrChange,
        /// Its time of last change (`ctime`), as it was last seen.
        ctime: Timestamp,
    },
    /// Change attributes, if what the change was judged by still holds. Answer: `Attr`, as they are then;
    /// status `ConditionFailed`, and nothing is changed, if it does not.
    SetAttrGuarded {
        /// The inode.
        oid: Oid,
        /// The change.
        change: AttrChange,
        /// By what it was judged.
        guard: FileGuard,
    },
    /// `LeaseRead` of a regular file's shard at its home, with the file's attributes, looked at under the
    /// lease. It covers them as well, but for what names given and taken change of them: whoever else
    /// changes them waits. Of a striped file the leases of all shards do so together. Answer:
    /// `FileLeased`.
    LeaseFile {
        /// The file.
        oid: Oid,
    },
    /// `Lookup` and `Open` in one: what a name leads to, held open for this session if it is a regular
    /// file or a directory whose home is this engine. Answer: `Opened`.
    OpenEntry {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
        /// With the lease of a regular file, as by `LeaseFile`.
        lease: bool,
        /// With so many bytes of it, in the sense of [`crate::Geometry::brought`], if the lease is given and its home has
        /// them all.
        bring_bytes: u32,
    },
    /// `Create`, if what it was judged by still holds of the directory. Answer: as to `Create`; status
    /// `ConditionFailed`, and nothing is made or opened, if it does not.
    CreateGuarded {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
        /// What it starts with.
        inode: NewInode,
        /// Hold it open for this session, as by `Create`.
        open: bool,
        /// By what of the directory it was judged.
        guard: DirectoryGuard,
    },

    // -- for clients of the engine's own host
    /// The file of a file's shard, to be read past the engine. Answer: `Done`, whose frame carries a descriptor
    /// with its first byte (`SCM_RIGHTS`); status `Unsupported` if that cannot be on this connection or disk,
    /// `NotFound` if the shard has no file, `ConditionFailed` while anybody has its write lease.
    ShardDescriptor {
        /// The shard.
        data: ShardRef,
    },

    // -- changes that are answered to a program before they have arrived
    /// Numbers for objects that the session makes on this target by `CreateNumbered`. Answer: `Serial`, the
    /// first of them.
    AllocateSerials {
        /// How many, at most [`crate::limits::SERIALS_MAX`].
        count: u32,
    },
    /// Make an object that its maker has numbered, and its entry; doing it again does nothing. Answer:
    /// `Leased`, which renews the lease `under` which it is done; status `ConditionFailed`, and nothing is
    /// made, if that lease is over, or what the creation was judged by does not hold of the directory.
    CreateNumbered {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
        /// The object, whose home is the target of the entry.
        oid: Oid,
        /// What it starts with.
        inode: NewInode,
        /// When it was made, as its maker counts the engine's time. It is not born later than this is
        /// carried out.
        born: Timestamp,
        /// Hold it open for this session.
        open: bool,
        /// By what of the directory it was judged.
        guard: DirectoryGuard,
        /// The lease of names that keeps everybody else from the object until it is here: of this
        /// directory, or of one above. `None`: whoever has such a lease is waited for.
        under: Option<NamesLease>,
    },

    // -- for clients of the engine's own host, once more
    /// The file of a file's shard, to be read and written past the engine; made if there is none. Whoever has that
    /// of another shard keeps that of shard 0 meanwhile. Answer: as to `ShardDescriptor`; status
    /// `ConditionFailed` while anybody else has a lease of it, or the file has privileges that a write must take.
    ShardWriteDescriptor {
        /// The shard.
        data: ShardRef,
        /// The leases of others are waited for, which ends: then only privileges refuse it.
        wait: bool,
    },

    // -- changes that are answered to a program before they have arrived, once more
    /// The times of a file that this session has made by `CreateNumbered` and that lies at home as a whole, as its
    /// maker has told them: those of its last changes. They are not later than this is carried out. Answer: `Done`.
    SettleTimes {
        /// The file.
        oid: Oid,
        /// When its contents were last changed.
        mtime: Timestamp,
        /// When anything of it was.
        ctime: Timestamp,
    },

    // -- leases, once more
    /// Promise that no name in a directory's shard comes, goes or leads elsewhere for a while. Answer: `Leased`.
    LeaseAllNames {
        /// The shard.
        names: ShardRef,
    },

    // -- containers, once more
    /// The container with a name, and what each name on a path from its root leads to, as `Walk` tells it: what a program
    /// that comes from far asks for first. Answer: `ContainerWalked`.
    ContainerWalk {
        /// Its name.
        name: &'a str,
        /// As in `Walk`, or nothing.
        path: &'a [u8],
    },
    /// From the answer on both ends write into rings in memory that they share, and the socket carries what is large. Over
    /// UNIX sockets, with nothing else under way. Answer: `Done`, with the memory's descriptor; `Unsupported` where
    /// there can be no such memory.
    ShareMemory,

    // -- changes that are answered to a program before they have arrived, at several engines
    /// The engine's time. Answer: `Time`.
    Time,
    /// Hand a change on to a target of another engine and wait for its answer: so what comes over one connection is
    /// carried out in the order in which it was sent, wherever it is. One of [`Request::may_be_relayed`]; bulk
    /// data are the change's. Answer: that of the change; status `PeerUnreachable` if there is none, and `Busy` if the
    /// other engine does not know the session, was started anew, or has been told not to take up this stream any more.
    Relay {
        /// The target that is to do it.
        to: TargetId,
        /// What it belongs to.
        stream: ChangeStream,
        /// The request, encoded as in a frame.
        request: Vec<u8>,
    },

    // -- between engines, once more
    /// What is asked on behalf of a client, none of whose own leases is in the way: a change that it has
    /// sent to the other engine by `Relay`, and else `Prepare` or `Lookup`. Answer: that of the request.
    OnBehalf {
        /// The client's session.
        client: SessionId,
        /// Of a change that was sent by `Relay`.
        stream: Option<ChangeStream>,
        /// The request, encoded as in a frame.
        request: Vec<u8>,
    },

    // -- writes in flight, once more
    /// `Create` of a regular file that is held open, or `CreateGuarded`, with a write lease of its shard at home as by
    /// `LeaseWrite`, given before anybody else can see the file: so it is empty until its maker writes to it.
    /// Answer: `CreatedToWrite`; `Created` to a request that is sent again; else as to these.
    CreateToWrite {
        /// The directory.
        dir: Oid,
        /// The name.
        name: &'a [u8],
        /// What it starts with.
        inode: NewInode,
        /// By what of the directory it was judged, if that was not asked for just now.
        guard: Option<DirectoryGuard>,
    },
}

impl Request<'_> {
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
            Self::Walk { .. } => "walk",
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
            Self::SetStriped { .. } => "widen",
            Self::ReadLink { .. } => "read_link",
            Self::GetXattr { .. } => "get_xattr",
            Self::SetXattr { .. } => "set_xattr",
            Self::RemoveXattr { .. } => "remove_xattr",
            Self::ListXattrs { .. } => "list_xattrs",
            Self::Read { .. } => "read",
            Self::LeaseRead { .. } => "lease_read",
            Self::LeaseWrite { .. } => "lease_write",
            Self::WriteLeased { .. } => "write_leased",
            Self::ReleaseWrite { .. } => "release_write",
            Self::Hold { .. } => "hold",
            Self::ShardExtend { .. } => "shard_extend",
            Self::Write { .. } => "write",
            Self::Append { .. } => "append",
            Self::ShardTruncate { .. } => "shard_truncate",
            Self::ShardStat { .. } => "shard_stat",
            Self::ShardAllocate { .. } => "shard_allocate",
            Self::ShardSeek { .. } => "shard_seek",
            Self::ShardTouch { .. } => "shard_touch",
            Self::Sync { .. } => "sync",
            Self::SyncAll => "sync_all",
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
            Self::Fence { .. } => "fence",
            Self::ReadFile { .. } => "read_file",
            Self::WriteFile { .. } => "write_file",
            Self::SetAttrIf { .. } => "set_attr_if",
            Self::SetAttrGuarded { .. } => "set_attr_guarded",
            Self::LeaseFile { .. } => "lease_file",
            Self::OpenEntry { .. } => "open_entry",
            Self::CreateGuarded { .. } => "create_guarded",
            Self::ShardDescriptor { .. } => "shard_descriptor",
            Self::AllocateSerials { .. } => "allocate_serials",
            Self::CreateNumbered { .. } => "create_numbered",
            Self::SettleTimes { .. } => "settle_times",
            Self::LeaseAllNames { .. } => "lease_all_names",
            Self::ShardWriteDescriptor { .. } => "shard_write_descriptor",
            Self::ContainerWalk { .. } => "container_walk",
            Self::ShareMemory => "share_memory",
            Self::Time => "time",
            Self::Relay { .. } => "relay",
            Self::OnBehalf { .. } => "on_behalf",
            Self::CreateToWrite { .. } => "create_to_write",
        }
    }
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
            connection: 300,
        };
        let dir = Oid::new(ContainerId(1), crate::ObjectClass::SX, TargetId(0), 1);
        let request = Request::Lookup { dir, name: b"caf\xc3\xa9\xff" };
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &(head, &request), 0).unwrap();
        let back: (RequestHead, Request<'_>) =
            frame::decode_borrowed(&frame[frame::HEAD_BYTES..]).unwrap();
        assert_eq!(back, (head, request));
    }
}
