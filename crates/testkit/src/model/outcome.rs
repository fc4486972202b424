//! What an operation gives, in words that both sides share. Owns what counts as equal.

use std::collections::BTreeMap;

use azekura_posix::{Errno, FileKind, Timestamp};

/// What an operation gives.
pub type Outcome = Result<Answer, Errno>;

/// The answer of an operation that went well.
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was done, and there is no more to say.
    Done,
    /// Nothing was done, as the slot has no file.
    Skipped,
    /// What was read.
    Data(Vec<u8>),
    /// How many bytes, or which offset.
    Count(u64),
    /// Attributes.
    Stat(Stat),
    /// When it was last read and changed.
    Times(Timestamp, Timestamp),
    /// A directory's entries.
    Names(BTreeMap<Vec<u8>, FileKind>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => write!(f, "done"),
            Self::Skipped => write!(f, "skipped"),
            Self::Data(data) => {
                let zeros = data.split(|byte| *byte == 0).count() - 1;
                let sum = data.iter().enumerate().fold(0u64, |sum, (index, byte)| {
                    sum.wrapping_mul(31).wrapping_add(index as u64 + u64::from(*byte))
                });
                write!(f, "{} bytes, {zeros} zeros, sum {sum:x}", data.len())
            }
            Self::Count(count) => write!(f, "{count}"),
            Self::Stat(stat) => stat.fmt(f),
            Self::Times(atime, mtime) => write!(f, "{atime:?} {mtime:?}"),
            Self::Names(names) => {
                let names: Vec<_> =
                    names.iter().map(|(n, k)| (String::from_utf8_lossy(n), k)).collect();
                names.fmt(f)
            }
        }
    }
}

/// Attributes that both sides must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Its type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links; 0 for directories, where file systems differ.
    pub nlink: u64,
    /// Length in bytes; 0 for directories, where file systems differ.
    pub size: u64,
}

/// Zeroes what file systems may answer as they like.
pub fn comparable(mut stat: Stat) -> Stat {
    if stat.kind == FileKind::Directory {
        (stat.nlink, stat.size) = (0, 0);
    }
    stat
}
