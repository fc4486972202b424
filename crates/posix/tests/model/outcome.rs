//! What an operation gives, in words that both sides share. Owns what counts as equal.

use std::collections::BTreeMap;

use azekura_posix::{Errno, FileKind, Timestamp};

/// What an operation gives.
pub(crate) type Outcome = Result<Answer, Errno>;

/// The answer of an operation that went well.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// Nothing was done, as the slot has no file.
    Skipped,
    Data(Vec<u8>),
    Count(u64),
    Stat(Stat),
    Times(Timestamp, Timestamp),
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
pub(crate) struct Stat {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 for directories, where file systems differ.
    pub(crate) nlink: u64,
    /// 0 for directories, where file systems differ.
    pub(crate) size: u64,
}

/// Zeroes what file systems may answer as they like.
pub(crate) fn comparable(mut stat: Stat) -> Stat {
    if stat.kind == FileKind::Directory {
        (stat.nlink, stat.size) = (0, 0);
    }
    stat
}
