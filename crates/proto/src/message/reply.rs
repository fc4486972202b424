//! What an engine answers.

use serde::{Deserialize, Serialize};

use super::check::ScanItem;
use super::directory::DirEntry;
use super::stat::{Container, DirShardStat, EngineReport, ShardStat, SpaceStat};
use super::terms::Lock;
use crate::attr::{Attr, ChangeMark, Timestamp};
use crate::dependence::Dependences;
use crate::ids::Oid;
use crate::pool_map::PoolMap;
use crate::status::Status;
use crate::transaction::{Entry, Outcome};

/// An answer. It comes in the order of the requests of its connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// It is done, and the directory's time of last change is this now.
    Changed(Timestamp),
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
    /// Where a path leads.
    Walked {
        /// Attributes of the directory where it begins, if they were asked for and it is at home here.
        dir: Option<Box<Attr>>,
        /// What its first names lead to, with attributes where the inode's home is this engine.
        steps: Vec<(Entry, Option<Box<Attr>>)>,
        /// The next name is not there; else it was not looked for.
        is_absent: bool,
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
        /// From shard 0 of a file: whether it is striped, so that a short read need not be its end.
        striped: bool,
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
    Outcome {
        /// How.
        outcome: Outcome,
        /// What that relies on.
        after: Dependences,
    },
    /// The directory above.
    Parent {
        /// That directory.
        parent: Oid,
        /// What it relies on that both are there.
        after: Dependences,
    },
    /// Records of a scan.
    Scanned {
        /// The records.
        items: Vec<ScanItem>,
        /// Where to go on; `None` at the end.
        next: Option<Vec<u8>>,
    },
    /// A read or write lease.
    Leased {
        /// How long it holds, in milliseconds, counted from when it was asked for; 0 for not at all,
        /// since others write, or wait.
        lease_ms: u32,
        /// Of a read lease: differs from that of an earlier one if the data may have changed in
        /// between. Of a write lease: its epoch.
        version: u64,
    },
    /// A part of a transaction is done.
    DoneAfter(Dependences),
    /// Whether the commit is durable now; if not, it is no part of what the target is any more.
    Held(bool),
    /// Bytes of a file and its attributes.
    FileData {
        /// How many bytes of bulk data there are (also in the frame's head).
        bytes: u32,
        /// The attributes.
        attr: Box<Attr>,
    },
    /// A file was written to.
    Written {
        /// The file just before; `None` unless nobody else's write can lie in between.
        before: Option<ChangeMark>,
        /// The attributes after it.
        attr: Box<Attr>,
    },
    /// A read lease of a file's shard at its home.
    FileLeased {
        /// As in `Leased`.
        lease_ms: u32,
        /// As in `Leased`.
        version: u64,
        /// The versions of the other shards' data, from shard 1 on, that are leased for as long; none unless
        /// the file is striped and all of it is at this engine.
        others: Vec<u64>,
        /// The attributes, looked at after the leases were given.
        attr: Box<Attr>,
    },
    /// What a name leads to, held open if it is a regular file or a directory and has attributes here.
    Opened {
        /// The entry.
        entry: Entry,
        /// Attributes, if the inode's home is at this engine; else ask its home.
        attr: Option<Box<Attr>>,
        /// As in `Leased`; 0 if none was asked for.
        lease_ms: u32,
        /// As in `Leased`.
        version: u64,
        /// As in `FileLeased`.
        others: Vec<u64>,
        /// The last bytes come along as bulk data, as far as they lie in one shard
        /// ([`Geometry::tail`](crate::Geometry::tail)): so many, fewer than were asked for where a hole follows.
        brought_bytes: Option<u32>,
    },
    /// A container, and where a path from its root leads.
    ContainerWalked {
        /// The container.
        container: Container,
        /// Attributes of its root, if that is at home here.
        dir: Option<Box<Attr>>,
        /// As in `Walked`; none where the first name is not here.
        steps: Vec<(Entry, Option<Box<Attr>>)>,
        /// As in `Walked`.
        is_absent: bool,
    },
    /// The engine's time.
    Time(Timestamp),
    /// A new file, which is empty, and a write lease of its shard at home.
    CreatedToWrite {
        /// Its attributes.
        attr: Box<Attr>,
        /// As in `Leased`.
        lease_ms: u32,
        /// As in `Leased`.
        version: u64,
    },
}

impl Reply {
    /// How many bytes of bulk data come with it.
    pub const fn bulk_bytes(&self) -> u32 {
        match self {
            Self::Data { bytes, .. }
            | Self::FileData { bytes, .. }
            | Self::Opened { brought_bytes: Some(bytes), .. } => *bytes,
            _ => 0,
        }
    }
}

/// What a reply frame's body holds.
pub type Answer = Result<Reply, Status>;
