//! A directory of a pool as a home. Owns the rule that no path leads out of it: every name is looked up from
//! the directory's object on, and no symlink on the way is followed. Keeps all that a directory of a host keeps.

use std::io;

use azekura_posix::{
    Attr, AttrUpdate, AttrsWanted, File, Namespace, OFlags, Oid, OpenOptions, RenameMode, SetTime,
};
use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};
use rustix::io::Errno;

use super::home::{self, FileState, NewFile, Source, SourceFile};

/// Names fetched at a time, in bytes.
const PAGE_BYTES: u32 = 64 * 1024;
/// The cookie behind the dot entries.
const AFTER_DOTS: u64 = 2;

/// A directory of a container.
#[derive(Debug)]
pub struct PoolDirectory {
    names: Namespace,
    root: Oid,
}

impl PoolDirectory {
    /// The directory to which a path of a container leads.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(names: Namespace, path: &[u8]) -> io::Result<Self> {
        let found = names.resolve(path, true)?;
        if found.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self { names, root: found.oid })
    }

    fn walk(&self, path: &[u8]) -> io::Result<Attr> {
        let fs = self.names.filesystem();
        let mut at = fs.getattr(self.root)?;
        if path.is_empty() {
            return Ok(at);
        }
        for name in path.split(|byte| *byte == b'/') {
            if at.kind != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
            check(name)?;
            at = fs.lookup(self.names.caller(), at.oid, name)?;
        }
        Ok(at)
    }

    /// The directory above a path, and its last name.
    fn parent<'a>(&self, path: &'a [u8]) -> io::Result<(Namespace, &'a [u8])> {
        let (above, name) = home::split(path);
        check(name)?;
        let above = self.walk(above)?;
        if above.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok((self.names.at(above.oid), name))
    }

    /// Changes attributes of a directory.
    fn update(&self, path: &[u8], update: &AttrUpdate) -> io::Result<()> {
        let directory = self.walk(path)?;
        if directory.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let fs = self.names.filesystem();
        Ok(fs.setattr(self.names.caller(), directory.oid, None, update).map(drop)?)
    }

    fn attributes_of(&self, attr: &Attr) -> io::Result<Attributes> {
        let link = match attr.kind {
            FileKind::Symlink => self.names.filesystem().readlink(attr.oid)?,
            _ => Vec::new(),
        };
        let Attr { kind, size, mtime, .. } = *attr;
        Ok(Attributes { kind, mode: u32::from(attr.mode) & 0o777, size, mtime, link })
    }
}

fn check(name: &[u8]) -> io::Result<()> {
    if matches!(name, b"" | b"." | b"..") { Err(Errno::INVAL.into()) } else { Ok(()) }
}

impl Source for PoolDirectory {
    fn attributes(&self, path: &[u8]) -> io::Result<Attributes> {
        self.attributes_of(&self.walk(path)?)
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Attributes)>> {
        let found = self.walk(path)?;
        if found.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let (fs, mut cookie, mut entries) = (self.names.filesystem(), AFTER_DOTS, Vec::new());
        loop {
            let caller = self.names.caller();
            let page = fs.readdir(caller, found.oid, cookie, PAGE_BYTES, AttrsWanted::All)?;
            for entry in &page.entries {
                cookie = entry.cookie;
                let attr = match &entry.attr {
                    Some(attr) => attr.clone(),
                    None => match fs.getattr(entry.oid) {
                        Ok(attr) => attr,
                        // It went away meanwhile.
                        Err(Errno::NOENT | Errno::STALE) => continue,
                        Err(errno) => return Err(errno.into()),
                    },
                };
                entries.push((entry.name.clone(), self.attributes_of(&attr)?));
            }
            if page.end || page.entries.is_empty() {
                return Ok(entries);
            }
        }
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn SourceFile>> {
        let (above, name) = self.parent(path)?;
        // Opening a pipe must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(Box::new(OpenFile(above.open(name, &OpenOptions::new(flags, 0))?)))
    }

    fn create(&self, path: &[u8]) -> io::Result<Box<dyn NewFile>> {
        let (above, name) = self.parent(path)?;
        let partial = home::partial_name(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = above.open(&partial, &OpenOptions::new(flags, 0o600))?;
        let name = name.to_vec();
        Ok(Box::new(Unnamed { above, file, partial, name, is_named: false }))
    }

    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (above, name) = self.parent(path)?;
        match above.create_dir(name, mode & 0o777) {
            Err(Errno::EXIST) if self.walk(path)?.kind == FileKind::Directory => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.update(path, &AttrUpdate { mode: Some(mode & 0o777), ..AttrUpdate::default() })
    }

    fn set_mtime(&self, path: &[u8], mtime: Timestamp) -> io::Result<()> {
        self.update(path, &AttrUpdate { mtime: Some(SetTime::At(mtime)), ..AttrUpdate::default() })
    }

    fn make_link(&self, path: &[u8], text: &[u8]) -> io::Result<()> {
        let (above, name) = self.parent(path)?;
        match above.symlink(text, name) {
            Err(Errno::EXIST) => {
                above.remove_file(name)?;
                Ok(above.symlink(text, name).map(drop)?)
            }
            made => Ok(made.map(drop)?),
        }
    }

    fn remove(&self, path: &[u8]) -> io::Result<()> {
        let (above, name) = self.parent(path)?;
        match above.remove_file(name) {
            Err(Errno::ISDIR) => Ok(above.remove_dir(name)?),
            removed => Ok(removed?),
        }
    }
}

struct OpenFile(File);

impl SourceFile for OpenFile {
    fn state(&self) -> io::Result<FileState> {
        let Attr { kind, mode, size, mtime, ctime, .. } = self.0.metadata()?;
        let change = (u128::from(ctime.secs as u64) << 32) | u128::from(ctime.nanos);
        let mode = u32::from(mode) & 0o777;
        let attributes = Attributes { kind, mode, size, mtime, link: Vec::new() };
        Ok(FileState { attributes, change })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.0.read_at(buffer, offset)?)
    }
}

/// A file under a name that nobody asks for.
struct Unnamed {
    above: Namespace,
    file: File,
    partial: Vec<u8>,
    name: Vec<u8>,
    is_named: bool,
}

impl NewFile for Unnamed {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Ok(self.file.write_all_at(bytes, offset)?)
    }

    fn commit(mut self: Box<Self>, mode: u32, mtime: Timestamp) -> io::Result<()> {
        // What is still on its way would change the time again.
        self.file.sync()?;
        let mode = Some(mode & 0o777);
        let mtime = Some(SetTime::At(mtime));
        self.file.set_attr(&AttrUpdate { mode, mtime, ..AttrUpdate::default() })?;
        self.file.sync()?;
        self.above.rename(&self.partial, &self.name, RenameMode::Replace)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.is_named {
            // Nothing more can be done about it; its name says what it is.
            let _ = self.above.remove_file(&self.partial);
        }
    }
}
