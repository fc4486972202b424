//! `open` of an object that is there. Owns which access mode needs which permission.

use azekura_client::{OpenReference, OpenedName};
use azekura_proto::attr::{AttrChange, FileKind};
use azekura_proto::limits::NAME_BYTES_MAX;
use azekura_proto::message::typed::{FileLeased, SetAttr};
use azekura_proto::{Attr, Oid};
use rustix::fs::OFlags;

use crate::errno::of_client;
use crate::permission::set_id_bits_lost;
use crate::writer::WriteLeases;
use crate::{Access, Credentials, Errno, FileSystem, OpenFile, Result, permission};

/// What opening a name has led to.
#[derive(Debug)]
pub(crate) enum Named {
    /// It is open.
    Open(Box<OpenFile>),
    /// It is this symlink.
    Symlink(Oid),
    /// It has to be looked up first, and opened then.
    Unclear,
}

/// Nothing but reading.
const READING: Access = Access { read: true, write: false, execute: false };

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
        self.opened(caller, *attr, reference, flags)
    }

    /// Opens what a name leads to in one step, if that can be done.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`] and [`FileSystem::open`].
    pub(crate) fn open_name(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        flags: OFlags,
    ) -> Result<Named> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.check_search(caller, dir)?;
        let wants_lease =
            access_of(flags) == READING && self.reading.is_far(self.entry_target(dir, name));
        if wants_lease && let Some(file) = self.open_foreseen(caller, dir, name, flags)? {
            return Ok(Named::Open(Box::new(file)));
        }
        let asked = wants_lease.then(|| (self.now(), self.changes.of_all()));
        let opened = self.pool().open_name(dir, name, wants_lease);
        let opened = opened.map_err(|error| match of_client(&error) {
            // The directory is gone.
            Errno::STALE => Errno::NOENT,
            other => other,
        });
        let Some(opened) = opened? else { return Ok(Named::Unclear) };
        let OpenedName { entry, attr, reference, lease } = opened;
        match (entry.kind, attr, reference) {
            (FileKind::Symlink, ..) => Ok(Named::Symlink(entry.oid)),
            // What this process has written to it may not have arrived.
            _ if self.writing.has_unsettled(entry.oid) => Ok(Named::Unclear),
            (_, Some(attr), Some(reference)) => {
                let (attr, file) = self.opened(caller, *attr, reference, flags)?;
                // Before the look at all changes: one that begins after that makes this count an old one.
                let count = self.changes.count_of(entry.oid).of_attributes();
                if let Some((at, changes)) = asked
                    && lease.lease_ms > 0
                    && changes == self.changes.of_all()
                {
                    let leased = FileLeased { lease, attr: Box::new(attr) };
                    file.reader.begin_leased(&self.reading, &file.layout, (at, count), leased);
                }
                Ok(Named::Open(Box::new(file)))
            }
            (_, None, _) => match self.open(caller, entry.oid, flags) {
                Err(Errno::STALE) => Ok(Named::Unclear),
                other => other.map(|(_, file)| Named::Open(Box::new(file))),
            },
            _ if flags.contains(OFlags::DIRECTORY) => Err(Errno::NOTDIR),
            _ => Err(Errno::NXIO),
        }
    }

    /// Goes on with what an engine holds open now, and has these attributes.
    pub(super) fn opened(
        &self,
        caller: &Credentials,
        mut attr: Attr,
        reference: OpenReference,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        let (oid, truncates) = (attr.oid, flags.contains(OFlags::TRUNC));
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
