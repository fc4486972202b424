//! The words of the kernel and those of the file system, one for the other. Pure.

use azekura_posix::{Attr, Credentials, FileKind, Lock, LockKind, LockMode, OFlags, SetTime};

use crate::kernel;

/// Size that programs are told to read and write in, in bytes. C programs take it for the buffers
/// of their streams, so it decides how many requests they make; larger buffers they would have to
/// map and unmap for each stream.
const FILE_BLOCK_BYTES: u32 = 64 * 1024;
const OTHER_BLOCK_BYTES: u32 = 4096;

/// Attributes as the kernel wants them; `number` is the inode number to show.
pub(crate) fn attr(attr: &Attr, number: u64) -> kernel::Attr {
    kernel::Attr {
        ino: number,
        size: attr.size,
        blocks: attr.blocks_512,
        atime: attr.atime.secs,
        mtime: attr.mtime.secs,
        ctime: attr.ctime.secs,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.kind.mode_bits() | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Both are major and minor number in the same places, as far as Linux uses them.
        rdev: attr.rdev as u32,
        blksize: match attr.kind {
            FileKind::Regular => FILE_BLOCK_BYTES,
            _ => OTHER_BLOCK_BYTES,
        },
        flags: 0,
    }
}

/// The time of birth.
pub(crate) fn birth(attr: &Attr) -> kernel::Timestamp {
    kernel::Timestamp { seconds: attr.btime.secs, nanoseconds: attr.btime.nanos }
}

/// A time to set.
pub(crate) fn set_time(time: kernel::SetTime) -> SetTime {
    match time {
        kernel::SetTime::Now => SetTime::Now,
        kernel::SetTime::At { seconds, nanoseconds } => {
            SetTime::At(azekura_posix::Timestamp { secs: seconds, nanos: nanoseconds })
        }
    }
}

/// Flags for opening a handle. Appending is left out: the kernel says with every write whether it
/// appends, which is also right after `fcntl(F_SETFL)`.
pub(crate) fn open_flags(flags: u32) -> OFlags {
    OFlags::from_bits_retain(flags) - OFlags::APPEND
}

/// Whether the flags of a write or of an open say that it appends.
pub(crate) fn appends(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::APPEND)
}

/// Who asks.
pub(crate) fn caller(header: &kernel::Header<'_>) -> Credentials {
    let groups: Vec<u32> = header.groups.iter().collect();
    let process = (groups.is_empty() && header.pid != 0).then_some(header.pid);
    Credentials { uid: header.uid, gid: header.gid, groups, process }
}

fn lock_end(end: u64) -> u64 {
    if end >= i64::MAX as u64 { u64::MAX } else { end }
}

/// A lock, or the range of an unlock: for that the mode does not count.
pub(crate) fn lock(lock: &kernel::Lock) -> Lock {
    Lock {
        kind: if lock.flock { LockKind::Whole } else { LockKind::Range },
        owner: lock.owner,
        pid: lock.pid,
        mode: match lock.kind {
            kernel::LockKind::Read => LockMode::Shared,
            kernel::LockKind::Write | kernel::LockKind::Unlock => LockMode::Exclusive,
        },
        start: lock.start,
        end: lock_end(lock.end),
    }
}

/// A lock that is in the way of `asked`.
pub(crate) fn lock_in_the_way(asked: &kernel::Lock, lock: &Lock) -> kernel::Lock {
    kernel::Lock {
        kind: match lock.mode {
            LockMode::Shared => kernel::LockKind::Read,
            LockMode::Exclusive => kernel::LockKind::Write,
        },
        start: lock.start,
        end: lock.end.min(i64::MAX as u64),
        pid: lock.pid,
        ..*asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_to_the_end_stays_one_in_both_directions() {
        let asked = kernel::Lock {
            fh: 1,
            owner: 2,
            flock: false,
            kind: kernel::LockKind::Write,
            start: 5,
            end: i64::MAX as u64,
            pid: 3,
        };
        let there = lock(&asked);
        assert_eq!((there.kind, there.start, there.end), (LockKind::Range, 5, u64::MAX));
        assert_eq!(lock_in_the_way(&asked, &there), asked);
    }

    #[test]
    fn a_handle_is_never_in_append_mode_by_itself() {
        let flags = (OFlags::WRONLY | OFlags::APPEND | OFlags::SYNC).bits();
        assert!(appends(flags));
        assert_eq!(open_flags(flags), OFlags::WRONLY | OFlags::SYNC);
    }
}
