//! Raw records for `fs check`, and its repairs.

use serde::{Deserialize, Serialize};

use super::stat::DirShardStat;
use crate::attr::Attr;
use crate::ids::Oid;
use crate::transaction::{Entry, TransactionId};

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
    /// Shards of which data are lost: their files are gone, or shorter than they were.
    LostData,
    /// All data, which are read to see whether they can be.
    ReadData,
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
    /// A shard of which data are lost.
    LostData {
        /// The object.
        oid: Oid,
        /// Its shard.
        shard: u16,
        /// How long its file must be at least, in bytes.
        noted: u64,
        /// How long it is, in bytes.
        found: u64,
    },
    /// Data that cannot be read.
    UnreadableData {
        /// The object.
        oid: Oid,
        /// Its shard.
        shard: u16,
        /// Where in the shard's file, in bytes.
        offset: u64,
        /// What the disk says.
        cause: String,
    },
    /// So many bytes were read.
    ReadData {
        /// Bytes.
        bytes: u64,
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
