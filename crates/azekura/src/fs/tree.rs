//! The two kinds of file trees that files are copied between: of this machine, and of a container.
//! Both are used through [`Tree`]; nothing here decides what is copied.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use azekura_posix::{AttrUpdate, File, FileKind, NewEntry, Oid, OpenOptions, SetTime, Timestamp};
use azekura_proto::attr::AttrChange;
use azekura_proto::message::typed::SetAttr;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::opened::Opened;

/// Setuid and setgid.
pub(super) const SET_ID: u32 = 0o6000;

/// What a copy takes along besides the contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) kind: FileKind,
    /// Permission bits with setuid, setgid and sticky, as the original has them.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) blocks_512: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) rdev: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A file open for copying from or to.
pub(crate) enum OpenFile {
    /// Of this machine.
    Local(fs::File),
    /// Of a container.
    Pool(Box<File>),
}

impl OpenFile {
    /// Reads at an offset; 0 at the end only.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Local(file) => file.read_at(buffer, offset),
            Self::Pool(file) => Ok(file.read_at(buffer, offset)?),
        }
    }

    /// Writes all of it at an offset.
    pub(crate) fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Local(file) => file.write_all_at(data, offset),
            Self::Pool(file) => Ok(file.write_all_at(data, offset)?),
        }
    }

    /// Closes it: what was written has arrived then.
    pub(crate) fn close(self) -> io::Result<()> {
        match self {
            Self::Local(_) => Ok(()),
            Self::Pool(file) => Ok(file.close()?),
        }
    }

    /// Makes it that long.
    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Local(file) => file.set_len(bytes),
            Self::Pool(file) => Ok(file.set_len(bytes)?),
        }
    }
}

/// A tree of files.
#[derive(Clone)]
pub(crate) enum Tree {
    /// Of this machine.
    Local,
    /// Of a container.
    Pool(Opened),
}

/// A path of this machine.
pub(super) fn local(path: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path))
}

fn timestamp(secs: i64, nanos: i64) -> Timestamp {
    Timestamp { secs, nanos: nanos.clamp(0, 999_999_999) as u32 }
}

impl Tree {
    /// How a path is shown to people.
    pub(crate) fn show(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        match self {
            Self::Local => path.into_owned(),
            Self::Pool(container) => format!("{}:{path}", container.name),
        }
    }

    /// Whether both are the same tree.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local, Self::Local) => true,
            (Self::Pool(one), Self::Pool(other)) => one.name == other.name,
            (Self::Local, Self::Pool(_)) | (Self::Pool(_), Self::Local) => false,
        }
    }

    /// What a path leads to; a last symlink is followed if `follow`.
    pub(crate) fn meta(&self, path: &[u8], follow: bool) -> io::Result<Meta> {
        match self {
            Self::Local => {
                let path = local(path);
                let found = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) }?;
                let kind = FileKind::from_mode(found.mode())
                    .ok_or_else(|| io::Error::other("a file of unknown type"))?;
                Ok(Meta {
                    kind,
                    mode: found.mode() & 0o7777,
                    size: found.len(),
                    blocks_512: found.blocks(),
                    atime: timestamp(found.atime(), found.atime_nsec()),
                    mtime: timestamp(found.mtime(), found.mtime_nsec()),
                    rdev: found.rdev(),
                    uid: found.uid(),
                    gid: found.gid(),
                })
            }
            Self::Pool(container) => {
                let attr = container.names.resolve(path, follow)?;
                Ok(Meta {
                    kind: attr.kind,
                    mode: u32::from(attr.mode),
                    size: attr.size,
                    blocks_512: attr.blocks_512,
                    atime: attr.atime,
                    mtime: attr.mtime,
                    rdev: attr.rdev,
                    uid: attr.uid,
                    gid: attr.gid,
                })
            }
        }
    }

    /// Names in a directory.
    pub(crate) fn list(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        match self {
            Self::Local => {
                fs::read_dir(local(path))?.map(|entry| Ok(entry?.file_name().into_vec())).collect()
            }
            Self::Pool(container) => {
                container.names.read_dir(path)?.map(|entry| Ok(entry?.name)).collect()
            }
        }
    }

    /// The text of a symlink.
    pub(crate) fn read_link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Local => Ok(fs::read_link(local(path))?.into_os_string().into_vec()),
            Self::Pool(container) => Ok(container.names.read_link(path)?),
        }
    }

    /// Makes a directory, or tells that one was there. Its owner can write in it in any case.
    pub(crate) fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<bool> {
        let result = match self {
            Self::Local => {
                use std::os::unix::fs::DirBuilderExt as _;
                fs::DirBuilder::new().mode(mode | 0o700).create(local(path))
            }
            Self::Pool(container) => {
                container.names.create_dir(path, mode | 0o700).map(drop).map_err(io::Error::from)
            }
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = self.meta(path, true)?.kind;
                if found == FileKind::Directory { Ok(false) } else { Err(error) }
            }
            other => other.map(|()| true),
        }
    }

    /// Makes a symlink in the place of whatever file is there.
    pub(crate) fn make_symlink(&self, text: &[u8], path: &[u8]) -> io::Result<()> {
        self.in_place_of_a_file(path, || match self {
            Self::Local => std::os::unix::fs::symlink(local(text), local(path)),
            Self::Pool(container) => Ok(container.names.symlink(text, path).map(drop)?),
        })
    }

    /// Makes a fifo, socket or device node in the place of whatever file is there.
    pub(crate) fn make_node(&self, path: &[u8], meta: &Meta) -> io::Result<()> {
        self.in_place_of_a_file(path, || match self {
            Self::Local => {
                let kind = rustix::fs::FileType::from_raw_mode(meta.kind.mode_bits());
                let mode = rustix::fs::Mode::from_raw_mode(meta.mode & !SET_ID);
                Ok(rustix::fs::mknodat(CWD, local(path), kind, mode, meta.rdev)?)
            }
            Self::Pool(container) => {
                let what = match meta.kind {
                    FileKind::Fifo => NewEntry::Fifo,
                    FileKind::Socket => NewEntry::Socket,
                    FileKind::CharDevice => NewEntry::CharDevice(meta.rdev),
                    FileKind::BlockDevice => NewEntry::BlockDevice(meta.rdev),
                    FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                };
                let (dir, name) = split(path)?;
                let dir = container.names.resolve(dir, true)?.oid;
                let (fs, caller) = (&container.fs, &container.caller);
                Ok(fs.make(caller, dir, name, meta.mode & !SET_ID, what).map(drop)?)
            }
        })
    }

    fn in_place_of_a_file(&self, path: &[u8], make: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match self {
                    Self::Local => fs::remove_file(local(path))?,
                    Self::Pool(container) => container.names.remove_file(path)?,
                }
                make()
            }
            other => other,
        }
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, path: &[u8]) -> io::Result<OpenFile> {
        Ok(match self {
            Self::Local => OpenFile::Local(fs::File::open(local(path))?),
            Self::Pool(container) => {
                OpenFile::Pool(Box::new(container.names.open(path, &OpenOptions::read_only())?))
            }
        })
    }

    /// The object at a path of a container, where it is not known already.
    pub(super) fn object(container: &Opened, path: &[u8], oid: Option<Oid>) -> io::Result<Oid> {
        Ok(match oid {
            Some(oid) => oid,
            None => container.names.resolve(path, false)?.oid,
        })
    }

    /// Gives a copy a mode, but the set-id bits in `kept` only, and the times of its original; a
    /// symlink has no mode of its own. `oid`: of a file of a container that the caller has made.
    pub(crate) fn finish(
        &self,
        path: &[u8],
        oid: Option<Oid>,
        meta: &Meta,
        kept: u32,
    ) -> io::Result<()> {
        let with_mode = meta.kind != FileKind::Symlink;
        let mode = meta.mode & (!SET_ID | kept);
        match self {
            Self::Local => {
                if with_mode {
                    fs::set_permissions(local(path), fs::Permissions::from_mode(mode))?;
                }
                let spec = |time: Timestamp| Timespec {
                    tv_sec: time.secs,
                    tv_nsec: i64::from(time.nanos),
                };
                let times = Timestamps {
                    last_access: spec(meta.atime),
                    last_modification: spec(meta.mtime),
                };
                Ok(rustix::fs::utimensat(CWD, local(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Self::Pool(container) => {
                let mode = with_mode.then_some(mode);
                let (atime, mtime) = (Some(SetTime::At(meta.atime)), Some(SetTime::At(meta.mtime)));
                let Some(oid) = oid.filter(|_| kept == 0) else {
                    let oid = Self::object(container, path, oid)?;
                    let update = AttrUpdate { mode, atime, mtime, ..AttrUpdate::default() };
                    return Ok(container
                        .fs
                        .setattr(&container.caller, oid, None, &update)
                        .map(drop)?);
                };
                // The caller's own file, just made: there is nothing to look at first.
                let mode = mode.map(|mode| mode as u16);
                let change = AttrChange { mode, atime, mtime, ..AttrChange::default() };
                let set = container.fs.pool().call(oid.home(), SetAttr { oid, change });
                Ok(set.map(drop).map_err(|error| azekura_posix::errno::of_client(&error))?)
            }
        }
    }
}

/// The directory and the last name of a path.
pub(super) fn split(path: &[u8]) -> io::Result<(&[u8], &[u8])> {
    let at = path.iter().rposition(|byte| *byte == b'/').ok_or(io::ErrorKind::InvalidInput)?;
    Ok((if at == 0 { b"/" } else { &path[..at] }, &path[at + 1..]))
}

/// The bytes of a path of this machine.
pub(crate) fn bytes_of(path: &Path) -> Vec<u8> {
    PathBuf::from(path).into_os_string().into_vec()
}
