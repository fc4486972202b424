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
use rustix::fd::{AsFd, AsRawFd as _, OwnedFd};
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::home::{self, FileState, NewFile, Source, SourceFile};

/// File systems of a host's own that leave what has been read in its page cache.
const CACHED: [libc::c_long; 6] = [
    libc::EXT4_SUPER_MAGIC,
    libc::XFS_SUPER_MAGIC,
    libc::BTRFS_SUPER_MAGIC,
    libc::F2FS_SUPER_MAGIC,
    libc::TMPFS_MAGIC,
    libc::OVERLAYFS_SUPER_MAGIC,
];

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
        Ok(Box::new(Unfinished::begin(above, name)?))
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

    fn set_mtime(&self, path: &[u8], mtime: Timestamp) -> io::Result<()> {
        let directory = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        File::from(directory).set_times(FileTimes::new().set_modified(home::system_time(mtime)))
    }

    fn hard_link(&self, to: &[u8], path: &[u8]) -> io::Result<()> {
        let ((from_above, from), (above, name)) = (self.parent(to)?, self.parent(path)?);
        let beside = home::partial_name(name.as_bytes())?;
        let beside = OsStr::from_bytes(&beside);
        rustix::fs::linkat(&from_above, from, &above, beside, AtFlags::empty())?;
        let renamed = rustix::fs::renameat(&above, beside, &above, name);
        // If the name is one of this file already the rename does nothing; else it is gone.
        match rustix::fs::unlinkat(&above, beside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(renamed?),
            Err(error) => Err(error.into()),
        }
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

    fn is_at_hand(&self) -> bool {
        let found = rustix::fs::fstatfs(&self.0);
        found.is_ok_and(|found| CACHED.contains(&(found.f_type as libc::c_long)))
    }
}

/// A file that has not its own name: none at all where the file system can do that, so that nothing stays of
/// it if this process is killed; else one that says what it is.
struct Unfinished {
    above: OwnedFd,
    file: File,
    name: Vec<u8>,
    /// The name that is to be removed if the file does not get its own.
    partial: Option<Vec<u8>>,
}

impl Unfinished {
    fn begin(above: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::openat(&above, ".", flags, Mode::RUSR | Mode::WUSR) {
            // NFS and some others have no files without names; old ones take it for the directory itself.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::begin_named(above, name),
            file => {
                let (file, name) = (file?.into(), name.as_bytes().to_vec());
                Ok(Self { above, file, name, partial: None })
            }
        }
    }

    fn begin_named(above: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let name = name.as_bytes().to_vec();
        let partial = home::partial_name(&name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&above, OsStr::from_bytes(&partial), flags, mode)?.into();
        Ok(Self { above, file, name, partial: Some(partial) })
    }

    /// A path to the file, whatever its name: by its descriptor itself only those with privileges may link it.
    fn by_descriptor(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Gives a file without a name one.
    fn link(&self, name: &[u8]) -> rustix::io::Result<()> {
        let (file, name) = (self.by_descriptor(), OsStr::from_bytes(name));
        rustix::fs::linkat(rustix::fs::CWD, file, &self.above, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl NewFile for Unfinished {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn set_extras(
        &mut self,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        owner: Option<(u32, u32)>,
    ) -> io::Result<()> {
        let file = &self.file;
        if let Some((user, group)) = owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::fchown(file, Some(user), Some(group))?;
        }
        for (name, value) in xattrs {
            match rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty()) {
                // This file system has none.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>, mode: u32, mtime: Timestamp) -> io::Result<()> {
        // A program that somebody has open for writing cannot be run, so it is not when it gets its name.
        let reading = File::open(self.by_descriptor())?;
        let file = std::mem::replace(&mut self.file, reading);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        file.set_times(FileTimes::new().set_modified(home::system_time(mtime)))?;
        file.sync_all()?;
        drop(file);
        if self.partial.is_none() {
            match self.link(&self.name) {
                // Only a rename puts it in the place of another.
                Err(Errno::EXIST) => {
                    let partial = home::partial_name(&self.name)?;
                    self.link(&partial)?;
                    self.partial = Some(partial);
                }
                linked => return Ok(linked?),
            }
        }
        if let Some(partial) = &self.partial {
            let (from, to) = (OsStr::from_bytes(partial), OsStr::from_bytes(&self.name));
            rustix::fs::renameat(&self.above, from, &self.above, to)?;
            self.partial = None;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Nothing more can be done about it; its name says what it is.
            let _ = rustix::fs::unlinkat(&self.above, OsStr::from_bytes(partial), AtFlags::empty());
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    type Begin = fn(OwnedFd, &OsStr) -> io::Result<Unfinished>;

    fn names(directory: &Path) -> Vec<PathBuf> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_nothing_stays_of_one_that_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        let begin = |begin: Begin| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let above = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
            begin(above, OsStr::new("name")).unwrap()
        };
        let ways: [Begin; 2] = [Unfinished::begin, Unfinished::begin_named];
        for (number, way) in ways.into_iter().enumerate() {
            let mut given_up = begin(way);
            given_up.write_at(b"half", 0).unwrap();
            assert!(!path.exists());
            drop(given_up);
            assert_eq!(names(directory.path()), [] as [PathBuf; 0]);
            // The first has no other in its place, the second has.
            for text in ["first", "second"] {
                let mut file = Box::new(begin(way));
                file.write_at(text.as_bytes(), 0).unwrap();
                file.commit(0o640, Timestamp { secs: 7, nanos: 0 }).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{number}");
                assert_eq!(names(directory.path()), std::slice::from_ref(&path));
            }
            let found = attributes_of(&rustix::fs::stat(&path).unwrap(), Vec::new());
            assert_eq!((found.mode, found.mtime.secs), (0o640, 7));
            fs::remove_file(&path).unwrap();
        }
    }
}
