//! What the agent knows of a file that has not come. Owns how that is told as the C library tells of files.

use std::ffi::{CString, c_int};

use azekura_posix::{Errno, FileKind, Result};
use azekura_proto::staging::{Attributes, MapKind};

use super::maps::Map;

/// Unit of the counts of blocks, and the block size that programs are told, in bytes.
const BLOCK_BYTES: u64 = 512;
const TOLD_BLOCK_BYTES: u32 = 4096;

/// A directory with one has no known number of subdirectories (as on btrfs).
const LINKS: u32 = 1;

/// A file that has not come.
pub(crate) struct Found {
    /// What is known of it.
    pub(crate) attributes: Attributes,
    /// Its inode number.
    pub(super) inode: u64,
    /// What may be done in the map that it lies in.
    pub(super) kind: MapKind,
    /// The map that the path names.
    pub(super) map: &'static Map,
}

impl Found {
    /// The tree that it belongs to, for what is asked of the file system.
    pub(crate) fn tree(&self) -> Result<CString> {
        CString::new(self.map.tree.as_slice()).map_err(|_| Errno::INVAL)
    }

    fn mode(&self) -> u32 {
        self.attributes.kind.mode_bits() | self.attributes.mode & 0o7777
    }

    fn blocks(&self) -> u64 {
        self.attributes.size.div_ceil(u64::from(TOLD_BLOCK_BYTES)) * u64::from(TOLD_BLOCK_BYTES)
            / BLOCK_BYTES
    }

    /// As `stat` tells it.
    pub(crate) fn stat(&self) -> libc::stat {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        stat.st_dev = self.map.device;
        stat.st_ino = self.inode;
        stat.st_nlink = LINKS.into();
        stat.st_mode = self.mode();
        stat.st_uid = rustix::process::geteuid().as_raw();
        stat.st_gid = rustix::process::getegid().as_raw();
        stat.st_size = self.attributes.size as i64;
        stat.st_blksize = TOLD_BLOCK_BYTES as _;
        stat.st_blocks = self.blocks() as i64;
        let (seconds, nanos) = (self.attributes.mtime.secs, self.attributes.mtime.nanos.into());
        (stat.st_atime, stat.st_atime_nsec) = (seconds, nanos);
        (stat.st_mtime, stat.st_mtime_nsec) = (seconds, nanos);
        (stat.st_ctime, stat.st_ctime_nsec) = (seconds, nanos);
        stat
    }

    /// As `statx` tells it.
    pub(crate) fn statx(&self) -> libc::statx {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        stat.stx_mask = libc::STATX_BASIC_STATS;
        stat.stx_blksize = TOLD_BLOCK_BYTES;
        stat.stx_nlink = LINKS;
        stat.stx_uid = rustix::process::geteuid().as_raw();
        stat.stx_gid = rustix::process::getegid().as_raw();
        stat.stx_mode = self.mode() as u16;
        stat.stx_ino = self.inode;
        stat.stx_size = self.attributes.size;
        stat.stx_blocks = self.blocks();
        let mtime = self.attributes.mtime;
        for time in [&mut stat.stx_atime, &mut stat.stx_ctime, &mut stat.stx_mtime] {
            (time.tv_sec, time.tv_nsec) = (mtime.secs, mtime.nanos);
        }
        stat.stx_dev_major = libc::major(self.map.device);
        stat.stx_dev_minor = libc::minor(self.map.device);
        stat
    }

    /// Whether the user may use it so, as `access` tells it: files of a job are the user's own.
    pub(crate) fn access(&self, wanted: c_int) -> Result<c_int> {
        if wanted & libc::W_OK != 0 && self.kind == MapKind::ReadOnly {
            return Err(Errno::ROFS);
        }
        let mode = self.attributes.mode;
        let is_root = rustix::process::geteuid().is_root();
        let is_directory = self.attributes.kind == FileKind::Directory;
        let allowed = if is_root {
            let runs = is_directory || mode & 0o111 != 0;
            libc::R_OK | libc::W_OK | if runs { libc::X_OK } else { 0 }
        } else {
            (mode >> 6 & 0o7) as c_int
        };
        if wanted & !allowed == 0 { Ok(0) } else { Err(Errno::ACCESS) }
    }

    /// The text of a symlink.
    pub(crate) fn link(&self) -> Result<&[u8]> {
        if self.attributes.kind == FileKind::Symlink {
            Ok(&self.attributes.link)
        } else {
            Err(Errno::INVAL)
        }
    }
}
