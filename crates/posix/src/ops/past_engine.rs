//! The data of an open file as a file of this host's, for a kernel that is to read, write or map it by itself. Owns
//! which files have their data in one such file; who may have it meanwhile is the engine's to say.

use std::os::fd::{BorrowedFd, OwnedFd};

use azekura_client::LocalUse;
use azekura_proto::attr::FileKind;

use crate::{FileSystem, OpenFile, Result};

impl FileSystem {
    /// Whether all data of a file lie in one file, and its engine is on this host.
    pub fn lies_here(&self, file: &OpenFile) -> bool {
        file.kind() == FileKind::Regular
            && file.layout.shards() == 1
            && !self.pool().is_remote(file.layout.target(0))
    }

    /// The file in which the data of such a file lie, if its engine lets this client use it just now. Whoever
    /// writes to it sees to it that the file of the pool has no privileges that a write has to take.
    pub fn local_data(&self, file: &OpenFile, purpose: LocalUse) -> Option<OwnedFd> {
        let (target, data) = (file.layout.target(0), file.layout.shard(0));
        Some(self.pool().local_shard(target, data, purpose)?.into_descriptor())
    }

    /// The file in which the data of such a file lie, for a mapping that others share; `None` if there is none to be
    /// had. `must_write`: the mapping is of no use if it cannot be written to, so that the leases of others are
    /// waited for.
    ///
    /// # Errors
    /// What becomes of taking privileges from a file that is going to be written to.
    pub fn data_to_map<'f>(
        &self,
        file: &'f OpenFile,
        must_write: bool,
    ) -> Result<Option<BorrowedFd<'f>>> {
        if !self.config().descriptors || !self.lies_here(file) {
            return Ok(None);
        }
        let purpose = if file.is_writable() && file.is_readable() {
            self.before_write(file)?;
            LocalUse::Write { wait: must_write }
        } else {
            LocalUse::Read
        };
        Ok(file.local.to_map(self.pool(), &file.layout, purpose))
    }
}
