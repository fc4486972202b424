//! What is under test: a directory used through the C library's functions, as any program uses it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use azekura_posix::{
    Allocation, Errno, FileKind, OFlags, RenameMode, SeekTo, Timestamp, XattrMode,
};

use azekura_testkit::model::{Answer, Op, Outcome, SLOTS, Stat, Subject, comparable, user_names};

/// A directory and the files open below it, as descriptor numbers.
pub(crate) struct Hooked {
    dir: Vec<u8>,
    base: c_int,
    open: [Option<c_int>; SLOTS],
}

fn c(text: &[u8]) -> CString {
    CString::new(text).unwrap()
}

/// What a C function that fails with -1 came to.
fn check<T: PartialOrd + Default>(result: T) -> Result<T, Errno> {
    if result < T::default() {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap());
    }
    Ok(result)
}

fn done(result: c_int) -> Outcome {
    check(result).map(|_| Answer::Done)
}

fn count(result: isize) -> Outcome {
    check(result).map(|bytes| Answer::Count(bytes as u64))
}

fn stat(stat: &libc::stat) -> Answer {
    Answer::Stat(comparable(Stat {
        kind: FileKind::from_mode(stat.st_mode).unwrap(),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: stat.st_nlink,
        size: stat.st_size as u64,
    }))
}

impl Hooked {
    /// The tree below `dir`, which must exist.
    pub(crate) fn new(dir: &Path) -> Self {
        let dir = dir.as_os_str().as_bytes().to_vec();
        // SAFETY: a C string; as for all calls of the C library below.
        let base = unsafe { libc::open(c(&dir).as_ptr(), libc::O_DIRECTORY | libc::O_RDONLY) };
        assert!(base >= 0);
        Self { dir, base, open: Default::default() }
    }

    /// A path for calls that take no directory.
    fn full(&self, path: &[u8]) -> CString {
        c(&[&self.dir, &b"/"[..], path].concat())
    }

    fn set(&mut self, slot: usize, fd: c_int) -> Outcome {
        let fd = check(fd)?;
        if let Some(old) = self.open[slot].replace(fd) {
            // SAFETY: a descriptor of ours.
            assert_eq!(unsafe { libc::close(old) }, 0);
        }
        Ok(Answer::Done)
    }

    fn apply_open(&mut self, op: &Op) -> Option<Outcome> {
        let slot = op.slot()?;
        let Some(fd) = self.open[slot] else { return Some(Ok(Answer::Skipped)) };
        // SAFETY: descriptors of ours and buffers of the right size.
        Some(unsafe {
            match op {
                Op::Close { .. } => {
                    self.open[slot] = None;
                    done(libc::close(fd))
                }
                Op::Read { offset, bytes, .. } => read(fd, *offset, *bytes).map(Answer::Data),
                Op::Write { offset, data, .. } => {
                    count(libc::pwrite(fd, data.as_ptr().cast(), data.len(), *offset as i64))
                }
                Op::Truncate { bytes, .. } => done(libc::ftruncate(fd, *bytes as i64)),
                Op::Allocate { offset, bytes, what, .. } => allocate(fd, *offset, *bytes, *what),
                Op::Seek { offset, to, .. } => {
                    let whence = match to {
                        SeekTo::Data => libc::SEEK_DATA,
                        SeekTo::Hole => libc::SEEK_HOLE,
                    };
                    count(libc::lseek(fd, *offset as i64, whence) as isize)
                }
                Op::Copy { from_offset, to, to_offset, bytes, .. } => match self.open[*to] {
                    None => Ok(Answer::Skipped),
                    Some(to) => {
                        let (mut source, mut sink) = (*from_offset as i64, *to_offset as i64);
                        let (from, to) = ((fd, &raw mut source), (to, &raw mut sink));
                        count(libc::copy_file_range(from.0, from.1, to.0, to.1, *bytes as usize, 0))
                    }
                },
                Op::Sync { .. } => done(libc::fsync(fd)),
                Op::StatOpen { .. } => {
                    let mut found = std::mem::zeroed();
                    check(libc::fstat(fd, &raw mut found)).map(|_| stat(&found))
                }
                Op::LinkOpen { path, .. } => {
                    let source = c(format!("/proc/self/fd/{fd}").as_bytes());
                    let (at, name) = (self.base, c(path));
                    let flags = libc::AT_SYMLINK_FOLLOW;
                    done(libc::linkat(libc::AT_FDCWD, source.as_ptr(), at, name.as_ptr(), flags))
                }
                _ => Ok(Answer::Skipped),
            }
        })
    }

    fn open(&mut self, slot: usize, path: &[u8], flags: OFlags, mode: u32) -> Outcome {
        let flags = flags.bits() as c_int | libc::O_CLOEXEC;
        // SAFETY: a C string.
        self.set(slot, unsafe { libc::openat(self.base, c(path).as_ptr(), flags, mode) })
    }

    /// Operations that make, move and remove names.
    fn apply_names(&mut self, op: &Op) -> Option<Outcome> {
        let base = self.base;
        // SAFETY: C strings that live to the end of each call.
        Some(unsafe {
            match op {
                Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode),
                Op::Tmpfile { slot, path } => {
                    self.open(*slot, path, OFlags::TMPFILE | OFlags::RDWR, 0o600)
                }
                Op::Mkdir { path, mode } => done(libc::mkdirat(base, c(path).as_ptr(), *mode)),
                Op::Rmdir { path } => {
                    done(libc::unlinkat(base, c(path).as_ptr(), libc::AT_REMOVEDIR))
                }
                Op::Unlink { path } => done(libc::unlinkat(base, c(path).as_ptr(), 0)),
                Op::Rename { from, to, mode } => {
                    let (from, to) = (c(from), c(to));
                    done(match mode {
                        RenameMode::Replace => {
                            libc::renameat(base, from.as_ptr(), base, to.as_ptr())
                        }
                        RenameMode::NoReplace => {
                            let flags = libc::RENAME_NOREPLACE;
                            libc::renameat2(base, from.as_ptr(), base, to.as_ptr(), flags)
                        }
                        RenameMode::Exchange => {
                            let flags = libc::RENAME_EXCHANGE;
                            libc::renameat2(base, from.as_ptr(), base, to.as_ptr(), flags)
                        }
                        RenameMode::Whiteout(_) => {
                            let flags = libc::RENAME_WHITEOUT;
                            libc::renameat2(base, from.as_ptr(), base, to.as_ptr(), flags)
                        }
                    })
                }
                Op::Link { from, to } => {
                    done(libc::linkat(base, c(from).as_ptr(), base, c(to).as_ptr(), 0))
                }
                Op::Symlink { text, path } => {
                    done(libc::symlinkat(c(text).as_ptr(), base, c(path).as_ptr()))
                }
                Op::Fifo { path, mode } => done(libc::mkfifoat(base, c(path).as_ptr(), *mode)),
                _ => return None,
            }
        })
    }

    fn apply_attributes(&mut self, op: &Op) -> Outcome {
        let base = self.base;
        // SAFETY: C strings that live to the end of each call, and buffers of the right size.
        unsafe {
            match op {
                Op::ReadLink { path } => {
                    let mut text = vec![0_u8; 4096];
                    let path = c(path);
                    let into = text.as_mut_ptr().cast();
                    let bytes = check(libc::readlinkat(base, path.as_ptr(), into, text.len()))?;
                    text.truncate(bytes as usize);
                    Ok(Answer::Data(text))
                }
                Op::Stat { path, follow } => {
                    let mut found = std::mem::zeroed();
                    let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
                    check(libc::fstatat(base, c(path).as_ptr(), &raw mut found, flags))?;
                    Ok(stat(&found))
                }
                Op::List { path } => self.list(path),
                Op::Chmod { path, mode } => done(libc::fchmodat(base, c(path).as_ptr(), *mode, 0)),
                Op::Times { path, atime, mtime } => self.set_times(path, *atime, *mtime),
                Op::TruncatePath { path, bytes } => {
                    done(libc::truncate(self.full(path).as_ptr(), *bytes as i64))
                }
                Op::SetXattr { path, name, value, mode } => {
                    let flags = match mode {
                        XattrMode::Set => 0,
                        XattrMode::Create => libc::XATTR_CREATE,
                        XattrMode::Replace => libc::XATTR_REPLACE,
                    };
                    let (path, name) = (self.full(path), c(name));
                    let (value, bytes) = (value.as_ptr().cast(), value.len());
                    done(libc::setxattr(path.as_ptr(), name.as_ptr(), value, bytes, flags))
                }
                Op::GetXattr { path, name } => {
                    let mut value = vec![0_u8; 65_536];
                    let (path, name) = (self.full(path), c(name));
                    let into = value.as_mut_ptr().cast();
                    let got = libc::getxattr(path.as_ptr(), name.as_ptr(), into, value.len());
                    value.truncate(check(got)? as usize);
                    Ok(Answer::Data(value))
                }
                Op::RemoveXattr { path, name } => {
                    done(libc::removexattr(self.full(path).as_ptr(), c(name).as_ptr()))
                }
                Op::ListXattrs { path } => {
                    let mut names = vec![0_u8; 65_536];
                    let path = self.full(path);
                    let into = names.as_mut_ptr().cast();
                    let got = check(libc::listxattr(path.as_ptr(), into, names.len()))?;
                    Ok(Answer::Data(user_names(&names[..got as usize])))
                }
                _ => Ok(Answer::Skipped),
            }
        }
    }

    fn set_times(&self, path: &[u8], atime: Timestamp, mtime: Timestamp) -> Outcome {
        let timespec =
            |time: Timestamp| libc::timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
        let times = [timespec(atime), timespec(mtime)];
        let time = |secs: i64, nanos: i64| Timestamp { secs, nanos: nanos as u32 };
        let path = c(path);
        // SAFETY: a C string, and structures of the right form.
        unsafe {
            check(libc::utimensat(self.base, path.as_ptr(), times.as_ptr(), 0))?;
            let mut found: libc::stat = std::mem::zeroed();
            check(libc::fstatat(self.base, path.as_ptr(), &raw mut found, 0))?;
            Ok(Answer::Times(
                time(found.st_atime, found.st_atime_nsec),
                time(found.st_mtime, found.st_mtime_nsec),
            ))
        }
    }

    fn list(&self, path: &[u8]) -> Outcome {
        let mut names = BTreeMap::new();
        // SAFETY: a stream from `fdopendir`, used until it is closed.
        unsafe {
            let flags = libc::O_DIRECTORY | libc::O_RDONLY;
            let fd = check(libc::openat(self.base, c(path).as_ptr(), flags))?;
            let stream = libc::fdopendir(fd);
            assert!(!stream.is_null());
            loop {
                let entry = libc::readdir(stream);
                if entry.is_null() {
                    break;
                }
                let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec();
                if name != b"." && name != b".." {
                    let kind = u32::from((*entry).d_type) << 12;
                    names.insert(name, FileKind::from_mode(kind).unwrap());
                }
            }
            assert_eq!(libc::closedir(stream), 0);
        }
        Ok(Answer::Names(names))
    }
}

impl Subject for Hooked {
    fn clients(&self) -> usize {
        1
    }

    fn apply(&mut self, _client: usize, op: &Op) -> Outcome {
        if let Some(outcome) = self.apply_open(op) {
            return outcome;
        }
        if let Some(outcome) = self.apply_names(op) {
            return outcome;
        }
        self.apply_attributes(op)
    }
}

fn read(fd: c_int, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut data = vec![0_u8; bytes];
    let mut got = 0;
    loop {
        let rest = &mut data[got..];
        let at = (offset + got as u64) as i64;
        // SAFETY: a buffer of that size.
        match check(unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), at) })? {
            0 => break,
            more => got += more as usize,
        }
    }
    data.truncate(got);
    Ok(data)
}

fn allocate(fd: c_int, offset: u64, bytes: u64, what: Allocation) -> Outcome {
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    let mode = match what {
        Allocation::Grow => 0,
        Allocation::KeepSize => keep,
        Allocation::PunchHole => keep | libc::FALLOC_FL_PUNCH_HOLE,
        Allocation::Zero => libc::FALLOC_FL_ZERO_RANGE,
        Allocation::ZeroKeepSize => keep | libc::FALLOC_FL_ZERO_RANGE,
    };
    // SAFETY: a descriptor and numbers.
    done(unsafe { libc::fallocate(fd, mode, offset as i64, bytes as i64) })
}
