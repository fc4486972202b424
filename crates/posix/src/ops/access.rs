//! `access`, and the kinds of access that permissions are about.

use azekura_proto::Oid;

use crate::{Credentials, FileSystem, Result, permission};

/// Kinds of access; several may be wanted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Execute, or search in a directory.
    pub execute: bool,
}

impl FileSystem {
    /// Whether the caller may do this; checked here even where the kernel checks operations.
    ///
    /// # Errors
    /// `EACCES` if not.
    pub fn access(&self, caller: &Credentials, oid: Oid, wanted: Access) -> Result<()> {
        permission::check(caller, &self.getattr(oid)?, wanted)
    }
}
