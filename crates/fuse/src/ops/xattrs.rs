//! Extended attributes: the modes of the kernel's calls, and those of the file system.

use azekura_posix::{Errno, XattrMode};

use crate::answer::Result;
use crate::front_end::FrontEnd;
use crate::kernel::Header;

/// The extended attribute of capabilities.
const CAPABILITY: &[u8] = b"security.capability";

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
        let result = self.change(|| self.fs.setxattr(&self.caller(header), oid, name, value, mode));
        self.has_new_privileges(oid);
        result
    }

    pub(crate) fn getxattr(&self, header: &Header<'_>, name: &[u8]) -> Result<Vec<u8>> {
        let oid = self.object(header.node)?;
        // The kernel wants this one before a write, each time that it has got new attributes.
        if name == CAPABILITY && self.plain.has(oid, self.now(), self.ttl()) {
            return Err(Errno::NODATA);
        }
        self.fs.getxattr(&self.caller(header), oid, name)
    }

    pub(crate) fn listxattr(&self, header: &Header<'_>) -> Result<Vec<u8>> {
        self.fs.listxattr(&self.caller(header), self.object(header.node)?)
    }

    pub(crate) fn removexattr(&self, header: &Header<'_>, name: &[u8]) -> Result<()> {
        let oid = self.object(header.node)?;
        self.change(|| self.fs.removexattr(&self.caller(header), oid, name))
    }
}
