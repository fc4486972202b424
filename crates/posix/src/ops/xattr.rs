//! Extended attributes. Owns the two names that show and set placement, `user.azekura.class` and
//! `user.azekura.chunk_size` (and `user.azekura.dir_class` on directories): they are not stored as
//! attributes and not listed, so that copying all attributes of a file copies none of them.

use azekura_proto::attr::{AttrChange, FileKind, Inheritance};
use azekura_proto::limits::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use azekura_proto::message::XattrMode;
use azekura_proto::message::typed::{GetXattr, ListXattrs, RemoveXattr, SetAttr, SetXattr};
use azekura_proto::{Attr, ObjectClass, Oid};

use crate::{Credentials, Errno, FileSystem, Result, permission};

/// A name that shows placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// Class of a file, or of new files of a directory.
    Class,
    /// Class of new directories of a directory.
    DirClass,
    /// Chunk size of a file, or of new files of a directory.
    ChunkSize,
}

impl Placement {
    fn of_name(name: &[u8]) -> Option<Self> {
        match name {
            b"user.azekura.class" => Some(Self::Class),
            b"user.azekura.dir_class" => Some(Self::DirClass),
            b"user.azekura.chunk_size" => Some(Self::ChunkSize),
            _ => None,
        }
    }

    fn show(self, attr: &Attr) -> Result<String> {
        match (self, attr.kind, attr.inheritance) {
            (Self::Class, FileKind::Directory, Some(given)) => Ok(given.file_class.to_string()),
            (Self::DirClass, FileKind::Directory, Some(given)) => Ok(given.dir_class.to_string()),
            (Self::ChunkSize, FileKind::Directory, Some(given)) => {
                Ok(given.chunk_bytes.to_string())
            }
            (Self::Class, FileKind::Regular, _) => Ok(attr.oid.class().to_string()),
            (Self::ChunkSize, FileKind::Regular, _) => Ok(attr.chunk_bytes.to_string()),
            _ => Err(Errno::NODATA),
        }
    }

    /// The change that sets it, if any is needed.
    fn change(self, attr: &Attr, value: &[u8]) -> Result<Option<AttrChange>> {
        let text = std::str::from_utf8(value).map_err(|_| Errno::INVAL)?.trim();
        if self.show(attr).is_ok_and(|now| now == text) {
            return Ok(None);
        }
        match (attr.kind, attr.inheritance) {
            (FileKind::Directory, Some(given)) => {
                let inheritance = Some(self.inheritance(given, text)?);
                Ok(Some(AttrChange { inheritance, ..AttrChange::default() }))
            }
            (FileKind::Regular, _) if self == Self::ChunkSize => {
                let chunk_bytes = Some(parse_chunk_bytes(text)?);
                Ok(Some(AttrChange { chunk_bytes, ..AttrChange::default() }))
            }
            // The class of a file is part of its id.
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn inheritance(self, given: Inheritance, text: &str) -> Result<Inheritance> {
        let class = || text.parse::<ObjectClass>().map_err(|_| Errno::INVAL);
        Ok(match self {
            Self::Class => Inheritance { file_class: class()?, ..given },
            Self::DirClass => Inheritance { dir_class: class()?, ..given },
            Self::ChunkSize => Inheritance { chunk_bytes: parse_chunk_bytes(text)?, ..given },
        })
    }
}

/// Bytes, or with `K` or `M` behind them KiB or MiB; a multiple of the smallest chunk size.
fn parse_chunk_bytes(text: &str) -> Result<u32> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(bytes))
        .filter(|bytes| bytes.is_multiple_of(CHUNK_BYTES_MIN))
        .ok_or(Errno::INVAL)
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Errno::RANGE);
    }
    Ok(())
}

/// An attribute that is not there has an errno of its own.
fn no_data(errno: Errno) -> Errno {
    if errno == Errno::NOENT { Errno::NODATA } else { errno }
}

impl FileSystem {
    fn check_xattr(&self, caller: &Credentials, oid: Oid, name: &[u8], writes: bool) -> Result<()> {
        check_name(name)?;
        if self.checks() {
            if !permission::is_xattr_name(name) {
                // Whatever the object is.
                return Err(Errno::OPNOTSUPP);
            }
            return permission::check_xattr(caller, &self.judged_by(oid)?, name, writes);
        }
        // The kernel has checked the rest; ACLs it would leave to us.
        if name.starts_with(b"system.") { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// What of an object decides who may do what to its extended attributes, and whether there are any.
    fn judged_by(&self, oid: Oid) -> Result<Attr> {
        match self.newborn(oid) {
            Some(newborn) => Ok(newborn.attr),
            None => self.getattr(oid),
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none, `EOPNOTSUPP` for names outside the known name spaces.
    pub fn getxattr(&self, caller: &Credentials, oid: Oid, name: &[u8]) -> Result<Vec<u8>> {
        if self.checks() && !permission::is_xattr_name(name) {
            check_name(name)?;
            return Err(Errno::OPNOTSUPP);
        }
        if self.checks() || Placement::of_name(name).is_some() {
            return self.getxattr_of(caller, &self.judged_by(oid)?, name);
        }
        self.check_xattr(caller, oid, name, false)?;
        self.call(oid.home(), GetXattr { oid, name }).map_err(no_data)
    }

    /// As [`FileSystem::getxattr`], of an object whose attributes are at hand: that it has no extended
    /// ones is told by these.
    ///
    /// # Errors
    /// Those of [`FileSystem::getxattr`].
    pub fn getxattr_of(&self, caller: &Credentials, attr: &Attr, name: &[u8]) -> Result<Vec<u8>> {
        if let Some(placement) = Placement::of_name(name) {
            return placement.show(attr).map(String::into_bytes);
        }
        check_name(name)?;
        if self.checks() {
            permission::check_xattr(caller, attr, name, false)?;
        } else if name.starts_with(b"system.") {
            return Err(Errno::OPNOTSUPP);
        }
        if !attr.has_xattrs {
            return Err(Errno::NODATA);
        }
        let oid = attr.oid;
        self.call(oid.home(), GetXattr { oid, name }).map_err(no_data)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `E2BIG`, `ENOSPC` if the names of one object become too many, `EEXIST` and `ENODATA` by
    /// `mode`, `EPERM`, `EACCES`. For placement: `EINVAL` for a value without sense or a file that
    /// has data, `EBUSY` for a file that is open here, `EOPNOTSUPP` for the class of a file.
    pub fn setxattr(
        &self,
        caller: &Credentials,
        oid: Oid,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if let Some(placement) = Placement::of_name(name) {
            return self.set_placement(caller, oid, placement, value, mode);
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        self.check_xattr(caller, oid, name, true)?;
        self.store_xattr(oid, (name, value), mode)
    }

    /// As [`FileSystem::setxattr`], of an object that had these attributes a moment ago.
    ///
    /// # Errors
    /// Those of [`FileSystem::setxattr`].
    pub fn setxattr_of(
        &self,
        caller: &Credentials,
        attr: &Attr,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> Result<()> {
        let is_plain = Placement::of_name(name).is_none() && value.len() <= XATTR_VALUE_BYTES_MAX;
        if !is_plain || !self.checks() {
            return self.setxattr(caller, attr.oid, name, value, mode);
        }
        check_name(name)?;
        permission::check_xattr(caller, attr, name, true)?;
        self.store_xattr(attr.oid, (name, value), mode)
    }

    fn store_xattr(&self, oid: Oid, (name, value): (&[u8], &[u8]), mode: XattrMode) -> Result<()> {
        let change = self.begin_change(oid);
        let _names = self.listed.change_names();
        let done = self.call(oid.home(), SetXattr { oid, name, value, mode });
        drop(change);
        self.cache.forget_dir(oid);
        self.files.forget(oid);
        match done {
            // The value has been measured, so it is the list of names that is full.
            Err(Errno::TOOBIG) => Err(Errno::NOSPC),
            other => other.map_err(no_data),
        }
    }

    fn set_placement(
        &self,
        caller: &Credentials,
        oid: Oid,
        placement: Placement,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let attr = self.getattr(oid)?;
        if self.checks() && !permission::owns(caller, &attr) {
            return Err(Errno::PERM);
        }
        if mode == XattrMode::Create && placement.show(&attr).is_ok() {
            return Err(Errno::EXIST);
        }
        let Some(change) = placement.change(&attr, value)? else { return Ok(()) };
        if change.chunk_bytes.is_some() && self.pool().is_open(oid) {
            // The handle would go on with the old chunk size.
            return Err(Errno::BUSY);
        }
        let _naming = self.before_change_of(oid)?;
        let under_way = self.begin_change(oid);
        let _names = self.listed.change_names();
        let done = self.call(oid.home(), SetAttr { oid, change });
        drop(under_way);
        self.cache.forget_dir(oid);
        self.files.forget(oid);
        done?;
        Ok(())
    }

    /// Names of the extended attributes, each ended by a zero byte.
    ///
    /// # Errors
    /// `ESTALE` if the object is gone.
    pub fn listxattr(&self, caller: &Credentials, oid: Oid) -> Result<Vec<u8>> {
        let names = self.call(oid.home(), ListXattrs { oid })?;
        if caller.is_root() {
            return Ok(names);
        }
        // Others do not see what only root may read.
        let shown = names.split_inclusive(|byte| *byte == 0);
        Ok(shown.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect())
    }

    /// As [`FileSystem::listxattr`], of an object whose attributes are at hand: that it has no extended
    /// ones is told by these.
    ///
    /// # Errors
    /// Those of [`FileSystem::listxattr`].
    pub fn listxattr_of(&self, caller: &Credentials, attr: &Attr) -> Result<Vec<u8>> {
        if attr.has_xattrs { self.listxattr(caller, attr.oid) } else { Ok(Vec::new()) }
    }

    /// Removes an extended attribute. Of placement, a directory takes up the container's again.
    ///
    /// # Errors
    /// `ENODATA` if there is none, `EPERM`, `EACCES`.
    pub fn removexattr(&self, caller: &Credentials, oid: Oid, name: &[u8]) -> Result<()> {
        if let Some(placement) = Placement::of_name(name) {
            let defaults = self.container().inheritance;
            let value = match placement {
                Placement::Class => defaults.file_class.to_string(),
                Placement::DirClass => defaults.dir_class.to_string(),
                Placement::ChunkSize => defaults.chunk_bytes.to_string(),
            };
            return self.set_placement(caller, oid, placement, value.as_bytes(), XattrMode::Set);
        }
        self.check_xattr(caller, oid, name, true)?;
        self.drop_xattr(oid, name)
    }

    /// As [`FileSystem::removexattr`], of an object that had these attributes a moment ago.
    ///
    /// # Errors
    /// Those of [`FileSystem::removexattr`].
    pub fn removexattr_of(&self, caller: &Credentials, attr: &Attr, name: &[u8]) -> Result<()> {
        if Placement::of_name(name).is_some() || !self.checks() {
            return self.removexattr(caller, attr.oid, name);
        }
        check_name(name)?;
        permission::check_xattr(caller, attr, name, true)?;
        self.drop_xattr(attr.oid, name)
    }

    fn drop_xattr(&self, oid: Oid, name: &[u8]) -> Result<()> {
        let change = self.begin_change(oid);
        let _names = self.listed.change_names();
        let done = self.call(oid.home(), RemoveXattr { oid, name });
        drop(change);
        self.cache.forget_dir(oid);
        self.files.forget(oid);
        done.map_err(no_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_as_people_write_them() {
        assert_eq!(parse_chunk_bytes("65536"), Ok(65536));
        assert_eq!(parse_chunk_bytes("64K"), Ok(65536));
        assert_eq!(parse_chunk_bytes("2m"), Ok(2 << 20));
        for wrong in ["", "K", "-4096", "4097", "1", "65M", "99999999999"] {
            assert_eq!(parse_chunk_bytes(wrong), Err(Errno::INVAL), "{wrong}");
        }
    }
}
