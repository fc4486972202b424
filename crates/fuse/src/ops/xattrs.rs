//! Extended attributes: the modes of the kernel's calls, and those of the file system.

use azekura_posix::{Credentials, Errno, Oid, XattrMode};
use azekura_proto::attr::CAPABILITY_XATTR;

use crate::answer::Result;
use crate::directories::Xattrs;
use crate::front_end::FrontEnd;
use crate::kernel::Header;

/// Whether an extended attribute is stored like this: others are refused, or tell of placement.
fn is_stored(name: &[u8]) -> bool {
    let stored: [&[u8]; 3] = [b"security.", b"trusted.", b"user."];
    stored.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with(b"user.azekura.")
}

impl FrontEnd {
    /// `flags` as of `setxattr`.
    pub(crate) fn setxattr(
        &self,
        header: &Header<'_>,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        const CREATE: u32 = 1;
        const REPLACE: u32 = 2;
        let mode = match flags {
            0 => XattrMode::Set,
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        let oid = self.object(header.node)?;
        self.plain.give(oid);
        let result = self.change(|| self.fs.setxattr(&self.caller(header), oid, name, value, mode));
        if name == CAPABILITY_XATTR {
            self.has_new_privileges(oid);
        }
        if result.is_ok() {
            self.directories.note_xattr(oid);
        }
        self.or_removed(result, oid, |removed| removed.set_xattr(name, value, mode))
    }

    pub(crate) fn getxattr(&self, header: &Header<'_>, name: &[u8]) -> Result<Vec<u8>> {
        let oid = self.object(header.node)?;
        // The kernel wants one before a write, each time that it has got new attributes, and `ls -l` one of each
        // file. That there are none came with the attributes.
        if is_stored(name) && self.plain.has(oid, self.now(), self.ttl()) {
            return Err(Errno::NODATA);
        }
        let asked = self.fs.getxattr(&self.caller(header), oid, name);
        self.or_removed(asked, oid, |removed| removed.xattr(name))
    }

    pub(crate) fn listxattr(&self, header: &Header<'_>) -> Result<Vec<u8>> {
        let oid = self.object(header.node)?;
        let asked = self.fs.listxattr(&self.caller(header), oid);
        self.or_removed(asked, oid, |removed| Ok(removed.xattr_names()))
    }

    pub(crate) fn removexattr(&self, header: &Header<'_>, name: &[u8]) -> Result<()> {
        let oid = self.object(header.node)?;
        let asked = self.change(|| self.fs.removexattr(&self.caller(header), oid, name));
        self.or_removed(asked, oid, |removed| removed.remove_xattr(name))
    }

    /// All extended attributes of a directory that is about to be removed, as far as they can be had.
    pub(crate) fn xattrs_of(&self, oid: Oid) -> Xattrs {
        let names = self.fs.listxattr(&Credentials::ROOT, oid).unwrap_or_default();
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let with_value = |name: &[u8]| {
            let value = self.fs.getxattr(&Credentials::ROOT, oid, name).ok()?;
            Some((name.to_vec(), value))
        };
        names.filter_map(with_value).collect()
    }
}
