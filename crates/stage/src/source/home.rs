//! The face that every kind of home has for the front; paths are relative to the mapped directory, and lead
//! through no symlink: the agents follow those.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};

/// A name can have 255 bytes; so many are kept in that of a file that is not whole yet.
const KEPT_NAME_BYTES: usize = 200;

/// The state of a file: if two are equal, its content was the same in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileState {
    /// What everybody sees.
    pub attributes: Attributes,
    /// Changes with every change of the file, where the home has such a thing: a change time, a version.
    pub change: u128,
}

/// A home of files.
pub trait Source: Send + Sync + 'static {
    /// What is at a path; a symlink is not followed.
    ///
    /// # Errors
    /// As lstat(2).
    fn attributes(&self, path: &[u8]) -> io::Result<Attributes>;

    /// All names in a directory, without the dots.
    ///
    /// # Errors
    /// As readdir(3).
    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Attributes)>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    fn open(&self, path: &[u8]) -> io::Result<Box<dyn SourceFile>>;

    /// Whether an answer takes a way through networks, and several answers at once take it in the same time: then
    /// small files are asked for side by side, and waited for longer.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether the state of an open file costs next to nothing, so that a change is noticed before the piece that was
    /// read goes out. If not, it is noticed at the end of a file, and programs must wait for that.
    fn tells_changes_at_once(&self) -> bool {
        true
    }

    /// Begins a file that will stand at `path` once it is committed, and is not seen there before.
    ///
    /// # Errors
    /// As open(2) with `O_CREAT`.
    fn create(&self, path: &[u8]) -> io::Result<Box<dyn NewFile>>;

    /// Makes a directory; one that is there already is right.
    ///
    /// # Errors
    /// As mkdir(2).
    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()>;

    /// Gives a directory its mode. A home without modes leaves it.
    ///
    /// # Errors
    /// As chmod(2).
    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let _ = (path, mode);
        Ok(())
    }

    /// Gives a directory its time of modification. A home without such times leaves it.
    ///
    /// # Errors
    /// As utimensat(2).
    fn set_mtime(&self, path: &[u8], mtime: Timestamp) -> io::Result<()> {
        let _ = (path, mtime);
        Ok(())
    }

    /// Gives the file at `to` a further name, in the place of whatever file has it.
    ///
    /// # Errors
    /// As link(2); [`io::ErrorKind::Unsupported`] where files have one name only.
    fn hard_link(&self, to: &[u8], path: &[u8]) -> io::Result<()> {
        let _ = (to, path);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a symlink, in the place of a file or symlink that is there.
    ///
    /// # Errors
    /// As symlink(2).
    fn make_link(&self, path: &[u8], text: &[u8]) -> io::Result<()>;

    /// Removes a file, a symlink, or an empty directory.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2).
    fn remove(&self, path: &[u8]) -> io::Result<()>;
}

/// A file that is being read.
pub trait SourceFile: Send + Sync {
    /// Its state now.
    ///
    /// # Errors
    /// As fstat(2).
    fn state(&self) -> io::Result<FileState>;

    /// Reads at an offset; fewer bytes than the buffer takes only at the end.
    ///
    /// # Errors
    /// As pread(2).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether other processes of this host find it by its path, and what has just been read of it in memory.
    fn is_at_hand(&self) -> bool {
        false
    }
}

/// A file that is being written. Dropped without a commit, it leaves nothing behind.
pub trait NewFile: Send {
    /// Writes at an offset.
    ///
    /// # Errors
    /// As pwrite(2).
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Gives it extended attributes, and an owner if it is to have another than who writes it. A home without
    /// such things leaves them.
    ///
    /// # Errors
    /// As setxattr(2) and chown(2).
    fn set_extras(
        &mut self,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        owner: Option<(u32, u32)>,
    ) -> io::Result<()> {
        let _ = (xattrs, owner);
        Ok(())
    }

    /// Gives it its name, in the place of whatever file has it.
    ///
    /// # Errors
    /// As fsync(2) and rename(2).
    fn commit(self: Box<Self>, mode: u32, mtime: Timestamp) -> io::Result<()>;
}

/// The kind of a file by the type bits of its mode, as stat(2) gives it.
pub(crate) fn kind_of(mode: u32) -> FileKind {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Symlink,
        rustix::fs::FileType::Fifo => FileKind::Fifo,
        rustix::fs::FileType::Socket => FileKind::Socket,
        rustix::fs::FileType::CharacterDevice => FileKind::CharDevice,
        rustix::fs::FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Regular,
    }
}

/// The path above a path, and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// A name for a file that is not whole yet, that nobody else has.
pub(crate) fn partial_name(name: &[u8]) -> io::Result<Vec<u8>> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mark = u32::from_le_bytes(random);
    let kept = &name[..name.len().min(KEPT_NAME_BYTES)];
    Ok([b".", kept, format!(".azekura-{mark:08x}").as_bytes()].concat())
}

/// The time as the standard library has it.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole =
        if time.secs < 0 { UNIX_EPOCH.checked_sub(secs) } else { UNIX_EPOCH.checked_add(secs) };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}
