//! What can be wrong with a container. Each finding carries the evidence it rests on, so that the
//! same finding in a second look means that nothing of it has moved in between.

use azekura_proto::attr::FileKind;
use azekura_proto::message::DirShardStat;
use azekura_proto::transaction::{Entry, TransactionId};
use azekura_proto::{Oid, TargetId, Timestamp};

/// A directory entry and where it was found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EntryAt {
    /// The target.
    pub(crate) target: TargetId,
    /// The directory.
    pub(crate) dir: Oid,
    /// The name.
    pub(crate) name: Vec<u8>,
    /// What it leads to.
    pub(crate) entry: Entry,
}

/// One thing that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// The root directory has no inode.
    RootMissing {
        /// The root.
        root: Oid,
    },
    /// An entry leads to no inode.
    EntryWithoutInode(EntryAt),
    /// An entry stands in a directory that has no inode.
    EntryWithoutDirectory(EntryAt),
    /// An entry says another type than the inode.
    EntryOfWrongKind {
        /// The entry.
        at: EntryAt,
        /// What the inode says.
        found: FileKind,
    },
    /// An entry is on a target where nobody looks for it.
    MisplacedEntry {
        /// The entry.
        at: EntryAt,
        /// Where it is looked for.
        expected: TargetId,
    },
    /// A directory has a name too many.
    SurplusName {
        /// The entry that is too much.
        at: EntryAt,
        /// Last change of the directory.
        ctime: Timestamp,
    },
    /// A directory lies below itself, out of reach from the root.
    Loop {
        /// The entry that closes the loop.
        at: EntryAt,
        /// Last change of the directory.
        ctime: Timestamp,
    },
    /// No entry leads to an inode.
    LostInode {
        /// The inode.
        oid: Oid,
        /// Its type.
        kind: FileKind,
        /// Last change of the inode.
        ctime: Timestamp,
    },
    /// The link count is not the number of entries.
    WrongLinkCount {
        /// The inode.
        oid: Oid,
        /// What it says.
        recorded: u32,
        /// Entries that lead to it.
        found: u32,
        /// Last change of the inode.
        ctime: Timestamp,
    },
    /// A directory names another one above it than the one whose entry leads to it.
    WrongParent {
        /// The directory.
        dir: Oid,
        /// What it says.
        recorded: Option<Oid>,
        /// Where its entry is.
        found: Oid,
        /// Last change of the directory.
        ctime: Timestamp,
    },
    /// An inode is not on its home target.
    MisplacedInode {
        /// The inode.
        oid: Oid,
        /// Where it was found.
        target: TargetId,
    },
    /// A directory's shard counts other entries than it has.
    WrongShardCount {
        /// The directory.
        dir: Oid,
        /// The shard's target.
        target: TargetId,
        /// What it says.
        recorded: DirShardStat,
        /// Entries that are there.
        entries: u64,
        /// Those that are directories.
        subdirs: u32,
    },
    /// A shard of a directory that is not there.
    ShardWithoutDirectory {
        /// The directory.
        dir: Oid,
        /// The shard's target.
        target: TargetId,
    },
    /// Data of an object that has no inode, or no data.
    DataWithoutInode {
        /// The object.
        oid: Oid,
        /// The shard.
        shard: u16,
        /// The shard's target.
        target: TargetId,
        /// Length in bytes.
        bytes: u64,
    },
    /// Data on a target where nobody looks for them.
    MisplacedData {
        /// The object.
        oid: Oid,
        /// The shard.
        shard: u16,
        /// Where it was found.
        target: TargetId,
    },
    /// A file has data beyond chunk 0, and its inode does not say so: they are not seen.
    HiddenData {
        /// The file.
        oid: Oid,
    },
    /// Data that were written are gone.
    LostData {
        /// The object.
        oid: Oid,
        /// The shard.
        shard: u16,
        /// The shard's target.
        target: TargetId,
        /// How long its file must be at least, in bytes.
        noted: u64,
        /// How long it is, in bytes.
        found: u64,
    },
    /// Data cannot be read.
    UnreadableData {
        /// The object.
        oid: Oid,
        /// The shard.
        shard: u16,
        /// The shard's target.
        target: TargetId,
        /// Where in the shard's file, in bytes.
        offset: u64,
        /// What the disk says.
        cause: String,
    },
    /// A transaction that recovery should have finished.
    UnfinishedTransaction {
        /// Which.
        id: TransactionId,
        /// Where its record is.
        target: TargetId,
        /// Decided, or waiting for a decision.
        decided: bool,
    },
}

/// Where the file of a shard is below its target's directory.
fn shard_path(oid: Oid, shard: u16) -> String {
    format!("data/{:02x}/{oid}.{shard}", oid.to_bytes()[15])
}

impl Finding {
    /// A word for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::RootMissing { .. } => "root-missing",
            Self::EntryWithoutInode(_) => "entry-without-inode",
            Self::EntryWithoutDirectory(_) => "entry-without-directory",
            Self::EntryOfWrongKind { .. } => "entry-of-wrong-kind",
            Self::MisplacedEntry { .. } => "misplaced-entry",
            Self::SurplusName { .. } => "surplus-name",
            Self::Loop { .. } => "loop",
            Self::LostInode { .. } => "lost-inode",
            Self::WrongLinkCount { .. } => "wrong-link-count",
            Self::WrongParent { .. } => "wrong-parent",
            Self::MisplacedInode { .. } => "misplaced-inode",
            Self::WrongShardCount { .. } => "wrong-shard-count",
            Self::ShardWithoutDirectory { .. } => "shard-without-directory",
            Self::DataWithoutInode { .. } => "data-without-inode",
            Self::MisplacedData { .. } => "misplaced-data",
            Self::HiddenData { .. } => "hidden-data",
            Self::LostData { .. } => "lost-data",
            Self::UnreadableData { .. } => "unreadable-data",
            Self::UnfinishedTransaction { .. } => "unfinished-transaction",
        }
    }

    /// The entry that it is about, if it is about one.
    pub(crate) fn entry(&self) -> Option<&EntryAt> {
        match self {
            Self::EntryWithoutInode(at)
            | Self::EntryWithoutDirectory(at)
            | Self::EntryOfWrongKind { at, .. }
            | Self::MisplacedEntry { at, .. }
            | Self::SurplusName { at, .. }
            | Self::Loop { at, .. } => Some(at),
            _ => None,
        }
    }

    /// The object that it is about.
    pub(crate) fn object(&self) -> Option<Oid> {
        match self {
            Self::RootMissing { root: oid }
            | Self::LostInode { oid, .. }
            | Self::WrongLinkCount { oid, .. }
            | Self::WrongParent { dir: oid, .. }
            | Self::MisplacedInode { oid, .. }
            | Self::WrongShardCount { dir: oid, .. }
            | Self::ShardWithoutDirectory { dir: oid, .. }
            | Self::DataWithoutInode { oid, .. }
            | Self::MisplacedData { oid, .. }
            | Self::LostData { oid, .. }
            | Self::UnreadableData { oid, .. }
            | Self::HiddenData { oid } => Some(*oid),
            Self::UnfinishedTransaction { .. } => None,
            Self::EntryWithoutInode(at)
            | Self::EntryWithoutDirectory(at)
            | Self::EntryOfWrongKind { at, .. }
            | Self::MisplacedEntry { at, .. }
            | Self::SurplusName { at, .. }
            | Self::Loop { at, .. } => Some(at.entry.oid),
        }
    }

    /// What is wrong, in words.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::RootMissing { .. } => "the root directory has no inode".to_owned(),
            Self::EntryWithoutInode(at) => format!("leads to {}, which is not there", at.entry.oid),
            Self::EntryWithoutDirectory(at) => {
                format!("stands in the directory {}, which is not there", at.dir)
            }
            Self::EntryOfWrongKind { at, found } => {
                format!("says {:?}, and its inode says {found:?}", at.entry.kind)
            }
            Self::MisplacedEntry { at, expected } => {
                format!("is on target {}, and looked for on target {}", at.target.0, expected.0)
            }
            Self::SurplusName { .. } => "is a second name of a directory".to_owned(),
            Self::Loop { .. } => "leads to a directory that lies below itself".to_owned(),
            Self::LostInode { kind, .. } => format!("no entry leads to this {kind:?}"),
            Self::WrongLinkCount { recorded, found, .. } => {
                format!("has {recorded} links on record, and {found} entries lead to it")
            }
            Self::WrongParent { recorded, found, .. } => match recorded {
                Some(recorded) => format!("says that {recorded} is above it, but {found} is"),
                None => format!("does not say that {found} is above it"),
            },
            Self::MisplacedInode { target, .. } => {
                format!("has its inode on target {}, which is not its home", target.0)
            }
            Self::WrongShardCount { target, recorded, entries, subdirs, .. } => format!(
                "counts {} entries and {} directories on target {}, where {entries} and \
                 {subdirs} are",
                recorded.entries, recorded.subdirs, target.0
            ),
            Self::ShardWithoutDirectory { target, .. } => {
                format!("has a shard on target {}, but no inode", target.0)
            }
            Self::DataWithoutInode { shard, target, bytes, .. } => {
                format!("has {bytes} bytes in shard {shard} on target {}, but no inode", target.0)
            }
            Self::MisplacedData { shard, target, .. } => {
                format!("has its shard {shard} on target {}, where nobody looks", target.0)
            }
            Self::HiddenData { .. } => {
                "has data beyond its first chunk, which its inode does not know of".to_owned()
            }
            Self::LostData { oid, shard, target, noted, found } => format!(
                "has lost data: {found} bytes are there of {noted} in shard {shard} on target {} \
                 ({}); restore that file from a copy, with its engine stopped, or remove this one",
                target.0,
                shard_path(*oid, *shard)
            ),
            Self::UnreadableData { oid, shard, target, offset, cause } => format!(
                "cannot be read at {offset} of shard {shard} on target {} ({}): {cause}",
                target.0,
                shard_path(*oid, *shard)
            ),
            Self::UnfinishedTransaction { id, target, decided } => format!(
                "transaction {} of target {} is {} on target {} and not finished: is an engine \
                 down?",
                id.number,
                id.coordinator.0,
                if *decided { "decided" } else { "prepared" },
                target.0
            ),
        }
    }
}
