//! Reading by object. Owns that bytes and attributes that came together fit each other, whatever
//! happens to the file meanwhile: what is missing in the middle of a file counts as a hole only if the
//! file stood still while it was looked at.

use azekura_client::{Batch, BatchReplies, BatchedRead, Call, Ticket};
use azekura_proto::attr::{ChangeMark, FileGuard};
use azekura_proto::limits::{FILE_BYTES_MAX, FRAME_BULK_BYTES_MAX};
use azekura_proto::message::typed::{GetAttr, ReadFile};
use azekura_proto::{Attr, Oid};

use super::{ObjectRead, check_regular};
use crate::errno::of_client;
use crate::known_files::{Asked, KnownFile};
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

/// Which answers of several belong to a read.
enum Way {
    /// The home has all of it.
    Home { asked: Asked, read: Ticket<ReadFile> },
    /// The shards have the bytes; the attributes are those with this number.
    Shards { file: KnownFile, attr: usize, read: BatchedRead },
}

/// Reads that are asked for together.
struct Asking<'a> {
    batch: Batch<'a>,
    /// The striped files among them.
    attrs: Vec<(Oid, Asked, Ticket<GetAttr>)>,
}

impl Asking<'_> {
    fn with_capacity(requests: usize) -> Self {
        Self { batch: Batch::with_capacity(requests), attrs: Vec::new() }
    }

    /// The number of a file's attributes, which are asked for once.
    fn attr_of(&mut self, oid: Oid, ask: impl FnOnce() -> Asked) -> usize {
        if let Some(place) = self.attrs.iter().position(|(known, ..)| *known == oid) {
            return place;
        }
        let ticket = self.batch.add(Call::new(oid.home(), GetAttr { oid }));
        self.attrs.push((oid, ask(), ticket));
        self.attrs.len() - 1
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
        let mut asking = Asking::with_capacity(2);
        let way = self.ask_together(&mut asking, oid, offset, &mut *buffer);
        let (mut replies, attrs) = self.ask_all(asking);
        self.seen(&mut replies, &attrs, oid, way, buffer)
    }

    /// Several reads, as they have come together: by one round trip to each engine, as far as they are
    /// small; of a striped file, the attributes are asked for once. The others follow one by one. Each
    /// gives what [`FileSystem::read_object`] would.
    pub fn read_objects(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Result<ObjectRead>> {
        let mut asking = Asking::with_capacity(2 * requests.len());
        let mut ways = Vec::with_capacity(requests.len());
        for request in &mut *requests {
            let (oid, offset) = (request.oid, request.offset);
            let bytes = request.buffer.len();
            let fits = bytes <= BATCHED_BYTES_MAX && offset <= FILE_BYTES_MAX - bytes as u64;
            ways.push(match self.writing.settle(oid, WriteLeases::Keep) {
                Err(errno) => Err(errno),
                Ok(_) if !fits => Ok(None),
                Ok(_) => {
                    Ok(Some(self.ask_together(&mut asking, oid, offset, &mut *request.buffer)))
                }
            });
        }
        let (mut replies, attrs) = self.ask_all(asking);
        let mut look = |request: &mut ReadRequest<'_>, way: Way| {
            let look = self.seen(&mut replies, &attrs, request.oid, way, request.buffer)?;
            self.judge(request.caller, &FileGuard::of(&look.attr), READ)?;
            // What has to be looked at again is read by itself.
            let is_whole = look.got >= look.before_end(request.offset, request.buffer.len());
            let bytes = look.got;
            Ok(is_whole.then(|| look.into_read(request.offset, bytes)))
        };
        let looked = requests.iter_mut().zip(ways);
        let results: Vec<_> =
            looked.map(|(request, way)| way?.map_or(Ok(None), |way| look(request, way))).collect();
        let each = requests.iter_mut().zip(results);
        each.map(|(request, result)| {
            let ReadRequest { caller, oid, offset, buffer } = request;
            match result {
                Ok(Some(read)) => Ok(read),
                Ok(None) => self.read_object(caller, *oid, *offset, buffer),
                Err(errno) => {
                    buffer.fill(0);
                    Err(errno)
                }
            }
        })
        .collect()
    }

    /// Adds what brings the bytes and the attributes of a file, by what is known of it.
    fn ask_together<'a>(
        &self,
        asking: &mut Asking<'a>,
        oid: Oid,
        offset: u64,
        buffer: &'a mut [u8],
    ) -> Way {
        let shards = self.pool().placement().shards(oid);
        let striped = self.files.get(oid).filter(|file| file.striped && shards > 1);
        match striped {
            Some(file) if !buffer.is_empty() => {
                // Before the bytes, where one engine has both: who may read is judged by it.
                let attr = asking.attr_of(oid, || self.files.ask(oid));
                let data = self.data_of(oid, file.guard.chunk_bytes);
                let read = data.read_in(&mut asking.batch, offset, buffer);
                Way::Shards { file, attr, read }
            }
            _ => {
                let asked = self.files.ask(oid);
                let request = ReadFile { oid, offset, bytes: buffer.len() as u32 };
                let read = asking.batch.add(Call::fetching(oid.home(), request, buffer));
                Way::Home { asked, read }
            }
        }
    }

    /// Sends all of it, and takes in the attributes of the striped files.
    fn ask_all(&self, asking: Asking<'_>) -> (BatchReplies<'_>, Vec<Result<Attr>>) {
        let Asking { batch, attrs } = asking;
        let mut replies = self.pool().call_batch(batch);
        let attrs = attrs.into_iter().map(|(_, asked, ticket)| {
            let attr = *replies.take(ticket).map_err(|error| of_client(&error))?;
            self.files.keep(asked, &attr);
            Ok(attr)
        });
        let attrs = attrs.collect();
        (replies, attrs)
    }

    /// What has come of one file.
    fn seen(
        &self,
        replies: &mut BatchReplies<'_>,
        attrs: &[Result<Attr>],
        oid: Oid,
        way: Way,
        buffer: &mut [u8],
    ) -> Result<Look> {
        let look = match way {
            Way::Home { asked, read } => {
                let read = replies.take(read).map_err(|error| of_client(&error))?;
                self.files.keep(asked, &read.attr);
                let is_complete = !read.attr.striped || self.pool().placement().shards(oid) == 1;
                Look { attr: *read.attr, got: u64::from(read.bytes), is_complete }
            }
            Way::Shards { file, attr, read } => {
                let chunk_bytes = file.guard.chunk_bytes;
                let attr = attrs[attr].clone()?;
                let got = self.data_of(oid, chunk_bytes).take_read(replies, read, buffer);
                let got = got.map_err(|error| of_client(&error))?;
                let is_complete = attr.striped && attr.chunk_bytes == chunk_bytes;
                Look { attr, got, is_complete }
            }
        };
        check_regular(&look.attr)?;
        Ok(look)
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
