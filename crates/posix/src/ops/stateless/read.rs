//! Reading by object. Owns that bytes and attributes that came together fit each other, whatever
//! happens to the file meanwhile: what is missing in the middle of a file counts as a hole only if the
//! file stood still while it was looked at.

use azekura_client::Call;
use azekura_proto::attr::{ChangeMark, FileGuard};
use azekura_proto::limits::{FILE_BYTES_MAX, FRAME_BULK_BYTES_MAX};
use azekura_proto::message::typed::{FileBytes, GetAttr, ReadFile};
use azekura_proto::{Attr, Oid};

use super::{ObjectRead, check_regular};
use crate::errno::of_client;
use crate::writer::WriteLeases;
use crate::{Access, Credentials, FileSystem, Result};

/// How often a file is looked at that changes all the time, before what is missing counts as a hole.
const LOOKS: u32 = 4;
/// Reads of more bytes are not asked for together with others.
const BATCHED_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of one request.
const PIECE: usize = FRAME_BULK_BYTES_MAX as usize;
const READ: Access = Access { read: true, write: false, execute: false };

/// One of several reads.
#[derive(Debug)]
pub struct ReadRequest<'r> {
    /// Who reads.
    pub caller: &'r Credentials,
    /// The file.
    pub oid: Oid,
    /// Where, in bytes.
    pub offset: u64,
    /// Where the bytes go.
    pub buffer: &'r mut [u8],
}

/// What one look at a file has brought.
struct Look {
    attr: Attr,
    /// So many bytes of the buffer are certainly from before the end of the file.
    got: u64,
    /// All shards that may have bytes of the range were asked.
    is_complete: bool,
}

impl Look {
    /// How many bytes of a buffer of this size lie before the end of the file.
    fn before_end(&self, offset: u64, room: usize) -> u64 {
        self.attr.size.saturating_sub(offset).min(room as u64)
    }

    fn into_read(self, offset: u64, bytes: u64) -> ObjectRead {
        let at_end = offset.saturating_add(bytes) >= self.attr.size;
        ObjectRead { bytes: bytes as usize, at_end, attr: self.attr }
    }
}

impl FileSystem {
    /// Reads from a regular file that need not be open. What is in the buffer after an error is
    /// nothing of the file.
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
        self.writing.settle(oid, WriteLeases::Keep).map(drop)?;
        let room = FILE_BYTES_MAX.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let read = self.read_pieces(caller, oid, offset, &mut buffer[..room]);
        if read.is_err() {
            buffer.fill(0);
        }
        read
    }

    fn read_pieces(
        &self,
        caller: &Credentials,
        oid: Oid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ObjectRead> {
        let first = buffer.len().min(PIECE);
        let mut read = self.read_piece(caller, oid, offset, &mut buffer[..first])?;
        while read.bytes < buffer.len() && !read.at_end && read.bytes.is_multiple_of(PIECE) {
            let end = buffer.len().min(read.bytes + PIECE);
            let (at, rest) = (offset + read.bytes as u64, &mut buffer[read.bytes..end]);
            let next = self.read_piece(caller, oid, at, rest)?;
            read = ObjectRead { bytes: read.bytes + next.bytes, ..next };
        }
        Ok(read)
    }

    /// Reads what goes in one request a shard.
    fn read_piece(
        &self,
        caller: &Credentials,
        oid: Oid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ObjectRead> {
        let mut seen_before = None;
        let mut looks = 0;
        loop {
            let look = self.look(oid, offset, buffer)?;
            self.judge(caller, &FileGuard::of(&look.attr), READ)?;
            let end = look.before_end(offset, buffer.len());
            if look.got >= end {
                let bytes = look.got;
                return Ok(look.into_read(offset, bytes));
            }
            looks += 1;
            let stood_still = seen_before == Some(ChangeMark::of(&look.attr));
            if look.is_complete && (stood_still || looks >= LOOKS) {
                buffer[look.got as usize..end as usize].fill(0);
                return Ok(look.into_read(offset, end));
            }
            seen_before = look.is_complete.then(|| ChangeMark::of(&look.attr));
        }
    }

    /// Bytes and attributes by one round trip.
    fn look(&self, oid: Oid, offset: u64, buffer: &mut [u8]) -> Result<Look> {
        let asked = self.files.ask(oid);
        let shards = self.pool().placement().shards(oid);
        let striped = self.files.get(oid).filter(|file| file.striped && shards > 1);
        let look = match striped {
            Some(file) if !buffer.is_empty() => {
                let chunk_bytes = file.guard.chunk_bytes;
                let attr = Call::new(oid.home(), GetAttr { oid });
                // Before the bytes, where one engine has both: who may read is judged by it.
                let (attr, got) = self.data_of(oid, chunk_bytes).read_along(attr, offset, buffer);
                let attr = *attr.map_err(|error| of_client(&error))?;
                let got = got.map_err(|error| of_client(&error))?;
                let is_complete = attr.striped && attr.chunk_bytes == chunk_bytes;
                Look { attr, got, is_complete }
            }
            _ => {
                let request = ReadFile { oid, offset, bytes: buffer.len() as u32 };
                let read = self.pool().fetch(oid.home(), request, buffer);
                seen(read.map_err(|error| of_client(&error))?, shards)
            }
        };
        check_regular(&look.attr)?;
        self.files.keep(asked, &look.attr);
        Ok(look)
    }

    /// Several reads, as they have come together: by one round trip to each engine, as far as they are
    /// small and of files that have all of their data at home. The others follow one by one. Each gives
    /// what [`FileSystem::read_object`] would.
    pub fn read_objects(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Result<ObjectRead>> {
        let mut results: Vec<Option<Result<ObjectRead>>> = Vec::with_capacity(requests.len());
        let mut calls = Vec::with_capacity(requests.len());
        let mut batched = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter_mut().enumerate() {
            let (oid, offset) = (request.oid, request.offset);
            let settled = self.writing.settle(oid, WriteLeases::Keep);
            results.push(settled.err().map(Err));
            let bytes = request.buffer.len();
            let is_striped = self.files.get(oid).is_some_and(|file| file.striped);
            let fits = bytes <= BATCHED_BYTES_MAX && offset <= FILE_BYTES_MAX - bytes as u64;
            if results[index].is_none() && fits && !is_striped {
                batched.push((index, self.files.ask(oid)));
                let read = ReadFile { oid, offset, bytes: bytes as u32 };
                calls.push(Call::fetching(oid.home(), read, &mut *request.buffer));
            }
        }
        let replies = self.pool().call_all(&mut calls);
        drop(calls);
        for ((index, asked), reply) in batched.into_iter().zip(replies) {
            let request = &requests[index];
            let shards = self.pool().placement().shards(request.oid);
            let look = match reply {
                Ok(read) => seen(read, shards),
                Err(error) => {
                    results[index] = Some(Err(of_client(&error)));
                    continue;
                }
            };
            self.files.keep(asked, &look.attr);
            let judged = self.judge(request.caller, &FileGuard::of(&look.attr), READ);
            // What has to be looked at again is read by itself.
            let is_whole = look.got >= look.before_end(request.offset, request.buffer.len());
            results[index] = match judged {
                Err(errno) => Some(Err(errno)),
                Ok(()) if is_whole => {
                    let bytes = look.got;
                    Some(Ok(look.into_read(request.offset, bytes)))
                }
                Ok(()) => None,
            };
        }
        let each = requests.iter_mut().zip(results);
        each.map(|(request, result)| {
            let ReadRequest { caller, oid, offset, buffer } = request;
            if matches!(result, Some(Err(_))) {
                buffer.fill(0);
            }
            result.unwrap_or_else(|| self.read_object(caller, *oid, *offset, buffer))
        })
        .collect()
    }

    /// The attributes of several objects, by one round trip to each engine. Each gives what
    /// [`FileSystem::getattr`] would.
    pub fn getattrs(&self, oids: &[Oid]) -> Vec<Result<Attr>> {
        let settled: Vec<_> =
            oids.iter().map(|oid| self.writing.settle(*oid, WriteLeases::Keep)).collect();
        let mut calls: Vec<_> =
            oids.iter().map(|oid| Call::new(oid.home(), GetAttr { oid: *oid })).collect();
        let replies = self.pool().call_all(&mut calls);
        let each = settled.into_iter().zip(replies);
        each.map(|(settled, reply)| {
            settled.and(reply.map(|attr| *attr).map_err(|error| of_client(&error)))
        })
        .collect()
    }
}

/// What a home has told of a file with so many shards.
fn seen(read: FileBytes, shards: u16) -> Look {
    let is_complete = !read.attr.striped || shards == 1;
    Look { attr: *read.attr, got: u64::from(read.bytes), is_complete }
}
