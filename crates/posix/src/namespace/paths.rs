//! The calls by path. Owns what each of them makes of a path that ends with a slash or a dot.

use std::sync::Arc;

use azekura_proto::Attr;
use azekura_proto::attr::FileKind;
use azekura_proto::message::{RenameMode, XattrMode};
use rustix::fs::OFlags;

use super::walk::Place;
use super::{Directory, File, Namespace, OpenOptions};
use crate::ops::attr::AttrUpdate;
use crate::ops::create::NewEntry;
use crate::ops::open::Named;
use crate::ops::statfs::StatFs;
use crate::{Access, Credentials, Errno, OpenFile, Result, permission};

impl Namespace {
    fn file(&self, handle: OpenFile) -> File {
        File::new(Arc::clone(&self.fs), Arc::clone(&self.caller), handle)
    }

    /// Opens a file (or, for reading, a directory).
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(&self, path: impl AsRef<[u8]>, options: &OpenOptions) -> Result<File> {
        let OpenOptions { flags, mode } = *options;
        if flags & OFlags::ACCMODE == OFlags::RDONLY {
            self.fs.reading.expect_reads();
        }
        let mut place = self.place(path.as_ref())?;
        if flags.contains(OFlags::TMPFILE) {
            let dir = match self.known_directory(&place)? {
                Some(dir) => dir,
                None => self.resolve_place(place, true, &mut 0)?.oid,
            };
            let (_, handle) = self.fs.tmpfile(&self.caller, dir, mode, flags)?;
            return Ok(self.file(handle));
        }
        if flags.contains(OFlags::CREATE) {
            return self.open_or_create(place, flags, mode);
        }
        let only_reads = flags & (OFlags::ACCMODE | OFlags::TRUNC) == OFlags::RDONLY;
        if only_reads && let Some(dir) = self.known_directory(&place)? {
            match self.fs.open(&self.caller, dir, flags | OFlags::DIRECTORY) {
                // Removed or replaced since it was found.
                Err(Errno::STALE | Errno::NOTDIR) => {}
                other => return other.map(|(_, handle)| self.file(handle)),
            }
        }
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let mut links = 0;
        // A directory that is going to be listed is opened together with its listing.
        let is_listed = flags.contains(OFlags::DIRECTORY) && self.fs.keeps_listed();
        while let (false, Place::Name { dir, name, slash: false }) = (is_listed, &place) {
            match self.fs.open_name(&self.caller, *dir, name, flags)? {
                Named::Open(opened) => return Ok(self.file(opened.1)),
                Named::Symlink(link) if follow => place = self.followed(*dir, link, &mut links)?,
                Named::Symlink(_) | Named::Unclear => break,
            }
        }
        let oid = self.resolve_place(place, follow, &mut links)?.oid;
        self.fs.open(&self.caller, oid, flags).map(|(_, handle)| self.file(handle)).map_err(
            |errno| match errno {
                // Removed between the two steps.
                Errno::STALE => Errno::NOENT,
                other => other,
            },
        )
    }

    /// Opens an object that this process has the right to already, because it inherited it open.
    /// Permissions are not checked again: they may have changed since.
    ///
    /// # Errors
    /// `ESTALE` if the object is gone, `EIO`.
    pub fn reopen(&self, oid: azekura_proto::Oid, flags: OFlags) -> Result<File> {
        let (_, handle) = self.fs.open(&Credentials::ROOT, oid, flags & !OFlags::TRUNC)?;
        Ok(self.file(handle))
    }

    fn open_or_create(&self, mut place: Place, flags: OFlags, mode: u32) -> Result<File> {
        let mut links = 0;
        loop {
            let (dir, name) = match place {
                Place::Dot(_) | Place::DotDot(_) if flags.contains(OFlags::EXCL) => {
                    return Err(Errno::EXIST);
                }
                Place::Dot(_) | Place::DotDot(_) | Place::Name { slash: true, .. } => {
                    return Err(Errno::ISDIR);
                }
                Place::Name { dir, name, slash: false } => (dir, name),
            };
            match self.fs.create(&self.caller, dir, &name, mode, flags) {
                Err(Errno::LOOP) if !flags.contains(OFlags::NOFOLLOW) => {
                    match self.fs.entry_kind(dir, &name) {
                        Ok((link, FileKind::Symlink)) => {
                            place = self.followed(dir, link, &mut links)?;
                        }
                        // Replaced in between: have another look.
                        Ok(_) | Err(Errno::NOENT) => {
                            place = Place::Name { dir, name, slash: false };
                        }
                        Err(errno) => return Err(errno),
                    }
                }
                other => return other.map(|(_, handle)| self.file(handle)),
            }
        }
    }

    /// Attributes of what the path leads to (`stat`).
    ///
    /// # Errors
    /// Those of `stat`.
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.resolve(path, true)
    }

    /// Attributes without following a symlink at the end (`lstat`).
    ///
    /// # Errors
    /// Those of `lstat`.
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.resolve(path, false)
    }

    /// `access`.
    ///
    /// # Errors
    /// Those of `access`.
    pub fn access(&self, path: impl AsRef<[u8]>, wanted: Access) -> Result<()> {
        permission::check(&self.caller, &self.resolve(path, true)?, wanted)
    }

    /// `mkdir`.
    ///
    /// # Errors
    /// Those of `mkdir`.
    pub fn create_dir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        match self.place(path.as_ref())? {
            Place::Name { dir, name, .. } => {
                self.fs.make(&self.caller, dir, &name, mode, NewEntry::Directory)
            }
            Place::Dot(_) | Place::DotDot(_) => Err(Errno::EXIST),
        }
    }

    /// `mkdir -p`: makes the directory and those above it that are missing.
    ///
    /// # Errors
    /// Those of `mkdir`; `ENOTDIR` if something else has the name.
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        let path = path.as_ref();
        match self.create_dir(path, mode) {
            Err(Errno::EXIST) => {
                let attr = self.metadata(path)?;
                if attr.kind == FileKind::Directory { Ok(attr) } else { Err(Errno::NOTDIR) }
            }
            Err(Errno::NOENT) => {
                let trimmed = path.len() - path.iter().rev().take_while(|b| **b == b'/').count();
                let cut = path[..trimmed].iter().rposition(|byte| *byte == b'/');
                let above = cut.map_or(&b""[..], |cut| &path[..cut]);
                if above.is_empty() {
                    return Err(Errno::NOENT);
                }
                self.create_dir_all(above, mode)?;
                match self.create_dir(path, mode) {
                    // Somebody else made it meanwhile.
                    Err(Errno::EXIST) => self.metadata(path),
                    other => other,
                }
            }
            other => other,
        }
    }

    /// `mknod`: a file, pipe, socket or device. For symlinks and directories, the same as their
    /// own calls.
    ///
    /// # Errors
    /// Those of `mknod`.
    pub fn make_node(&self, path: impl AsRef<[u8]>, mode: u32, what: NewEntry<'_>) -> Result<Attr> {
        match self.place(path.as_ref())? {
            Place::Name { dir, name, slash } => {
                if slash && what != NewEntry::Directory {
                    // A new thing that is no directory cannot have such a name.
                    return match self.fs.lookup(&self.caller, dir, &name) {
                        Ok(_) => Err(Errno::EXIST),
                        Err(errno) => Err(errno),
                    };
                }
                self.fs.make(&self.caller, dir, &name, mode, what)
            }
            Place::Dot(_) | Place::DotDot(_) => Err(Errno::EXIST),
        }
    }

    /// `symlink`: a symlink at `path` with this text.
    ///
    /// # Errors
    /// Those of `symlink`.
    pub fn symlink(&self, text: &[u8], path: impl AsRef<[u8]>) -> Result<Attr> {
        self.make_node(path, 0o777, NewEntry::Symlink(text))
    }

    /// `readlink`.
    ///
    /// # Errors
    /// Those of `readlink`.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let place = self.place(path.as_ref())?;
        if let Place::Name { dir, name, slash: false } = &place
            && let Some((attr, _)) = self.fs.look_at_listed(&self.caller, *dir, name)?
        {
            if attr.kind != FileKind::Symlink {
                return Err(Errno::INVAL);
            }
            match self.fs.readlink(attr.oid) {
                // Gone since it was listed; another one may have its name.
                Err(Errno::STALE) => {}
                text => return text,
            }
        }
        let attr = self.resolve_place(place, false, &mut 0)?;
        if attr.kind != FileKind::Symlink {
            return Err(Errno::INVAL);
        }
        self.text_of(attr.oid).map(|text| text.to_vec())
    }

    /// `unlink`.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        match self.place(path.as_ref())? {
            Place::Name { dir, name, slash: false } => self.fs.unlink(&self.caller, dir, &name),
            Place::Name { dir, name, slash: true } => {
                match self.fs.lookup(&self.caller, dir, &name)?.kind {
                    FileKind::Directory => Err(Errno::ISDIR),
                    _ => Err(Errno::NOTDIR),
                }
            }
            Place::Dot(_) | Place::DotDot(_) => Err(Errno::ISDIR),
        }
    }

    /// `rmdir`.
    ///
    /// # Errors
    /// Those of `rmdir`.
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        match self.place(path.as_ref())? {
            Place::Name { dir, name, .. } => self.fs.rmdir(&self.caller, dir, &name),
            Place::Dot(oid) if oid == self.fs.root() => Err(Errno::BUSY),
            Place::Dot(_) => Err(Errno::INVAL),
            Place::DotDot(_) => Err(Errno::NOTEMPTY),
        }
    }

    /// `rm -r`: a directory with everything below it, or anything else. Symlinks are not followed.
    ///
    /// # Errors
    /// The first error; what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let attr = self.resolve(path, false)?;
        if attr.kind != FileKind::Directory {
            return self.remove_file(path);
        }
        // Directories that are being emptied, each with its name in the one before.
        let mut open = vec![(attr.oid, Vec::new())];
        while let Some((dir, _)) = open.last() {
            let dir = *dir;
            let mut below = None;
            for entry in self.read_dir_of(dir)? {
                let entry = entry?;
                if entry.kind == FileKind::Directory {
                    below = Some((entry.oid, entry.name));
                    break;
                }
                match self.fs.unlink(&self.caller, dir, &entry.name) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            if let Some(below) = below {
                open.push(below);
                continue;
            }
            let name = open.pop().map(|(_, name)| name).unwrap_or_default();
            let removed = match open.last() {
                Some((above, _)) => self.fs.rmdir(&self.caller, *above, &name),
                None => self.remove_dir(path),
            };
            match removed {
                Ok(()) | Err(Errno::NOENT) => {}
                // Somebody put something in meanwhile.
                Err(Errno::NOTEMPTY) => open.push((dir, name)),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// `rename`, in one of its modes.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_into(from, self, to, mode)
    }

    /// As [`Namespace::rename`], with a path that counts from another base of the same file system.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename_into(
        &self,
        from: impl AsRef<[u8]>,
        target: &Self,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.place(from.as_ref())?, target.place(to.as_ref())?);
        let Place::Name { dir: from_dir, name: from_name, slash: from_slash } = from else {
            return Err(Errno::BUSY);
        };
        let Place::Name { dir: to_dir, name: to_name, slash: to_slash } = to else {
            let taken = mode == RenameMode::NoReplace;
            return Err(if taken { Errno::EXIST } else { Errno::BUSY });
        };
        if from_slash || to_slash {
            let is_dir = |dir, name: &[u8]| {
                self.fs.entry_kind(dir, name).map(|(_, k)| k == FileKind::Directory)
            };
            let from_is_dir = is_dir(from_dir, &from_name)?;
            let to_is_dir = is_dir(to_dir, &to_name);
            if mode == RenameMode::Exchange {
                to_is_dir?;
            }
            // In the order in which Linux looks.
            match mode {
                RenameMode::NoReplace if to_is_dir.is_ok() => return Err(Errno::EXIST),
                RenameMode::Exchange
                    if (to_slash && !to_is_dir?) || (from_slash && !from_is_dir) =>
                {
                    return Err(Errno::NOTDIR);
                }
                RenameMode::Exchange => {}
                _ if !from_is_dir => return Err(Errno::NOTDIR),
                _ => {}
            }
        }
        self.fs.rename(&self.caller, from_dir, &from_name, to_dir, &to_name, mode)
    }

    /// `link`; a symlink at the end of `from` is not followed.
    ///
    /// # Errors
    /// Those of `link`.
    pub fn hard_link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let object = self.resolve(from, false)?;
        self.link_object(object.oid, to)
    }

    /// `link` for an object by its id, as `linkat` does it for an open file.
    ///
    /// # Errors
    /// Those of `link`.
    pub fn link_object(&self, oid: azekura_proto::Oid, to: impl AsRef<[u8]>) -> Result<()> {
        match self.place(to.as_ref())? {
            Place::Name { dir, name, slash: true } => {
                match self.fs.lookup(&self.caller, dir, &name) {
                    Ok(_) => Err(Errno::EXIST),
                    Err(errno) => Err(errno),
                }
            }
            Place::Name { dir, name, slash: false } => {
                self.fs.add_name(&self.caller, oid, dir, &name)
            }
            Place::Dot(_) | Place::DotDot(_) => Err(Errno::EXIST),
        }
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// Those of `opendir`.
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Directory> {
        self.read_dir_of(self.resolve_dir(path.as_ref())?)
    }

    fn read_dir_of(&self, dir: azekura_proto::Oid) -> Result<Directory> {
        if self.fs.checks() {
            let wanted = Access { read: true, ..Access::default() };
            permission::check(&self.caller, &*self.fs.dir_attr(dir)?, wanted)?;
        }
        Ok(Directory::new(Arc::clone(&self.fs), Arc::clone(&self.caller), dir))
    }

    /// The whole file.
    ///
    /// # Errors
    /// Those of `open` and `read`.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.open(path, &OpenOptions::read_only())?;
        let mut data = vec![0; usize::try_from(file.len()?).map_err(|_| Errno::FBIG)?];
        let mut done = 0;
        while done < data.len() {
            match file.read_at(&mut data[done..], done as u64)? {
                0 => break,
                bytes => done += bytes,
            }
        }
        data.truncate(done);
        Ok(data)
    }

    /// Makes or replaces a file (mode 0644) with these bytes.
    ///
    /// # Errors
    /// Those of `open` and `write`.
    pub fn write(&self, path: impl AsRef<[u8]>, data: &[u8]) -> Result<()> {
        let file = self.open(path, &OpenOptions::create())?;
        file.write_all_at(data, 0)?;
        file.close()
    }

    /// `chmod`, `chown`, `truncate`, `utimens`.
    ///
    /// # Errors
    /// Those of these calls.
    pub fn set_attr(
        &self,
        path: impl AsRef<[u8]>,
        follow: bool,
        update: &AttrUpdate,
    ) -> Result<Attr> {
        let place = self.place(path.as_ref())?;
        let seen = match self.newborn_at(&place, follow)? {
            Some(newborn) => newborn,
            None => self.resolve_place(place, follow, &mut 0)?,
        };
        self.fs.setattr_of(&self.caller, &seen, update)
    }

    /// What stands at the end of a path, if it is a newborn object: as far as changes are judged by it.
    fn newborn_at(&self, place: &Place, follow: bool) -> Result<Option<Attr>> {
        let Place::Name { dir, name, slash: false } = place else { return Ok(None) };
        self.fs.check_search(&self.caller, *dir)?;
        let attr = self.fs.newborn_named(*dir, name).map(|newborn| newborn.attr);
        Ok(attr.filter(|attr| !follow || attr.kind != FileKind::Symlink))
    }

    /// `getxattr`; a symlink at the end is followed.
    ///
    /// # Errors
    /// Those of `getxattr`.
    pub fn get_xattr(&self, path: impl AsRef<[u8]>, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr_of(&self.caller, &self.resolve(path, true)?, name)
    }

    /// `statfs`: the space of the pool that the path lies in.
    ///
    /// # Errors
    /// Those of `statfs`.
    pub fn space(&self, path: impl AsRef<[u8]>) -> Result<StatFs> {
        let place = self.place(path.as_ref())?;
        if self.known_directory(&place)?.is_none() {
            self.resolve_place(place, true, &mut 0)?;
        }
        self.fs.statfs()
    }

    /// `setxattr`; a symlink at the end is followed.
    ///
    /// # Errors
    /// Those of `setxattr`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.fs.setxattr_of(&self.caller, &self.resolve(path, true)?, (name, value), mode)
    }

    /// `listxattr`: names, each ended by a zero byte; a symlink at the end is followed.
    ///
    /// # Errors
    /// Those of `listxattr`.
    pub fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.fs.listxattr_of(&self.caller, &self.resolve(path, true)?)
    }

    /// `removexattr`; a symlink at the end is followed.
    ///
    /// # Errors
    /// Those of `removexattr`.
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: &[u8]) -> Result<()> {
        self.fs.removexattr_of(&self.caller, &self.resolve(path, true)?, name)
    }
}
