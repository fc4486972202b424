//! `lookup` and `readlink`. Owns how an answer without attributes is completed.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::NAME_BYTES_MAX;
use azekura_proto::message::typed::{Found, Lookup, ReadLink};
use azekura_proto::{Attr, Oid};

use crate::writer::WriteLeases;
use crate::{Credentials, Errno, FileSystem, Result};

/// A name that is moved away again and again is given up after so many looks.
const LOOKS: u32 = 4;

impl FileSystem {
    /// What a name leads to, with attributes. `.` and `..` are understood.
    ///
    /// # Errors
    /// `ENOENT`; `EACCES` if the caller may not search the directory.
    pub fn lookup(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<Attr> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.check_search(caller, dir)?;
        match name {
            b"." => return self.getattr(dir),
            b".." => return self.getattr(self.parent_of(dir)?),
            _ => {}
        }
        self.lookup_unchecked(dir, name).map(|attr| *attr)
    }

    pub(crate) fn lookup_unchecked(&self, dir: Oid, name: &[u8]) -> Result<Box<Attr>> {
        for _ in 0..LOOKS {
            let Found { entry, attr } = self.call_entry(dir, name, Lookup { dir, name })?;
            if let Some(attr) = attr
                && !self.writing.has_unsettled(entry.oid)
            {
                return Ok(attr);
            }
            let settled = self.writing.settle(entry.oid, WriteLeases::Keep)?;
            match self.attr_of(settled) {
                // Removed, or replaced by a rename, between the two requests.
                Err(Errno::STALE) => {}
                other => return other,
            }
        }
        Err(Errno::NOENT)
    }

    /// The directory above a directory. Always asked, since a rename by anybody changes it.
    pub(crate) fn parent_of(&self, dir: Oid) -> Result<Oid> {
        let attr = self.getattr(dir)?;
        if attr.kind == FileKind::Directory {
            Ok(attr.parent.unwrap_or(dir))
        } else {
            Err(Errno::NOTDIR)
        }
    }

    /// The text of a symlink.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn readlink(&self, oid: Oid) -> Result<Vec<u8>> {
        self.call(oid.home(), ReadLink { oid })
    }

    /// What kind of object a name leads to, by the entry alone.
    pub(crate) fn entry_kind(&self, dir: Oid, name: &[u8]) -> Result<(Oid, FileKind)> {
        let entry = self.call_entry(dir, name, Lookup { dir, name })?.entry;
        Ok((entry.oid, entry.kind))
    }
}
