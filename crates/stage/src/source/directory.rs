//! A directory of the front's own host as a home. Owns the rule that no path leads out of it: every name is
//! reached from the directory's descriptor, and no symlink on the way is followed.

use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::home::{self, FileState, NewFile, Source, SourceFile};

/// A directory.
#[derive(Debug)]
pub struct Directory {
    root: Arc<OwnedFd>,
}

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: Arc::new(rustix::fs::open(path, flags, Mode::empty())?) })
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        loop {
            match rustix::fs::openat2(&*self.root, path, flags, Mode::empty(), resolve) {
                // Somebody renames directories on the way.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return Ok(opened?),
            }
        }
    }

    /// The directory above a path, and its last name.
    fn parent<'a>(&self, path: &'a [u8]) -> io::Result<(OwnedFd, &'a OsStr)> {
        let (above, name) = home::split(path);
        if name.is_empty() || name == b"." || name == b".." {
            return Err(Errno::INVAL.into());
        }
        Ok((self.open_at(above, OFlags::PATH | OFlags::DIRECTORY)?, OsStr::from_bytes(name)))
    }
}

impl Source for Directory {
    fn attributes(&self, path: &[u8]) -> io::Result<Attributes> {
        if path.is_empty() {
            return Ok(attributes_of(&rustix::fs::fstat(&*self.root)?, Vec::new()));
        }
        let (above, name) = self.parent(path)?;
        attributes_in(&above, name)
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Attributes)>> {
        let directory = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            match attributes_in(&directory, OsStr::from_bytes(name)) {
                Ok(attributes) => entries.push((name.to_vec(), attributes)),
                // It went away meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn SourceFile>> {
        // Opening a pipe must not wait for a writer.
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(OpenFile(file.into())))
    }

    fn create(&self, path: &[u8]) -> io::Result<Box<dyn NewFile>> {
        let (above, name) = self.parent(path)?;
        let partial = home::partial_name(name.as_bytes())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(
            &above,
            OsStr::from_bytes(&partial),
            flags,
            Mode::RUSR | Mode::WUSR,
        )?;
        let name = name.as_bytes().to_vec();
        Ok(Box::new(Unnamed { above, file: file.into(), partial, name, is_named: false }))
    }

    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (above, name) = self.parent(path)?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(mode & 0o777)) {
            Err(Errno::EXIST) if attributes_in(&above, name)?.kind == FileKind::Directory => Ok(()),
            other => Ok(other?),
        }
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let directory = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode & 0o777))?)
    }

    fn make_link(&self, path: &[u8], text: &[u8]) -> io::Result<()> {
        let (above, name) = self.parent(path)?;
        match rustix::fs::symlinkat(OsStr::from_bytes(text), &above, name) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&above, name, AtFlags::empty())?;
                Ok(rustix::fs::symlinkat(OsStr::from_bytes(text), &above, name)?)
            }
            other => Ok(other?),
        }
    }

    fn remove(&self, path: &[u8]) -> io::Result<()> {
        let (above, name) = self.parent(path)?;
        match rustix::fs::unlinkat(&above, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => Ok(rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR)?),
            removed => Ok(removed?),
        }
    }
}

struct OpenFile(File);

impl SourceFile for OpenFile {
    fn state(&self) -> io::Result<FileState> {
        let stat = rustix::fs::fstat(&self.0)?;
        let change =
            (u128::from(stat.st_ctime as u64) << 32) | u128::from(stat.st_ctime_nsec as u32);
        Ok(FileState { attributes: attributes_of(&stat, Vec::new()), change })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

struct Unnamed {
    above: OwnedFd,
    file: File,
    partial: Vec<u8>,
    name: Vec<u8>,
    is_named: bool,
}

impl NewFile for Unnamed {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn commit(mut self: Box<Self>, mode: u32, mtime: Timestamp) -> io::Result<()> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))?;
        self.file.set_times(FileTimes::new().set_modified(home::system_time(mtime)))?;
        self.file.sync_all()?;
        let (from, to) = (OsStr::from_bytes(&self.partial), OsStr::from_bytes(&self.name));
        rustix::fs::renameat(&self.above, from, &self.above, to)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.is_named {
            let partial = OsStr::from_bytes(&self.partial);
            // Nothing more can be done about it; its name says what it is.
            let _ = rustix::fs::unlinkat(&self.above, partial, AtFlags::empty());
        }
    }
}

fn attributes_in(directory: impl AsFd, name: &OsStr) -> io::Result<Attributes> {
    let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let link = match home::kind_of(stat.st_mode) {
        FileKind::Symlink => rustix::fs::readlinkat(&directory, name, Vec::new())?.into_bytes(),
        _ => Vec::new(),
    };
    Ok(attributes_of(&stat, link))
}

fn attributes_of(stat: &Stat, link: Vec<u8>) -> Attributes {
    Attributes {
        kind: home::kind_of(stat.st_mode),
        mode: stat.st_mode & 0o777,
        size: stat.st_size as u64,
        mtime: Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
        link,
    }
}
