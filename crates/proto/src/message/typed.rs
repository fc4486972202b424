//! Requests whose answer has a type. Owns the table that says which reply belongs to which request,
//! so that a reply of another request is met in one place instead of wherever something is asked.

use super::check::{ScanItem, ScanKind};
use super::directory::DirEntry;
use super::reply::Reply;
use super::request::Request;
use super::stat::{Container, DirShardStat, EngineReport, SpaceStat};
use super::terms::{Allocation, Lock, NamesLease, RenameMode, ShardRef, XattrMode};
use crate::attr::{
    Attr, AttrChange, ChangeMark, DirectoryGuard, FileGuard, Inheritance, NewInode, Timestamp,
};
use crate::dependence::Dependences;
use crate::ids::{ContainerId, EngineId, Oid, SessionId};
use crate::pool_map::PoolMap;
use crate::transaction::{Action, Entry, Outcome, TransactionId};

/// A request that names the type of its answer.
pub trait TypedRequest<'a>: Sized {
    /// What an engine answers.
    type Reply;

    /// The request as it is sent.
    fn into_request(self) -> Request<'a>;

    /// What is in a reply; `None` if it belongs to another request.
    fn read(reply: Reply) -> Option<Self::Reply>;
}

/// What a create has led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Creation {
    /// The object is new.
    New(Box<Attr>),
    /// The name was there already. Attributes come along if the object's home is at hand.
    Existing(Entry, Option<Box<Attr>>),
}

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// Attributes, if the inode's home is at the engine that was asked.
    pub attr: Option<Box<Attr>>,
}

/// Where a path leads, as [`Reply::Walked`] has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkedPath {
    /// Attributes of the directory where it begins, if they were asked for and are at hand.
    pub dir: Option<Box<Attr>>,
    /// What its first names lead to.
    pub steps: Vec<Found>,
    /// The next name is not there; else it has to be looked up by itself.
    pub is_absent: bool,
}

/// A page of a directory's shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryPage {
    /// The entries, in cookie order.
    pub entries: Vec<DirEntry>,
    /// The shard ends here.
    pub end: bool,
}

/// How much bulk data have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadBytes {
    /// How many bytes: fewer than asked for where the shard's file ends.
    pub bytes: u32,
    /// From shard 0 of a file: whether it is striped, so that a short read need not be its end.
    pub striped: bool,
}

/// What has come of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileBytes {
    /// How many bytes: fewer than asked for where the home's part of the range ends.
    pub bytes: u32,
    /// The attributes.
    pub attr: Box<Attr>,
}

/// What a write to a file has led to, as [`Reply::Written`] has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileWritten {
    /// The file just before, if that is known.
    pub before: Option<ChangeMark>,
    /// The attributes after it.
    pub attr: Box<Attr>,
}

/// A page of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPage {
    /// The keys, in order.
    pub keys: Vec<Vec<u8>>,
    /// No more after these.
    pub end: bool,
}

/// A page of raw records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    /// The records.
    pub items: Vec<ScanItem>,
    /// Where to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// A read or write lease, as [`Reply::Leased`] has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leased {
    /// How long it holds, in milliseconds; 0 for not at all.
    pub lease_ms: u32,
    /// The data's version, or the epoch of a write lease.
    pub version: u64,
}

/// A read lease of a file, as [`Reply::FileLeased`] has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileLeased {
    /// The lease of its shard at home.
    pub lease: Leased,
    /// The versions of the other shards' data, from shard 1 on, that are leased for as long; none if they
    /// have to be asked for by themselves.
    pub others: Vec<u64>,
    /// The attributes, looked at under all these leases.
    pub attr: Box<Attr>,
}

/// What opening a name has led to, as [`Reply::Opened`] has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedEntry {
    /// The entry.
    pub entry: Entry,
    /// Attributes, if the inode's home is at the engine that was asked: then a regular file or directory
    /// is held open.
    pub attr: Option<Box<Attr>>,
    /// The lease of a file's shard at home.
    pub lease: Leased,
    /// As in [`FileLeased`].
    pub others: Vec<u64>,
    /// How many of its last bytes have come, fewer than were asked for where a hole follows; `None` if they
    /// are not brought.
    pub brought_bytes: Option<u32>,
}

/// One row a request: its fields as in [`Request`], the type of its answer, and the reply that has it.
macro_rules! requests {
    (
        bare { $($plain:ident -> $plain_reply:ty, $plain_pattern:pat => $plain_value:expr;)* }
        with fields and $life:lifetime;
        $($name:ident $(<$own:lifetime>)? { $($field:ident: $type:ty),+ } -> $reply:ty,
            $pattern:pat => $value:expr;)*
    ) => {
        $(
            #[doc = concat!("[`Request::", stringify!($plain), "`] with its answer's type.")]
            #[derive(Clone, Copy, Debug)]
            pub struct $plain;

            impl<$life> TypedRequest<$life> for $plain {
                type Reply = $plain_reply;

                fn into_request(self) -> Request<$life> {
                    Request::$plain
                }

                fn read(reply: Reply) -> Option<Self::Reply> {
                    match reply { $plain_pattern => Some($plain_value), _ => None }
                }
            }
        )*
        $(
            #[doc = concat!("[`Request::", stringify!($name), "`] with its answer's type.")]
            #[derive(Clone, Debug)]
            #[expect(missing_docs, reason = "the fields are those of the request")]
            pub struct $name $(<$own>)? { $(pub $field: $type),+ }

            impl<$life> TypedRequest<$life> for $name $(<$own>)? {
                type Reply = $reply;

                fn into_request(self) -> Request<$life> {
                    let Self { $($field),+ } = self;
                    Request::$name { $($field),+ }
                }

                fn read(reply: Reply) -> Option<Self::Reply> {
                    match reply { $pattern => Some($value), _ => None }
                }
            }
        )*
    };
}

requests! {
    bare {
        Ping -> (), Reply::Done => ();
        Goodbye -> (), Reply::Done => ();
        Map -> PoolMap, Reply::Map(map) => map;
        Report -> Box<EngineReport>, Reply::Report(report) => report;
        Time -> Timestamp, Reply::Time(now) => now;
        Space -> SpaceStat, Reply::Space(space) => space;
        ContainerList -> Vec<Container>, Reply::Containers(containers) => containers;
        SyncAll -> (), Reply::Done => ();
        AllocateSerial -> u64, Reply::Serial(serial) => serial;
    }
    with fields and 'a;

    Claim { open: Vec<Oid>, locks: Vec<(Oid, Lock)> } -> (), Reply::Done => ();
    Adopt { map: PoolMap, engine: EngineId } -> (), Reply::Done => ();
    ContainerCreate { name: String, inheritance: Inheritance } -> Container,
        Reply::Container(container) => container;
    ContainerOpen<'a> { name: &'a str } -> Container, Reply::Container(container) => container;
    ContainerDestroy<'a> { name: &'a str } -> (), Reply::Done => ();
    ContainerReclaim { container: ContainerId } -> (), Reply::Done => ();
    ContainerChange<'a> { name: &'a str, inheritance: Inheritance } -> Container,
        Reply::Container(container) => container;

    Lookup<'a> { dir: Oid, name: &'a [u8] } -> Found,
        Reply::Entry { entry, attr } => Found { entry, attr };
    Walk<'a> { dir: Oid, path: &'a [u8], with_dir: bool } -> WalkedPath,
        Reply::Walked { dir, steps, is_absent } => walked(dir, steps, is_absent);
    Create<'a> { dir: Oid, name: &'a [u8], inode: NewInode, open: bool } -> Creation,
        reply @ (Reply::Created(_) | Reply::Entry { .. }) => creation(reply)?;
    CreateUnlinked { container: ContainerId, inode: NewInode } -> Box<Attr>,
        Reply::Created(attr) => attr;
    Unlink<'a> { dir: Oid, name: &'a [u8] } -> Option<Timestamp>,
        reply @ (Reply::Changed(_) | Reply::Done) => changed(&reply);
    RemoveDirectory<'a> { dir: Oid, name: &'a [u8] } -> Option<Timestamp>,
        reply @ (Reply::Changed(_) | Reply::Done) => changed(&reply);
    Link<'a> { oid: Oid, dir: Oid, name: &'a [u8] } -> Option<Timestamp>,
        reply @ (Reply::Changed(_) | Reply::Done) => changed(&reply);
    Rename<'a> {
        from_dir: Oid, from_name: &'a [u8], to_dir: Oid, to_name: &'a [u8], mode: RenameMode
    } -> (), Reply::Done => ();
    ReadDirectory { dir: Oid, after: u64, page_bytes: u32, with_attrs: bool } -> EntryPage,
        Reply::Entries { entries, end } => EntryPage { entries, end };
    DirShard { dir: Oid } -> DirShardStat, Reply::DirShard(stat) => stat;

    GetAttr { oid: Oid } -> Box<Attr>, Reply::Attr(attr) => attr;
    SetAttr { oid: Oid, change: AttrChange } -> Box<Attr>, Reply::Attr(attr) => attr;
    Open { oid: Oid } -> Box<Attr>, Reply::Attr(attr) => attr;
    SetStriped { oid: Oid } -> (), Reply::Done => ();
    ReadLink { oid: Oid } -> Vec<u8>, Reply::Bytes(text) => text;
    GetXattr<'a> { oid: Oid, name: &'a [u8] } -> Vec<u8>, Reply::Bytes(value) => value;
    SetXattr<'a> { oid: Oid, name: &'a [u8], value: &'a [u8], mode: XattrMode } -> (),
        Reply::Done => ();
    RemoveXattr<'a> { oid: Oid, name: &'a [u8] } -> (), Reply::Done => ();
    ListXattrs { oid: Oid } -> Vec<u8>, Reply::Bytes(names) => names;

    Read { data: ShardRef, offset: u64, bytes: u32 } -> ReadBytes,
        Reply::Data { bytes, striped } => ReadBytes { bytes, striped };
    Write { data: ShardRef, offset: u64 } -> (), Reply::Done => ();
    Append { oid: Oid } -> u64, Reply::Appended { offset } => offset;
    ShardTruncate { data: ShardRef, bytes: u64, exactly: bool } -> (), Reply::Done => ();
    ShardStat { data: ShardRef, asker: Option<SessionId> } -> Option<super::stat::ShardStat>,
        Reply::Shard(stat) => stat;
    ShardAllocate { data: ShardRef, offset: u64, bytes: u64, what: Allocation } -> (),
        Reply::Done => ();
    ShardSeek { data: ShardRef, offset: u64, hole: bool } -> Option<u64>,
        Reply::Offset(offset) => offset;
    ShardTouch { data: ShardRef, mtime: Timestamp, asker: Option<SessionId> } -> (), Reply::Done => ();
    Sync { data: Option<ShardRef>, data_only: bool } -> (), Reply::Done => ();
    ShardRemove { data: ShardRef } -> (), Reply::Done => ();

    ValueGet<'a> { oid: Oid, dkey: &'a [u8], akey: &'a [u8] } -> Vec<u8>,
        Reply::Bytes(value) => value;
    ValueUpdate<'a> { oid: Oid, updates: Vec<super::terms::ValueUpdate<'a>> } -> (),
        Reply::Done => ();
    ValuePunch<'a> { oid: Oid, dkey: Option<&'a [u8]> } -> (), Reply::Done => ();
    ValueList<'a> { oid: Oid, dkey: Option<&'a [u8]>, after: Option<&'a [u8]>, limit: u32 }
        -> KeyPage, Reply::Keys { keys, end } => KeyPage { keys, end };

    LockAcquire { oid: Oid, lock: Lock, wait: bool } -> (), Reply::Done => ();
    LockRelease { oid: Oid, lock: Lock } -> (), Reply::Done => ();
    LockTest { oid: Oid, lock: Lock } -> Option<Lock>, Reply::LockInTheWay(lock) => lock;

    Prepare { id: TransactionId, actions: Vec<Action> } -> Dependences,
        Reply::DoneAfter(after) => after;
    Commit { id: TransactionId, after: Dependences } -> Dependences,
        Reply::DoneAfter(after) => after;
    Abort { id: TransactionId } -> (), Reply::Done => ();
    AskOutcome { id: TransactionId } -> (Outcome, Dependences),
        Reply::Outcome { outcome, after } => (outcome, after);
    AskDirectory { dir: Oid } -> (Oid, Dependences),
        Reply::Parent { parent, after } => (parent, after);

    Scan { kind: ScanKind, container: ContainerId, after: Option<Vec<u8>> } -> ScanPage,
        Reply::Scanned { items, next } => ScanPage { items, next };
    Repair { repair: super::check::Repair } -> (), Reply::Done => ();

    LeaseRead { data: ShardRef } -> Leased,
        Reply::Leased { lease_ms, version } => Leased { lease_ms, version };
    LeaseWrite { data: ShardRef, instead_of: Option<u64> } -> Leased,
        Reply::Leased { lease_ms, version } => Leased { lease_ms, version };
    WriteLeased { data: ShardRef, offset: u64, epoch: u64 } -> Leased,
        Reply::Leased { lease_ms, version } => Leased { lease_ms, version };
    ReleaseWrite { data: ShardRef, epoch: u64 } -> (), Reply::Done => ();
    ShardExtend { data: ShardRef, from: u64, to: u64, token: u64 } -> (), Reply::Done => ();

    SetAttrIf { oid: Oid, change: AttrChange, ctime: Timestamp } -> Box<Attr>, Reply::Attr(attr) => attr;
    CreateGuarded<'a> {
        dir: Oid, name: &'a [u8], inode: NewInode, open: bool, guard: DirectoryGuard
    } -> Creation,
        reply @ (Reply::Created(_) | Reply::Entry { .. }) => creation(reply)?;
    OpenEntry<'a> { dir: Oid, name: &'a [u8], lease: bool, bring_bytes: u32 } -> OpenedEntry,
        Reply::Opened { entry, attr, lease_ms, version, others, brought_bytes } =>
        OpenedEntry { entry, attr, lease: Leased { lease_ms, version }, others, brought_bytes };
    LeaseFile { oid: Oid } -> FileLeased, Reply::FileLeased { lease_ms, version, others, attr } =>
        FileLeased { lease: Leased { lease_ms, version }, others, attr };
    SetAttrGuarded { oid: Oid, change: AttrChange, guard: FileGuard } -> Box<Attr>,
        Reply::Attr(attr) => attr;
    ReadFile { oid: Oid, offset: u64, bytes: u32 } -> FileBytes,
        Reply::FileData { bytes, attr } => FileBytes { bytes, attr };
    WriteFile { oid: Oid, offset: u64, guard: FileGuard } -> FileWritten,
        Reply::Written { before, attr } => FileWritten { before, attr };
    ShardDescriptor { data: ShardRef } -> (), Reply::Done => ();
    ShardWriteDescriptor { data: ShardRef, wait: bool } -> (), Reply::Done => ();
    AllocateSerials { count: u32 } -> u64, Reply::Serial(first) => first;
    LeaseAllNames { names: ShardRef } -> Leased,
        Reply::Leased { lease_ms, version } => Leased { lease_ms, version };
    SettleTimes { oid: Oid, mtime: Timestamp, ctime: Timestamp } -> (), Reply::Done => ();
    ContainerWalk<'a> { name: &'a str, path: &'a [u8] } -> (Container, WalkedPath),
        Reply::ContainerWalked { container, dir, steps, is_absent } =>
            (container, walked(dir, steps, is_absent));
    CreateNumbered<'a> {
        dir: Oid, name: &'a [u8], oid: Oid, inode: NewInode, born: Timestamp, open: bool,
        guard: DirectoryGuard, under: Option<NamesLease>
    } -> Leased, Reply::Leased { lease_ms, version } => Leased { lease_ms, version };
    CreateToWrite<'a> { dir: Oid, name: &'a [u8], inode: NewInode, guard: Option<DirectoryGuard> }
        -> (Creation, Leased),
        reply @ (Reply::CreatedToWrite { .. } | Reply::Created(_) | Reply::Entry { .. }) =>
            creation_to_write(reply)?;
}

/// No lease comes with what is not new.
fn creation_to_write(reply: Reply) -> Option<(Creation, Leased)> {
    match reply {
        Reply::CreatedToWrite { attr, lease_ms, version } => {
            Some((Creation::New(attr), Leased { lease_ms, version }))
        }
        reply => Some((creation(reply)?, Leased { lease_ms: 0, version: 0 })),
    }
}

fn walked(
    dir: Option<Box<Attr>>,
    steps: Vec<(Entry, Option<Box<Attr>>)>,
    is_absent: bool,
) -> WalkedPath {
    let steps = steps.into_iter().map(|(entry, attr)| Found { entry, attr }).collect();
    WalkedPath { dir, steps, is_absent }
}

fn creation(reply: Reply) -> Option<Creation> {
    match reply {
        Reply::Created(attr) => Some(Creation::New(attr)),
        Reply::Entry { entry, attr } => Some(Creation::Existing(entry, attr)),
        _ => None,
    }
}

/// When the directory was changed; unknown to one that was sent again.
fn changed(reply: &Reply) -> Option<Timestamp> {
    match reply {
        Reply::Changed(at) => Some(*at),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TargetId;

    #[test]
    fn a_reply_of_another_request_is_none_of_this_one() {
        assert_eq!(AllocateSerial::read(Reply::Serial(7)), Some(7));
        assert_eq!(AllocateSerial::read(Reply::Done), None);
        assert_eq!(Unlink::read(Reply::Done), Some(None));
        let at = Timestamp { secs: 3, nanos: 4 };
        assert_eq!(Unlink::read(Reply::Changed(at)), Some(Some(at)));
        assert_eq!(Unlink::read(Reply::Serial(7)), None);
    }

    #[test]
    fn it_becomes_the_request_of_its_name() {
        let oid = Oid::new(ContainerId(1), crate::ObjectClass::S1, TargetId(0), 1);
        assert_eq!(GetAttr { oid }.into_request(), Request::GetAttr { oid });
        assert_eq!(
            ContainerOpen { name: "c" }.into_request(),
            Request::ContainerOpen { name: "c" }
        );
    }
}
