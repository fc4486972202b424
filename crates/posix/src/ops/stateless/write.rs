//! Writing by object. Owns that nobody's bytes come into a file without the permission being there, and
//! that no privilege outlives them, though nothing is asked before the usual write: the home of a file
//! carries a write out only if owner, mode and the rest are those by which the write was judged.
//!
//! Beyond chunk 0 the bytes go to targets that know nothing of owners. There what was learnt a moment ago
//! is believed for as long as a mount believes attributes, and not at all where nothing is cached.

use azekura_client::{Call, ClientError, ShardWrite};
use azekura_proto::attr::{ChangeMark, FileGuard};
use azekura_proto::limits::{FILE_BYTES_MAX, FRAME_BULK_BYTES_MAX};
use azekura_proto::message::typed::{GetAttr, ShardRemove, WriteFile};
use azekura_proto::{Attr, Geometry, Layout, Oid, Status};

use super::ObjectWrite;
use crate::errno::of_client;
use crate::known_files::KnownFile;
use crate::writer::{Settled, WriteLeases};
use crate::{Access, Credentials, Errno, FileSystem, Privileges, Result};

/// How often a write is judged anew because owner or mode have changed meanwhile.
const TRIES: u32 = 4;
/// Most bytes of one request.
const PIECE: usize = FRAME_BULK_BYTES_MAX as usize;
const WRITE: Access = Access { read: false, write: true, execute: false };

/// What has been written, as far as it has come.
#[derive(Default)]
struct Done {
    bytes: usize,
    before: Option<ChangeMark>,
    after: Option<Attr>,
}

impl FileSystem {
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
        // Before the write: an engine that is started anew in between must not go unnoticed.
        let verifier = self.write_verifier(oid)?;
        let change = self.changes.begin(oid);
        let known = self.files.get(oid).filter(|_| !data.is_empty());
        let range = (offset, end);
        let done = known.map(|file| self.write_as_known(caller, oid, &file, range, data));
        let done = match done.transpose()?.flatten() {
            Some(done) => done,
            None => self.write_asked(caller, settled, range, data)?,
        };
        drop(change);
        let Done { bytes, before, after } = done;
        Ok(ObjectWrite { bytes, verifier, before, after })
    }

    /// Writes by what is known of the file; `None` if its attributes have to be asked for first.
    fn write_as_known(
        &self,
        caller: &Credentials,
        oid: Oid,
        file: &KnownFile,
        (offset, end): (u64, u64),
        data: &[u8],
    ) -> Result<Option<Done>> {
        let is_plain = Privileges::of_guard(&file.guard).are_none();
        if !is_plain || self.judge(caller, &file.guard, WRITE).is_err() {
            return Ok(None);
        }
        if self.lies_at_home(oid, &file.guard, end) {
            return self.write_home(oid, &file.guard, offset, data);
        }
        if !file.striped || !self.files.may_rely_on(file) {
            return Ok(None);
        }
        self.write_over_shards(oid, file.guard.chunk_bytes, offset, data).map(Some)
    }

    /// Writes after a look at the attributes.
    fn write_asked(
        &self,
        caller: &Credentials,
        settled: Settled,
        (offset, end): (u64, u64),
        data: &[u8],
    ) -> Result<Done> {
        let oid = settled.oid();
        let mut tries = 0;
        loop {
            let (attr, file) = self.ask_regular(settled)?;
            self.judge(caller, &file.guard, WRITE)?;
            if data.is_empty() {
                return Ok(Done { after: Some(attr), ..Done::default() });
            }
            let mut privileges = Privileges::of(&attr);
            let is_plain = privileges.are_none();
            if !is_plain {
                let writer = (!caller.is_root()).then_some(caller);
                self.take_privileges(oid, &mut privileges, writer)?;
            } else if tries < TRIES && self.lies_at_home(oid, &file.guard, end) {
                if let Some(done) = self.write_home(oid, &file.guard, offset, data)? {
                    return Ok(done);
                }
                tries += 1;
                continue;
            }
            self.make_striped(&self.layout_of(&attr), end)?;
            return self.write_over_shards(oid, attr.chunk_bytes, offset, data);
        }
    }

    /// Whether the home alone has the bytes before `end`.
    fn lies_at_home(&self, oid: Oid, guard: &FileGuard, end: u64) -> bool {
        let geometry = Geometry::new(guard.chunk_bytes, self.pool().placement().shards(oid));
        geometry.shards() == 1 || geometry.is_within_first_chunk(end)
    }

    /// Writes at home, under a guard; `None` if it does not hold any more.
    fn write_home(
        &self,
        oid: Oid,
        guard: &FileGuard,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Done>> {
        let mut done = Done::default();
        for part in data.chunks(PIECE) {
            let asked = self.files.ask(oid);
            let request = WriteFile { oid, offset: offset + done.bytes as u64, guard: *guard };
            match self.pool().send(oid.home(), request, part) {
                Ok(written) => {
                    self.files.keep(asked, &written.attr);
                    if done.bytes == 0 {
                        done.before = written.before;
                    }
                    done.bytes += part.len();
                    done.after = Some(*written.attr);
                }
                Err(ClientError::Status(Status::ConditionFailed)) if done.bytes == 0 => {
                    self.files.forget(oid);
                    return Ok(None);
                }
                Err(error) if done.bytes == 0 => return Err(of_client(&error)),
                // What was written up to here counts; the next write meets the error.
                Err(_) => break,
            }
        }
        Ok(Some(done))
    }

    /// Writes to all shards that the range lies in; the attributes come behind the data.
    fn write_over_shards(
        &self,
        oid: Oid,
        chunk_bytes: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<Done> {
        let asked = self.files.ask(oid);
        let run = self.pool().incarnation(oid.home()).ok();
        let attr = Call::new(oid.home(), GetAttr { oid });
        let io = self.data_of(oid, chunk_bytes);
        let (ShardWrite { bytes, error }, attr) = io.write_along(offset, data, attr);
        if matches!(attr, Err(ClientError::Status(Status::Stale))) {
            self.files.forget(oid);
            self.remove_strays(oid);
            return Err(Errno::STALE);
        }
        let attr = attr.ok().map(|attr| *attr);
        if let Some(attr) = &attr {
            self.files.keep(asked, attr);
        }
        match error {
            Some(error) if bytes == 0 => return Err(of_client(&error)),
            // What was written up to here counts; the next write meets the error.
            Some(error) => tracing::debug!("a write to {oid} stopped after {bytes} bytes: {error}"),
            None => {}
        }
        // Another engine's data may have come after the attributes were looked at, and an engine that was
        // started anew in between may have lost them.
        let ran_on = run.is_some() && run == self.pool().incarnation(oid.home()).ok();
        let after = attr.filter(|_| ran_on && self.is_of_one_engine(oid));
        Ok(Done { bytes, before: None, after })
    }

    fn is_of_one_engine(&self, oid: Oid) -> bool {
        let (placement, map) = (self.pool().placement(), self.pool().map());
        let engine = |shard| map.engine_of(placement.shard_target(oid, shard));
        (1..placement.shards(oid)).all(|shard| engine(shard) == engine(0))
    }

    /// The file was removed before the write, and its shards with it: what has come since would stay for
    /// ever. Numbers of objects are never given twice, so nobody else's data can be meant.
    fn remove_strays(&self, oid: Oid) {
        let layout = Layout::of_file(self.pool().placement(), oid, 1);
        let remove = |(target, data)| Call::new(target, ShardRemove { data });
        let mut calls: Vec<_> = layout.all_shards().map(remove).collect();
        for error in
            self.pool().call_all(&mut calls).into_iter().filter_map(std::result::Result::err)
        {
            tracing::warn!(
                "data of {oid}, which is gone, may be left: 'azekura fs check' finds them ({error})"
            );
        }
    }
}
