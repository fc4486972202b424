//! Attributes, symlink texts, and the space of the whole.

use std::time::Duration;

use azekura_posix::{Access, Attr, AttrUpdate, Errno, Oid, Privileges};

use crate::answer::Result;
use crate::convert;
use crate::front_end::FrontEnd;
use crate::kernel::{self, Header, SetAttr, Statfs};
use crate::view::View;

/// Unit of the space counts, in bytes.
const FRAGMENT_BYTES: u64 = 4096;
/// Transfer size that programs are told, in bytes.
const BLOCK_BYTES: u32 = 1024 * 1024;

impl FrontEnd {
    /// Attributes, and for how long the kernel may keep them. `fh` is the file through which it asks.
    pub(crate) fn getattr(
        &self,
        header: &Header<'_>,
        fh: Option<u64>,
    ) -> Result<(kernel::Attr, Duration)> {
        let (attr, left) = self.attr_for(header, fh)?;
        Ok((self.kernel_attr(&attr), left.min(self.ttl())))
    }

    fn attr_for(&self, header: &Header<'_>, fh: Option<u64>) -> Result<(Attr, Duration)> {
        let oid = self.object(header.node)?;
        let asked = match fh.and_then(|fh| self.files.get(fh).ok()) {
            // The kernel asks on its own account, and wants to know how long the file is: once a second in a stream
            // of reads, where nobody is asked as long as leases hold; and before each read that follows a write.
            Some(file) if file.open.oid() == oid => match self.fs.attr_but_for_times(&file.open) {
                Some(attr) => Ok((attr, Duration::ZERO)),
                None => self.fs.getattr_open(&file.open).map(|attr| (attr, self.ttl())),
            },
            _ => match self.leased_attr(oid) {
                Some(attr) => Ok((attr, self.ttl())),
                None => self.fs.getattr_for(oid),
            },
        };
        self.or_removed(asked, oid, |removed| Ok((removed.attr.clone(), self.ttl())))
    }

    /// The attributes of a far file that is open, where leases keep them true: the kernel asks for them anew
    /// after each read, since reading could have changed the time of last access.
    fn leased_attr(&self, oid: Oid) -> Option<Attr> {
        if !self.fs.keeps_listed() {
            return None;
        }
        let file = self.files.find(|file| file.open.oid() == oid && file.open.is_readable())?;
        self.fs.leased_attr(&file.open)
    }

    /// The same, with the time of birth.
    pub(crate) fn statx(
        &self,
        header: &Header<'_>,
        fh: Option<u64>,
    ) -> Result<(kernel::Attr, kernel::Timestamp, Duration)> {
        let (attr, left) = self.attr_for(header, fh)?;
        Ok((self.kernel_attr(&attr), convert::birth(&attr), left.min(self.ttl())))
    }

    pub(crate) fn setattr(
        &self,
        header: &Header<'_>,
        set: &SetAttr,
    ) -> Result<(kernel::Attr, Duration)> {
        let oid = self.object(header.node)?;
        let file = set.fh.map(|fh| self.files.get(fh)).transpose()?;
        let update = AttrUpdate {
            mode: set.mode.map(|mode| mode & 0o7777),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(convert::set_time),
            mtime: set.mtime.map(convert::set_time),
            drop_set_id: set.kill_suidgid,
        };
        let open = file.as_ref().map(|file| &file.open);
        let asked = self.change(|| self.fs.setattr(&self.caller(header), oid, open, &update));
        let attr = self.or_removed(asked, oid, |removed| removed.update(&update))?;
        let is_other_file = set.size.is_some() || set.uid.is_some() || set.gid.is_some();
        if is_other_file && attr.has_xattrs {
            // The kernel takes capabilities that it knows of; what it knows may be a second old.
            self.has_new_privileges(oid);
            let taken = self.change(|| self.fs.take_capability(oid));
            self.or_removed(taken, oid, |_| Ok(false))?;
        }
        if update.mtime.is_some() {
            // What somebody else wrote since the kernel looked last would show by the time alone.
            self.drop_pages(oid);
        }
        if update.mode.is_some() && !Privileges::of(&attr).are_none() {
            self.has_new_privileges(oid);
        }
        // Some come later only: set-id bits of a file that may be written to past the engine.
        let lacks_bits = update.mode.is_some_and(|mode| mode & !u32::from(attr.mode) != 0);
        let left = if lacks_bits { Duration::ZERO } else { self.life_of(&attr) };
        Ok((self.kernel_attr(&attr), left))
    }

    /// The file may have got privileges that a write has to take, which its open handles do not know.
    pub(crate) fn has_new_privileges(&self, oid: Oid) {
        self.plain.forget(oid);
        self.files.for_each(|file| {
            if file.open.oid() == oid {
                file.forget_privileges();
            }
        });
    }

    /// `mask` as of `access(2)`.
    pub(crate) fn access(&self, header: &Header<'_>, mask: u32) -> Result<()> {
        if self.view == View::Everybody {
            // The kernel checks permissions by itself, and does not ask again.
            return Err(Errno::NOSYS);
        }
        let wanted = Access { read: mask & 4 != 0, write: mask & 2 != 0, execute: mask & 1 != 0 };
        let oid = self.object(header.node)?;
        // Whoever is in a directory that was removed cannot do anything in it.
        self.or_removed(self.fs.access(&self.caller(header), oid, wanted), oid, |_| Ok(()))
    }

    pub(crate) fn readlink(&self, header: &Header<'_>) -> Result<Vec<u8>> {
        self.fs.readlink(self.object(header.node)?)
    }

    pub(crate) fn statfs(&self) -> Result<Statfs> {
        let space = self.fs.statfs()?;
        let available = space.available_bytes / FRAGMENT_BYTES;
        Ok(Statfs {
            blocks: space.total_bytes / FRAGMENT_BYTES,
            blocks_free: available,
            blocks_available: available,
            // There is no table of inodes: as many as there is space for.
            files: space.objects.saturating_add(available),
            files_free: available,
            block_bytes: BLOCK_BYTES,
            fragment_bytes: FRAGMENT_BYTES as u32,
            name_bytes_max: space.name_bytes_max,
        })
    }
}
