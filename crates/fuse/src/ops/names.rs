//! Names: looking them up, making, linking, moving and removing them.

use azekura_posix::{Attr, Errno, FileKind, NewEntry, OFlags, Oid, OpenFile, RenameMode};

use crate::answer::Result;
use crate::convert;
use crate::directories::Xattrs;
use crate::front_end::FrontEnd;
use crate::kernel::{Entry, Header, OpenFlags};

impl FrontEnd {
    pub(crate) fn lookup(&self, header: &Header<'_>, name: &[u8]) -> Result<Entry> {
        let dir = self.object(header.node)?;
        let caller = self.caller(header);
        let (mut attr, mut left) = self.fs.lookup_for(&caller, dir, name)?;
        if left < self.ttl() && self.told.is_past(&attr) {
            // A listing had it before the kernel was told otherwise.
            (attr, left) = (self.fs.lookup(&caller, dir, name)?, self.ttl());
        }
        Ok(self.entry_told(dir, name, &attr, left))
    }

    pub(crate) fn symlink(&self, header: &Header<'_>, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.make(header, name, 0o777, NewEntry::Symlink(target))
    }

    pub(crate) fn mknod(
        &self,
        header: &Header<'_>,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry> {
        let what = match FileKind::from_mode(mode) {
            Some(FileKind::Regular) => NewEntry::Regular,
            Some(FileKind::Fifo) => NewEntry::Fifo,
            Some(FileKind::Socket) => NewEntry::Socket,
            Some(FileKind::CharDevice) => NewEntry::CharDevice(u64::from(rdev)),
            Some(FileKind::BlockDevice) => NewEntry::BlockDevice(u64::from(rdev)),
            Some(FileKind::Directory | FileKind::Symlink) | None => return Err(Errno::INVAL),
        };
        self.make(header, name, mode, what)
    }

    pub(crate) fn mkdir(&self, header: &Header<'_>, name: &[u8], mode: u32) -> Result<Entry> {
        self.make(header, name, mode, NewEntry::Directory)
    }

    fn make(
        &self,
        header: &Header<'_>,
        name: &[u8],
        mode: u32,
        what: NewEntry<'_>,
    ) -> Result<Entry> {
        let dir = self.object(header.node)?;
        let caller = self.caller(header);
        let attr = self.change(|| self.fs.make(&caller, dir, name, mode & 0o7777, what))?;
        Ok(self.named_entry(dir, name, &attr))
    }

    pub(crate) fn link(
        &self,
        header: &Header<'_>,
        existing: u64,
        new_name: &[u8],
    ) -> Result<Entry> {
        let (oid, dir) = (self.object(existing)?, self.object(header.node)?);
        let caller = self.caller(header);
        let attr = self.change(|| self.fs.link(&caller, oid, dir, new_name))?;
        Ok(self.entry(&attr))
    }

    pub(crate) fn unlink(&self, header: &Header<'_>, name: &[u8]) -> Result<()> {
        let dir = self.object(header.node)?;
        self.change(|| self.fs.unlink(&self.caller(header), dir, name))
    }

    pub(crate) fn rmdir(&self, header: &Header<'_>, name: &[u8]) -> Result<()> {
        let dir = self.object(header.node)?;
        let victim = self.directory_under(dir, name);
        self.change(|| self.fs.rmdir(&self.caller(header), dir, name))?;
        self.directories.forget_name(dir, name);
        self.removed(victim);
        Ok(())
    }

    /// The directory that a name leads to and what it needs to answer for itself once it is removed, if
    /// that is known.
    fn directory_under(&self, dir: Oid, name: &[u8]) -> Option<(Attr, Xattrs)> {
        let attr = self.directories.under(dir, name)?;
        let xattrs = if attr.has_xattrs { self.xattrs_of(attr.oid) } else { Xattrs::new() };
        Some((attr, xattrs))
    }

    /// A directory is gone, before the kernel hears of it.
    fn removed(&self, victim: Option<(Attr, Xattrs)>) {
        if let Some((attr, xattrs)) = victim {
            self.directories.remove(attr, xattrs);
        }
    }

    /// `flags` as of `renameat2`.
    pub(crate) fn rename(
        &self,
        header: &Header<'_>,
        name: &[u8],
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        const NOREPLACE: u32 = 1;
        const EXCHANGE: u32 = 2;
        const WHITEOUT: u32 = 4;
        let (from, to) = (self.object(header.node)?, self.object(new_parent)?);
        let caller = self.caller(header);
        let replaces = flags & (NOREPLACE | EXCHANGE) == 0;
        let victim = if replaces { self.directory_under(to, new_name) } else { None };
        let rename = |mode| self.fs.rename(&caller, from, name, to, new_name, mode);
        self.change(|| match flags {
            0 => rename(RenameMode::Replace),
            NOREPLACE => rename(RenameMode::NoReplace),
            EXCHANGE => rename(RenameMode::Exchange),
            WHITEOUT => self.fs.rename_leaving_whiteout(&caller, (from, name), (to, new_name)),
            _ => Err(Errno::INVAL),
        })?;
        self.directories.move_name((from, name), (to, new_name), flags == EXCHANGE);
        self.removed(victim);
        Ok(())
    }

    pub(crate) fn create(
        &self,
        header: &Header<'_>,
        name: &[u8],
        flags: u32,
        mode: u32,
    ) -> Result<(Entry, u64, OpenFlags)> {
        let dir = self.object(header.node)?;
        let caller = self.caller(header);
        let wanted = convert::open_flags(flags);
        let (attr, file) =
            self.change(|| self.fs.create_unforeseen(&caller, dir, name, mode & 0o7777, wanted))?;
        self.created(&attr, file, flags)
    }

    fn created(&self, attr: &Attr, file: OpenFile, flags: u32) -> Result<(Entry, u64, OpenFlags)> {
        // With `O_CREAT` alone it may have been there.
        let (fh, open_flags) = self.register(attr, file, flags, attr.size == 0)?;
        Ok((self.entry(attr), fh, open_flags))
    }

    pub(crate) fn tmpfile(
        &self,
        header: &Header<'_>,
        flags: u32,
        mode: u32,
    ) -> Result<(Entry, u64, OpenFlags)> {
        let dir = self.object(header.node)?;
        let caller = self.caller(header);
        let open = convert::open_flags(flags) - OFlags::TMPFILE;
        let (attr, file) = self.fs.tmpfile(&caller, dir, mode & 0o7777, open)?;
        self.created(&attr, file, flags)
    }
}
