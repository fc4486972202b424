//! `open` of an object that is there. Owns which access mode needs which permission.

use azekura_proto::attr::{AttrChange, FileKind};
use azekura_proto::message::typed::SetAttr;
use azekura_proto::{Attr, Oid};
use rustix::fs::OFlags;

use crate::errno::of_client;
use crate::permission::set_id_bits_lost;
use crate::writer::WriteLeases;
use crate::{Access, Credentials, Errno, FileSystem, OpenFile, Result, permission};

impl FileSystem {
    /// Opens an object by id: a regular file for reading and writing, or a directory. Gives its
    /// attributes as they are then. `O_TRUNC` counts; `O_CREAT` does not (see
    /// [`FileSystem::create`]).
    ///
    /// # Errors
    /// `EACCES`; `EISDIR` for a directory opened for writing; `ELOOP` for a symlink; `ENXIO` for
    /// pipes, sockets and devices, which only a kernel can open; `ESTALE` if the object is gone.
    pub fn open(&self, caller: &Credentials, oid: Oid, flags: OFlags) -> Result<(Attr, OpenFile)> {
        let truncates = flags.contains(OFlags::TRUNC);
        let leases = if truncates { WriteLeases::ReleaseFirst } else { WriteLeases::Keep };
        // The engine gives attributes with its answer.
        let _settled = self.writing.settle(oid, leases)?;
        let (attr, reference) = if flags.contains(OFlags::DIRECTORY) && self.keeps_listed() {
            self.open_listed(oid)?
        } else {
            self.pool().open(oid).map_err(|error| of_client(&error))?
        };
        let mut attr = *attr;
        let wanted = access_of(flags);
        match attr.kind {
            FileKind::Directory if wanted.write => return Err(Errno::ISDIR),
            FileKind::Directory => {}
            _ if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            FileKind::Regular => {}
            FileKind::Symlink => return Err(Errno::LOOP),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(Errno::NXIO);
            }
        }
        if self.checks() {
            permission::check(caller, &attr, wanted)?;
        }
        let mut file = self.handle(reference, &attr, caller, flags);
        if file.is_readable() {
            self.reading.expect_reads_of(&file.layout, attr.size);
        }
        if truncates {
            let clear_mode_bits = self.lost_by_cutting(caller, &attr)?;
            file.take_first_write();
            file.has_lost_bits = clear_mode_bits != 0;
            let change = AttrChange { size: Some(0), clear_mode_bits, ..AttrChange::default() };
            let _change = self.changes.begin(oid);
            attr = *self.call(oid.home(), SetAttr { oid, change })?;
        }
        Ok((attr, file))
    }

    /// What a file loses when it is cut: capabilities at once, and these bits of its mode.
    pub(crate) fn lost_by_cutting(&self, caller: &Credentials, attr: &Attr) -> Result<u16> {
        if attr.has_xattrs {
            self.take_capability(attr.oid)?;
        }
        Ok(if caller.is_root() { 0 } else { set_id_bits_lost(caller, attr.mode, attr.gid) })
    }
}

/// The access that opening with these flags needs.
pub(super) fn access_of(flags: OFlags) -> Access {
    let mode = flags & OFlags::ACCMODE;
    Access {
        read: mode != OFlags::WRONLY,
        write: mode != OFlags::RDONLY || flags.contains(OFlags::TRUNC),
        execute: false,
    }
}
