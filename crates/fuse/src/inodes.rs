//! Attributes, symlink texts, and the space of the whole.

use std::time::Duration;

use azekura_posix::{Attr, AttrUpdate, FileKind, Oid};

use crate::convert;
use crate::handler::{Door, Result};
use crate::kernel::{Header, SetAttr, Statfs};

/// Unit of the space counts, in bytes.
const FRAGMENT_BYTES: u64 = 4096;
/// Transfer size that programs are told, in bytes.
const BLOCK_BYTES: u32 = 1024 * 1024;

const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// The bits that a change by somebody else takes from a program: set-user, and set-group unless it
/// only marks the file for mandatory locking.
fn dangerous_bits(attr: &Attr) -> u16 {
    let group = if attr.mode & GROUP_EXECUTE == 0 { 0 } else { attr.mode & SETGID };
    match attr.kind {
        FileKind::Directory => 0,
        _ => attr.mode & SETUID | group,
    }
}

impl Door {
    /// Attributes, and for how long the kernel may keep them.
    pub(crate) fn getattr(&self, header: &Header<'_>) -> Result<(Attr, Duration)> {
        let (attr, left) = self.fs.getattr_for(self.object(header.node)?)?;
        Ok((attr, left.min(self.ttl())))
    }

    pub(crate) fn setattr(&self, header: &Header<'_>, set: &SetAttr) -> Result<Attr> {
        let oid = self.object(header.node)?;
        let file = set.fh.map(|fh| self.files.get(fh)).transpose()?;
        let mut update = AttrUpdate {
            mode: set.mode.map(|mode| mode & 0o7777),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(convert::set_time),
            mtime: set.mtime.map(convert::set_time),
        };
        // The kernel has left clearing the bits to us.
        let gives_away = set.uid.is_some() || set.gid.is_some();
        if update.mode.is_none() && (gives_away || set.kill_suidgid) {
            update.mode = self.mode_without_danger(oid)?;
        }
        let open = file.as_ref().map(|file| &file.open);
        let attr = self.change(|| self.fs.setattr(&self.caller(header), oid, open, &update))?;
        if update.mode.is_some() && dangerous_bits(&attr) != 0 {
            self.watch_bits(oid);
        }
        Ok(attr)
    }

    /// The mode that an object has to get so that nobody is given rights by a change of it; `None`
    /// if it can stay as it is.
    fn mode_without_danger(&self, oid: Oid) -> Result<Option<u32>> {
        let attr = self.fs.getattr(oid)?;
        let bits = dangerous_bits(&attr);
        Ok((bits != 0).then(|| u32::from(attr.mode & !bits)))
    }

    /// The file has got bits that a write has to clear, which its open handles do not know.
    fn watch_bits(&self, oid: Oid) {
        self.files.for_each(|file| {
            if file.open.oid() == oid {
                file.watch_bits(true);
            }
        });
    }

    /// Clears the bits that a write has to clear.
    pub(crate) fn clear_bits(&self, header: &Header<'_>, oid: Oid) -> Result<()> {
        let mode = self.mode_without_danger(oid)?;
        if mode.is_some() {
            let update = AttrUpdate { mode, ..AttrUpdate::default() };
            self.change(|| self.fs.setattr(&self.caller(header), oid, None, &update))?;
        }
        Ok(())
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
