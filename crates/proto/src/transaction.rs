//! What targets say to each other when one operation touches several of them. One target
//! coordinates: it prepares the others, decides in an atomic batch of its own, and then lets them
//! finish (two-phase commit, presumed abort). Owns the words only; `engine` owns the play.

use serde::{Deserialize, Serialize};

use crate::attr::FileKind;
use crate::ids::{Oid, TargetId};

/// Names a transaction: the coordinator and a number that it never gives twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TransactionId {
    /// The target that coordinates.
    pub coordinator: TargetId,
    /// Its number, unique over restarts.
    pub number: u64,
}

/// What a directory entry leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The object.
    pub oid: Oid,
    /// Its type, which never changes.
    pub kind: FileKind,
}

/// One thing that a target does as its part of a transaction. Preparing checks that it can be
/// done and keeps everybody else away from what it touches until the outcome is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Put an entry in a directory's shard. `replaces` is what must stand there before.
    InsertEntry {
        /// The directory.
        dir: Oid,
        /// The name.
        name: Vec<u8>,
        /// What it will lead to.
        entry: Entry,
        /// What it leads to now; `None`: nothing.
        replaces: Option<Entry>,
    },
    /// Take an entry out of a directory's shard. It must lead to `entry`.
    RemoveEntry {
        /// The directory.
        dir: Oid,
        /// The name.
        name: Vec<u8>,
        /// What it leads to now.
        entry: Entry,
    },
    /// Close the shard of a directory that is being removed. It must have no entries.
    SealShard {
        /// The directory.
        dir: Oid,
    },
    /// Remove a directory's inode, at its home. Its shards are sealed by the same transaction.
    RemoveDirectory {
        /// The directory.
        dir: Oid,
    },
    /// Change the link count of an inode that is no directory, at its home. At 0 it is removed
    /// as soon as nobody has it open.
    AddLinks {
        /// The inode.
        oid: Oid,
        /// By how much; 0 only marks the inode as changed.
        links: i32,
    },
    /// Change the directory above a directory, at its home.
    SetParent {
        /// The directory that moves.
        dir: Oid,
        /// The directory above it from now on.
        parent: Oid,
    },
    /// Keep every other move of a directory away, at the home of the container's root, so that
    /// two moves cannot make a loop between them.
    LockTree {
        /// The container's root.
        root: Oid,
    },
}

/// How a transaction ended, as its coordinator knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It was decided: do your part.
    Committed,
    /// It never will be: forget it.
    Aborted,
    /// Not decided yet: ask again.
    Pending,
}
