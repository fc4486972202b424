//! Attributes in the C library's words. Pure.

use azekura_posix::{Attr, FileKind};

/// The device number that files of a container show: one that no device has.
pub(crate) const DEVICE: u64 = 0x617a_6b00;
/// Size that programs are told to read and write in, in bytes.
const FILE_BLOCK_BYTES: i64 = 64 * 1024;
const OTHER_BLOCK_BYTES: i64 = 4096;

fn block_bytes(attr: &Attr) -> i64 {
    if attr.kind == FileKind::Regular { FILE_BLOCK_BYTES } else { OTHER_BLOCK_BYTES }
}

/// As `stat` gives them.
pub(crate) fn stat(attr: &Attr) -> libc::stat {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = DEVICE;
    stat.st_ino = attr.oid.inode_number();
    stat.st_nlink = attr.nlink.into();
    stat.st_mode = attr.kind.mode_bits() | u32::from(attr.mode);
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev;
    stat.st_size = attr.size as i64;
    stat.st_blksize = block_bytes(attr) as _;
    stat.st_blocks = attr.blocks_512 as i64;
    (stat.st_atime, stat.st_atime_nsec) = (attr.atime.secs, attr.atime.nanos.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.mtime.secs, attr.mtime.nanos.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.ctime.secs, attr.ctime.nanos.into());
    stat
}

/// As `statx` gives them; all fields are there whatever was asked for.
pub(crate) fn statx(attr: &Attr) -> libc::statx {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let time = |time: azekura_posix::Timestamp| {
        // SAFETY: as above.
        let mut shown: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (shown.tv_sec, shown.tv_nsec) = (time.secs, time.nanos);
        shown
    };
    stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    stat.stx_blksize = block_bytes(attr) as u32;
    stat.stx_nlink = attr.nlink;
    stat.stx_uid = attr.uid;
    stat.stx_gid = attr.gid;
    stat.stx_mode = (attr.kind.mode_bits() | u32::from(attr.mode)) as u16;
    stat.stx_ino = attr.oid.inode_number();
    stat.stx_size = attr.size;
    stat.stx_blocks = attr.blocks_512;
    stat.stx_atime = time(attr.atime);
    stat.stx_btime = time(attr.btime);
    stat.stx_ctime = time(attr.ctime);
    stat.stx_mtime = time(attr.mtime);
    stat.stx_rdev_major = libc::major(attr.rdev);
    stat.stx_rdev_minor = libc::minor(attr.rdev);
    stat.stx_dev_major = libc::major(DEVICE);
    stat.stx_dev_minor = libc::minor(DEVICE);
    stat
}
