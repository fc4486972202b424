//! Files by their object, for front ends whose clients keep no open files (NFS). Owns what takes the
//! place of a handle: every call checks the caller's permission and gives attributes back, by one round
//! trip where that can be. Nothing is kept in flight or read ahead between two calls, and nothing grows
//! with the number of clients or files.

mod read;
mod write;

use azekura_client::{Call, ShardIo};
use azekura_proto::attr::{ChangeMark, FileGuard, FileKind};
use azekura_proto::limits::CHUNK_BYTES_DEFAULT;
use azekura_proto::message::typed::GetAttr;
use azekura_proto::{Attr, EngineId, Layout, Oid};

use crate::errno::of_client;
use crate::known_files::KnownFile;
use crate::writer::{Settled, WriteLeases};
use crate::{Access, Credentials, Errno, FileSystem, Result, permission};

pub use read::ReadRequest;

/// What a read by object has brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectRead {
    /// How many bytes lie in the buffer; fewer than fit only at the end of the file.
    pub bytes: usize,
    /// Nothing follows behind them, as far as was known when they were read.
    pub at_end: bool,
    /// The attributes of then.
    pub attr: Attr,
}

/// Changes when an engine that has data of the object has been started anew: what was written before
/// and not made durable may be gone then, and has to be written again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteVerifier(pub [u8; 8]);

/// What a write by object has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectWrite {
    /// How many bytes were written.
    pub bytes: usize,
    /// As it was before the write.
    pub verifier: WriteVerifier,
    /// The file just before; only where it is certain that nobody else's write lies in between.
    pub before: Option<ChangeMark>,
    /// The attributes after the write, where they came along with it.
    pub after: Option<Attr>,
}

/// What making a file durable has brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectSync {
    /// As it is after that.
    pub verifier: WriteVerifier,
    /// The attributes after it.
    pub attr: Attr,
}

impl FileSystem {
    /// Makes what was written to a file durable, whoever wrote it.
    ///
    /// # Errors
    /// `EIO` if any target fails to; the data may be lost then. Those of
    /// [`FileSystem::read_object`] for what is no regular file.
    pub fn sync_object(&self, oid: Oid) -> Result<WriteVerifier> {
        self.commit_object(oid).map(|synced| synced.verifier)
    }

    /// As [`FileSystem::sync_object`], with the attributes.
    ///
    /// # Errors
    /// As [`FileSystem::sync_object`].
    pub fn commit_object(&self, oid: Oid) -> Result<ObjectSync> {
        self.writing.settle(oid, WriteLeases::Keep).map(drop)?;
        let known = self.files.get(oid);
        let chunk_bytes = known.map_or(CHUNK_BYTES_DEFAULT, |file| file.guard.chunk_bytes);
        let data = self.data_of(oid, chunk_bytes);
        let asked = self.files.ask(oid);
        let all = self.pool().placement().shards(oid);
        let shards = if known.is_some_and(|file| file.striped) { all } else { 1 };
        let (synced, attr) = data.sync_along(shards, Call::new(oid.home(), GetAttr { oid }));
        let attr = *attr.map_err(|error| of_client(&error))?;
        check_regular(&attr)?;
        synced.map_err(|error| of_client(&error))?;
        if attr.striped && shards < all {
            data.sync(1, false).map_err(|error| of_client(&error))?;
        }
        self.files.keep(asked, &attr);
        Ok(ObjectSync { verifier: self.write_verifier(oid)?, attr })
    }

    /// The verifier as it is now.
    fn write_verifier(&self, oid: Oid) -> Result<WriteVerifier> {
        let mut verifier = 0_u64;
        let (placement, map) = (self.pool().placement(), self.pool().map());
        let mut engines: Vec<Option<EngineId>> = Vec::with_capacity(map.engines.len());
        for shard in 0..placement.shards(oid) {
            let target = placement.shard_target(oid, shard);
            let engine = map.engine_of(target);
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

    /// The data of a file with chunks of this size.
    fn data_of(&self, oid: Oid, chunk_bytes: u32) -> ShardIo<'_> {
        ShardIo::new(self.pool(), Layout::of_file(self.pool().placement(), oid, chunk_bytes))
    }

    /// Asks for a regular file's attributes.
    fn ask_regular(&self, settled: Settled) -> Result<(Attr, KnownFile)> {
        let asked = self.files.ask(settled.oid());
        let attr = *self.attr_of(settled)?;
        check_regular(&attr)?;
        let file = self.files.keep(asked, &attr);
        Ok((attr, file))
    }

    /// Checks that the caller may read a file: also who may execute it, since the machine of a client has
    /// to read what it executes (RFC 1813, 4.4).
    fn judge_reader(&self, caller: &Credentials, guard: &FileGuard) -> Result<()> {
        let read = Access { read: true, ..Access::default() };
        let execute = Access { execute: true, ..Access::default() };
        self.judge(caller, guard, read).or_else(|_| self.judge(caller, guard, execute))
    }

    /// Checks that the caller has this access to a file. The owner has it whatever the mode says, since
    /// nobody knows how the file was when it was opened.
    fn judge(&self, caller: &Credentials, guard: &FileGuard, wanted: Access) -> Result<()> {
        let is_free = !self.checks() || caller.is_root() || caller.uid == guard.uid;
        if is_free || permission::may_use(caller, guard, wanted) {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }
}

fn check_regular(attr: &Attr) -> Result<()> {
    match attr.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}
