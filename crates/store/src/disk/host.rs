//! The disk of this machine: every operation is one system call. Owns the translation of the traits'
//! terms into flags of the kernel.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura_proto::Timestamp;
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, Stat, Timespec,
    Timestamps, UTIME_OMIT,
};
use rustix::io::{Errno, Result, retry_on_intr};

use super::{Access, Allocation, Content, Directory, Disk, DiskSpace, File, FileStat, holders};

const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const READABLE_FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIR_MODE: Mode = Mode::from_raw_mode(0o777);

/// The file systems of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostDisk;

struct HostDirectory {
    path: PathBuf,
    fd: OwnedFd,
}

struct HostFile {
    fd: OwnedFd,
}

/// What the standard library says of a failed system call.
fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl From<&Stat> for FileStat {
    fn from(stat: &Stat) -> Self {
        let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: nanos as u32 };
        Self {
            bytes: stat.st_size as u64,
            blocks_512: stat.st_blocks as u64,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Disk for HostDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Directory>> {
        open_dir_at(CWD, path, path.to_path_buf())
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(path).map_err(|error| errno(&error))
    }

    fn boot(&self) -> Option<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let number = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
        Some(number.to_be_bytes())
    }
}

fn open_dir_at(at: BorrowedFd<'_>, name: &Path, path: PathBuf) -> Result<Arc<dyn Directory>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(at, name, flags, Mode::empty())?;
    Ok(Arc::new(HostDirectory { path, fd }))
}

impl Directory for HostDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Directory>> {
        open_dir_at(self.fd.as_fd(), Path::new(name), self.path.join(name))
    }

    fn create_dir(&self, name: &str) -> Result<()> {
        rustix::fs::mkdirat(&self.fd, name, DIR_MODE)
    }

    fn open(&self, name: &str, access: Access) -> Result<Box<dyn File>> {
        let existing = OFlags::RDWR | OFlags::NOFOLLOW;
        let (flags, mode) = match access {
            Access::Existing => (existing, Mode::empty()),
            Access::Read => (OFlags::RDONLY, Mode::empty()),
            Access::Create => (existing | OFlags::CREATE, FILE_MODE),
            Access::CreateReadable => (existing | OFlags::CREATE, READABLE_FILE_MODE),
        };
        let fd = rustix::fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(Box::new(HostFile { fd }))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn File>> {
        let file = self.open(name, Access::Create)?;
        if let Some(fd) = file.descriptor() {
            rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)?;
        }
        Ok(file)
    }

    fn stat(&self, name: &OsStr) -> Result<FileStat> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (&stat).into())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
    }

    fn remove_tree(&self, name: &str) -> Result<()> {
        std::fs::remove_dir_all(self.path.join(name)).map_err(|error| errno(&error))
    }

    fn list(&self, visit: &mut dyn FnMut(&OsStr) -> Result<()>) -> Result<()> {
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                visit(OsStr::from_bytes(name))?;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd)
    }

    fn sync_file_system(&self) -> Result<()> {
        // A descriptor of its own, which has not been told of earlier failures yet.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(&self.fd, ".", flags, Mode::empty())?)
    }

    fn device(&self) -> Result<u64> {
        rustix::fs::fstat(&self.fd).map(|stat| stat.st_dev)
    }

    fn space(&self) -> Result<DiskSpace> {
        let disk = rustix::fs::fstatvfs(&self.fd)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(DiskSpace {
            total_bytes: bytes(disk.f_blocks),
            free_bytes: bytes(disk.f_bfree),
            available_bytes: bytes(disk.f_bavail),
        })
    }
}

impl HostFile {
    fn open_anew(&self, flags: OFlags) -> Result<OwnedFd> {
        // Not by its name, which may lead to another file by now.
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

impl File for HostFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        retry_on_intr(|| rustix::io::pread(&self.fd, &mut *buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        retry_on_intr(|| rustix::io::pwrite(&self.fd, data, offset))
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(&self.fd, bytes))
    }

    fn allocate(&self, how: Allocation, offset: u64, bytes: u64) -> Result<()> {
        let mode = match how {
            Allocation::Extend => FallocateFlags::empty(),
            Allocation::KeepLength => FallocateFlags::KEEP_SIZE,
            Allocation::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocation::ZeroExtend => FallocateFlags::ZERO_RANGE,
            Allocation::ZeroKeepLength => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        retry_on_intr(|| rustix::fs::fallocate(&self.fd, mode, offset, bytes))
    }

    fn seek(&self, content: Content, offset: u64) -> Result<Option<u64>> {
        let to = match content {
            Content::Data => SeekFrom::Data(offset),
            Content::Hole => SeekFrom::Hole(offset),
        };
        match rustix::fs::seek(&self.fd, to) {
            Ok(offset) => Ok(Some(offset)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn stat(&self) -> Result<FileStat> {
        rustix::fs::fstat(&self.fd).map(|stat| (&stat).into())
    }

    fn set_mtime(&self, mtime: Timestamp) -> Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() },
        };
        rustix::fs::futimens(&self.fd, &times)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        retry_on_intr(|| {
            if data_only { rustix::fs::fdatasync(&self.fd) } else { rustix::fs::fsync(&self.fd) }
        })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn open_to_read(&self) -> Result<OwnedFd> {
        self.open_anew(OFlags::RDONLY)
    }

    fn open_to_write(&self) -> Result<OwnedFd> {
        self.open_anew(OFlags::RDWR)
    }

    fn append(&self, data: &[u8]) -> Result<u64> {
        let fd = self.open_anew(OFlags::WRONLY | OFlags::APPEND)?;
        let written = retry_on_intr(|| rustix::io::write(&fd, data))?;
        // The kernel has moved this descriptor's own position behind what it wrote.
        let end = rustix::fs::tell(&fd)?;
        if written < data.len() { Err(Errno::NOSPC) } else { Ok(end - written as u64) }
    }

    fn is_open_elsewhere(&self) -> Result<bool> {
        holders::is_open_elsewhere(self.fd.as_fd())
    }
}
