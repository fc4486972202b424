//! Attributes as the `stat` structure has them.

use azekura_posix::{Attr, Timestamp};
use libc::mode_t;

/// The mode as `stat` shows it.
pub(crate) fn mode_of(attr: &Attr) -> mode_t {
    attr.kind.mode_bits() | u32::from(attr.mode)
}

fn timespec(time: Timestamp) -> (i64, i64) {
    (time.secs, i64::from(time.nanos))
}

/// Attributes as `stat` has them.
pub(crate) fn fill_stat(stat: &mut libc::stat, attr: &Attr) {
    // SAFETY: all fields are integers, for which zero is a value.
    *stat = unsafe { std::mem::zeroed() };
    stat.st_dev = u64::from(attr.oid.container().0);
    stat.st_ino = attr.oid.inode_number();
    stat.st_mode = mode_of(attr);
    stat.st_nlink = attr.nlink.into();
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev;
    stat.st_size = attr.size.cast_signed();
    stat.st_blocks = attr.blocks_512.cast_signed();
    stat.st_blksize = attr.chunk_bytes.into();
    (stat.st_atime, stat.st_atime_nsec) = timespec(attr.atime);
    (stat.st_mtime, stat.st_mtime_nsec) = timespec(attr.mtime);
    (stat.st_ctime, stat.st_ctime_nsec) = timespec(attr.ctime);
}
