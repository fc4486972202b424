//! Files by their object, for front ends whose clients keep no open files (NFS). Owns what takes the
//! place of a handle: every call asks for the attributes first, checks the caller's permission, and
//! gives attributes back. Nothing is kept in flight or read ahead between two calls.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::FILE_BYTES_MAX;
use azekura_proto::{Attr, Oid};

use crate::errno::of_client;
use crate::writer::{Settled, WriteLeases};
use crate::{Access, Credentials, Errno, FileSystem, Privileges, Result, permission};

/// What a read by object has brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectRead {
    /// How many bytes lie in the buffer; fewer than fit only at the end of the file.
    pub bytes: usize,
    /// Nothing follows behind them, as far as was known when the read began.
    pub at_end: bool,
    /// The attributes of then.
    pub attr: Attr,
}

/// Changes when an engine that has data of the object has been started anew: what was written before
/// and not made durable may be gone then, and has to be written again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteVerifier(pub [u8; 8]);

/// What a write by object has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectWrite {
    /// How many bytes were written.
    pub bytes: usize,
    /// As it was before the write.
    pub verifier: WriteVerifier,
}

impl FileSystem {
    /// Reads from a regular file that need not be open.
    ///
    /// # Errors
    /// `EACCES`; `EISDIR`, `EINVAL` for what is no regular file; `ESTALE` if it is gone; `EIO`.
    pub fn read_object(
        &self,
        caller: &Credentials,
        oid: Oid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ObjectRead> {
        let settled = self.writing.settle(oid, WriteLeases::Keep)?;
        let wanted = Access { read: true, ..Access::default() };
        let attr = self.attr_of_regular(caller, settled, wanted)?;
        let room = FILE_BYTES_MAX.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..room];
        let bytes = if buffer.is_empty() {
            0
        } else {
            self.read_directly(settled, &self.layout_of(&attr), offset, buffer)?
        };
        let at_end = offset.saturating_add(bytes as u64) >= attr.size;
        Ok(ObjectRead { bytes, at_end, attr })
    }

    /// Writes to a regular file that need not be open: fewer bytes than given if an error came in
    /// between. They are durable once [`FileSystem::sync_object`] has given the same verifier.
    ///
    /// # Errors
    /// `EACCES`; `EISDIR`, `EINVAL` for what is no regular file; `EFBIG`, `ENOSPC`, `EIO`; `ESTALE`.
    pub fn write_object(
        &self,
        caller: &Credentials,
        oid: Oid,
        offset: u64,
        data: &[u8],
    ) -> Result<ObjectWrite> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        // Leases go back: this write is not in the order of those of an open file.
        let settled = self.writing.settle(oid, WriteLeases::ReleaseFirst)?;
        let wanted = Access { write: true, ..Access::default() };
        let attr = self.attr_of_regular(caller, settled, wanted)?;
        // Before the write: an engine that is started anew in between must not go unnoticed.
        let verifier = self.write_verifier(oid)?;
        if data.is_empty() {
            return Ok(ObjectWrite { bytes: 0, verifier });
        }
        let mut privileges = Privileges::of(&attr);
        if !privileges.are_none() {
            let writer = (!caller.is_root()).then_some(caller);
            self.take_privileges(oid, &mut privileges, writer)?;
        }
        let layout = self.layout_of(&attr);
        self.make_striped(&layout, end)?;
        let change = self.changes.begin(oid);
        let bytes = self.write_through(&change, settled, &layout, offset, data)?;
        Ok(ObjectWrite { bytes, verifier })
    }

    /// Makes what was written to a file durable, whoever wrote it.
    ///
    /// # Errors
    /// `EIO` if any target fails to; the data may be lost then.
    pub fn sync_object(&self, oid: Oid) -> Result<WriteVerifier> {
        let settled = self.writing.settle(oid, WriteLeases::Keep)?;
        let attr = self.attr_of(settled)?;
        self.sync_file(settled, &self.layout_of(&attr), false)?;
        self.write_verifier(oid)
    }

    /// The verifier as it is now.
    fn write_verifier(&self, oid: Oid) -> Result<WriteVerifier> {
        let mut verifier = 0_u64;
        let mut engines = Vec::new();
        let placement = self.pool().placement();
        for shard in 0..placement.shards(oid) {
            let target = placement.shard_target(oid, shard);
            let engine = self.pool().map().engine_of(target);
            if engines.contains(&engine) {
                continue;
            }
            engines.push(engine);
            let incarnation = self.pool().incarnation(target).map_err(|error| of_client(&error))?;
            // Each at its own place, so that two restarts cannot cancel each other out.
            verifier = verifier.rotate_left(7) ^ incarnation.0;
        }
        Ok(WriteVerifier(verifier.to_be_bytes()))
    }

    /// The attributes of a regular file that the caller has this access to. The owner has it whatever
    /// the mode says, since nobody knows how the file was when it was opened.
    fn attr_of_regular(
        &self,
        caller: &Credentials,
        settled: Settled,
        wanted: Access,
    ) -> Result<Attr> {
        let attr = *self.attr_of(settled)?;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        if self.checks() && !permission::owns(caller, &attr) {
            permission::check(caller, &attr, wanted)?;
        }
        Ok(attr)
    }
}
