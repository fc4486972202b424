//! The reference: a directory of the machine's own file system.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};

use azekura_posix::{
    Allocation, Errno, FileKind, OFlags, RenameMode, SeekTo, Timestamp, XattrMode,
};
use rustix::fs::{
    self, AtFlags, FallocateFlags, Mode, RenameFlags, SeekFrom, Timespec, Timestamps, XattrFlags,
};

use super::operation::{Op, SLOTS};
use super::outcome::{Answer, Outcome, Stat, comparable};

/// A directory and the files open below it.
pub struct Local {
    base: OwnedFd,
    open: [Option<OwnedFd>; SLOTS],
}

fn kind(raw_mode: u32) -> FileKind {
    FileKind::from_mode(raw_mode).unwrap()
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() }
}

impl Local {
    /// The reference below `dir`, which must exist.
    pub fn new(dir: &Path) -> Self {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let base = fs::open(dir, flags, Mode::empty()).unwrap();
        Self { base, open: Default::default() }
    }

    /// A path for calls that take no directory.
    fn full(&self, path: &[u8]) -> PathBuf {
        let base = PathBuf::from(format!("/proc/self/fd/{}", self.base.as_raw_fd()));
        // Joined by hand: a trailing slash counts.
        let mut full = base.into_os_string().into_vec();
        full.push(b'/');
        full.extend_from_slice(path);
        PathBuf::from(std::ffi::OsString::from_vec(full))
    }

    /// The kind that a path leads to.
    pub(crate) fn kind_of(&self, path: &[u8]) -> Option<FileKind> {
        let stat = fs::statat(&self.base, OsStr::from_bytes(path), AtFlags::empty()).ok()?;
        Some(kind(stat.st_mode))
    }

    /// Everything in the regular file of a slot, however it is open.
    pub(crate) fn contents(&self, slot: usize) -> Option<Vec<u8>> {
        let file = self.open[slot].as_ref()?;
        let again = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        read(&OwnedFd::from(again), 0, 1 << 20).ok()
    }

    fn stat(stat: &fs::Stat) -> Answer {
        Answer::Stat(comparable(Stat {
            kind: kind(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink,
            size: stat.st_size as u64,
        }))
    }

    /// Carries out an operation.
    pub(crate) fn apply(&mut self, op: &Op) -> Outcome {
        if let Some(outcome) = self.apply_open(op) {
            return outcome;
        }
        self.apply_path(op)
    }

    /// Operations on open files; `None` for those by path.
    fn apply_open(&mut self, op: &Op) -> Option<Outcome> {
        let slot = op.slot()?;
        let Some(file) = &self.open[slot] else { return Some(Ok(Answer::Skipped)) };
        Some(match op {
            Op::Close { .. } => {
                self.open[slot] = None;
                Ok(Answer::Done)
            }
            Op::Read { offset, bytes, .. } => read(file, *offset, *bytes).map(Answer::Data),
            Op::Write { offset, data, .. } => {
                rustix::io::pwrite(file, data, *offset).map(|count| Answer::Count(count as u64))
            }
            Op::Truncate { bytes, .. } => fs::ftruncate(file, *bytes).map(|()| Answer::Done),
            Op::Allocate { offset, bytes, what, .. } => {
                allocate(file, *offset, *bytes, *what).map(|()| Answer::Done)
            }
            Op::Seek { offset, to, .. } => {
                let from = match to {
                    SeekTo::Data => SeekFrom::Data(*offset),
                    SeekTo::Hole => SeekFrom::Hole(*offset),
                };
                fs::seek(file, from).map(Answer::Count)
            }
            Op::Copy { from_offset, to, to_offset, bytes, .. } => match &self.open[*to] {
                None => Ok(Answer::Skipped),
                Some(to) => copy((file, *from_offset), (to, *to_offset), *bytes),
            },
            Op::Sync { .. } => fs::fsync(file).map(|()| Answer::Done),
            Op::StatOpen { .. } => fs::fstat(file).map(|stat| Self::stat(&stat)),
            Op::LinkOpen { path, .. } => {
                let source = format!("/proc/self/fd/{}", file.as_raw_fd());
                let name = OsStr::from_bytes(path);
                let flags = AtFlags::SYMLINK_FOLLOW;
                fs::linkat(fs::CWD, source, &self.base, name, flags).map(|()| Answer::Done)
            }
            _ => Ok(Answer::Skipped),
        })
    }

    fn open(&mut self, slot: usize, path: &[u8], flags: OFlags, mode: u32) -> Outcome {
        let name = OsStr::from_bytes(path);
        let mode = Mode::from_raw_mode(mode);
        self.open[slot] = Some(fs::openat(&self.base, name, flags | OFlags::CLOEXEC, mode)?);
        Ok(Answer::Done)
    }

    fn apply_path(&mut self, op: &Op) -> Outcome {
        let base = self.base.as_fd();
        let done = match op {
            Op::Open { slot, path, flags, mode } => return self.open(*slot, path, *flags, *mode),
            Op::Tmpfile { slot, path } => {
                return self.open(*slot, path, OFlags::TMPFILE | OFlags::RDWR, 0o600);
            }
            Op::Mkdir { path, mode } => {
                fs::mkdirat(base, OsStr::from_bytes(path), Mode::from_raw_mode(*mode))
            }
            Op::Rmdir { path } => fs::unlinkat(base, OsStr::from_bytes(path), AtFlags::REMOVEDIR),
            Op::Unlink { path } => fs::unlinkat(base, OsStr::from_bytes(path), AtFlags::empty()),
            Op::Rename { from, to, mode } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                    RenameMode::Whiteout(_) => RenameFlags::WHITEOUT,
                };
                let (from, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
                fs::renameat_with(base, from, base, to, flags)
            }
            Op::Link { from, to } => {
                let (from, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
                fs::linkat(base, from, base, to, AtFlags::empty())
            }
            Op::Symlink { text, path } => {
                fs::symlinkat(OsStr::from_bytes(text), base, OsStr::from_bytes(path))
            }
            Op::ReadLink { path } => {
                return fs::readlinkat(base, OsStr::from_bytes(path), Vec::new())
                    .map(|text| Answer::Data(text.into_bytes()));
            }
            Op::Stat { path, follow } => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                return fs::statat(base, OsStr::from_bytes(path), flags).map(|s| Self::stat(&s));
            }
            Op::List { path } => return self.list(path),
            Op::Fifo { path, mode } => fs::mknodat(
                base,
                OsStr::from_bytes(path),
                fs::FileType::Fifo,
                Mode::from_raw_mode(*mode),
                0,
            ),
            Op::Chmod { path, mode } => fs::chmodat(
                base,
                OsStr::from_bytes(path),
                Mode::from_raw_mode(*mode),
                AtFlags::empty(),
            ),
            Op::Times { path, atime, mtime } => return self.set_times(path, *atime, *mtime),
            Op::TruncatePath { path, bytes } => self.truncate_path(path, *bytes),
            Op::SetXattr { path, name, value, mode } => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                fs::setxattr(self.full(path), OsStr::from_bytes(name), value, flags)
            }
            Op::GetXattr { path, name } => {
                let mut value = vec![0; 65_536];
                let name = OsStr::from_bytes(name);
                let bytes = fs::getxattr(self.full(path), name, &mut value[..])?;
                value.truncate(bytes);
                return Ok(Answer::Data(value));
            }
            Op::RemoveXattr { path, name } => {
                fs::removexattr(self.full(path), OsStr::from_bytes(name))
            }
            Op::ListXattrs { path } => {
                let mut names = vec![0; 65_536];
                let bytes = fs::listxattr(self.full(path), &mut names[..])?;
                return Ok(Answer::Data(user_names(&names[..bytes])));
            }
            _ => return Ok(Answer::Skipped),
        };
        done.map(|()| Answer::Done)
    }

    fn set_times(&self, path: &[u8], atime: Timestamp, mtime: Timestamp) -> Outcome {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        let name = OsStr::from_bytes(path);
        fs::utimensat(&self.base, name, &times, AtFlags::empty())?;
        let stat = fs::statat(&self.base, name, AtFlags::empty())?;
        let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: nanos as u32 };
        Ok(Answer::Times(
            time(stat.st_atime, stat.st_atime_nsec),
            time(stat.st_mtime, stat.st_mtime_nsec),
        ))
    }

    /// `truncate`, for which there is no safe call without a descriptor.
    fn truncate_path(&self, path: &[u8], bytes: u64) -> Result<(), Errno> {
        let name = OsStr::from_bytes(path);
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&self.base, name, flags, Mode::empty()) {
            Ok(file) => fs::ftruncate(file, bytes),
            // What truncate says of a pipe.
            Err(Errno::NXIO) => Err(Errno::INVAL),
            Err(errno) => Err(errno),
        }
    }

    fn list(&self, path: &[u8]) -> Outcome {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = fs::openat(&self.base, OsStr::from_bytes(path), flags, Mode::empty())?;
        let mut names = BTreeMap::new();
        for entry in fs::Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.insert(name, kind(entry.file_type().as_raw_mode()));
            }
        }
        Ok(Answer::Names(names))
    }
}

/// The names of the name space that the test uses, in order.
pub fn user_names(names: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = names
        .split_inclusive(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."))
        .collect();
    names.sort_unstable();
    names.concat()
}

fn read(file: &OwnedFd, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut data = vec![0; bytes];
    let mut done = 0;
    loop {
        match rustix::io::pread(file, &mut data[done..], offset + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    data.truncate(done);
    Ok(data)
}

fn allocate(file: &OwnedFd, offset: u64, bytes: u64, what: Allocation) -> Result<(), Errno> {
    let keep = match what {
        Allocation::Grow => return fs::fallocate(file, FallocateFlags::empty(), offset, bytes),
        Allocation::KeepSize => {
            return fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes);
        }
        Allocation::PunchHole => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return fs::fallocate(file, flags, offset, bytes);
        }
        Allocation::Zero => false,
        Allocation::ZeroKeepSize => true,
    };
    // Not every file system has it, so zeros are made by hand. The first call finds the errors.
    fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes)?;
    let size = fs::fstat(file)?.st_size as u64;
    let end = if keep { (offset + bytes).min(size) } else { offset + bytes };
    if !keep && end > size {
        fs::ftruncate(file, end)?;
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if end > offset { fs::fallocate(file, flags, offset, end - offset) } else { Ok(()) }
}

fn copy(
    (from, from_offset): (&OwnedFd, u64),
    (to, to_offset): (&OwnedFd, u64),
    bytes: u64,
) -> Outcome {
    let (mut source, mut sink) = (from_offset, to_offset);
    fs::copy_file_range(from, Some(&mut source), to, Some(&mut sink), bytes as usize)
        .map(|count| Answer::Count(count as u64))
}
