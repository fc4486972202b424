//! Reading and writing. Owns how a range of a file becomes requests to shards: a narrow file's
//! data are at home; a file is made wide before the first write beyond chunk 0; and where a shard
//! of a wide file ends early, only the size tells a hole from the end.

use std::time::Instant;

use azekura_client::{Call, pieces};
use azekura_proto::attr::AttrChange;
use azekura_proto::geometry::Extent;
use azekura_proto::limits::{FILE_BYTES_MAX, FRAME_BULK_BYTES_MAX};
use azekura_proto::message::{Reply, Request, ShardRef};
use azekura_proto::{Oid, TargetId, placement};
use rustix::fs::OFlags;

use crate::errno::{of_client, unexpected};
use crate::writer::Leases;
use crate::{Errno, FileSystem, OpenFile, Result};

/// Most bytes of one request.
const PIECE: u64 = FRAME_BULK_BYTES_MAX as u64;

fn shard(oid: Oid, shard: u16) -> ShardRef {
    ShardRef { oid, shard, is_file: true }
}

impl FileSystem {
    pub(crate) fn shard_target(&self, oid: Oid, shard: u16) -> TargetId {
        placement::shard_target(oid, shard, self.target_count())
    }

    /// Reads into `buffer`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// `EBADF`, `EISDIR`; `EIO` if a target cannot be read.
    pub fn read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        file.check_read()?;
        let room = FILE_BYTES_MAX.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..room];
        if buffer.is_empty() {
            return Ok(0);
        }
        self.settle(file.oid(), Leases::Keep)?;
        match self.read_by_policy(file, offset, buffer)? {
            Some(got) => Ok(got),
            None => self.read_now(file, offset, buffer),
        }
    }

    /// Reads by requests of just these bytes.
    pub(crate) fn read_now(
        &self,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let end = offset + buffer.len() as u64;
        if file.is_wide() {
            return self.read_wide(file, offset, buffer);
        }
        if !file.needs_wide(end) {
            return self.read_home(file, offset, buffer);
        }
        // Beyond chunk 0 of a file that was narrow when last heard of.
        let chunk_bytes = file.geometry().chunk_bytes();
        if offset < chunk_bytes {
            let at_home = (chunk_bytes - offset) as usize;
            let got = self.read_home(file, offset, &mut buffer[..at_home])?;
            if got < at_home || !file.is_wide() {
                return Ok(got);
            }
            let rest = self.read_wide(file, chunk_bytes, &mut buffer[at_home..])?;
            return Ok(at_home + rest);
        }
        let attr = self.getattr(file.oid())?;
        file.learn_wide(attr.wide);
        if file.is_wide() { self.read_wide(file, offset, buffer) } else { Ok(0) }
    }

    /// Reads what lies in chunk 0, or in the only shard.
    fn read_home(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let home = file.oid().home();
        let mut done = 0;
        while done < buffer.len() {
            let part = (buffer.len() - done).min(PIECE as usize);
            let part = &mut buffer[done..done + part];
            let data = shard(file.oid(), 0);
            let bytes = part.len() as u32;
            let request = Request::Read { data, offset: offset + done as u64, bytes };
            let got = match self.pool().fetch(home, &request, part) {
                Ok(Reply::Data { bytes, wide }) => {
                    file.learn_wide(wide);
                    bytes as usize
                }
                Ok(_) => return Err(unexpected("read")),
                Err(error) => return Err(of_client(&error)),
            };
            let short = got < part.len();
            if short && file.is_wide() {
                // Somebody has made it wide: this may be a hole.
                let rest =
                    self.read_wide(file, offset + (done + got) as u64, &mut buffer[done + got..])?;
                return Ok(done + got + rest);
            }
            done += got;
            if short {
                break;
            }
        }
        Ok(done)
    }

    fn read_wide(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let wanted = buffer.len() as u64;
        let mut extents = pieces(file.geometry(), offset, wanted);
        let (first, second) = (extents.next(), extents.next());
        drop(extents);
        let known_end = match (first, second) {
            (None, _) => return Ok(0),
            (Some(only), None) => self.read_piece(file, only, buffer)?,
            (Some(_), Some(_)) => self.read_pieces(file, offset, buffer)?,
        };
        if known_end == wanted {
            return Ok(known_end as usize);
        }
        // A hole or the end: only the size tells. Everything up to it reads as zeros.
        let size = self.getattr(file.oid())?.size;
        Ok(known_end.max(size.saturating_sub(offset).min(wanted)) as usize)
    }

    /// Reads one piece; zeros follow what was there. Gives how far there certainly is a file.
    fn read_piece(&self, file: &OpenFile, piece: Extent, buffer: &mut [u8]) -> Result<u64> {
        let data = shard(file.oid(), piece.shard);
        let request = Request::Read { data, offset: piece.local_offset, bytes: piece.bytes as u32 };
        let target = self.shard_target(file.oid(), piece.shard);
        match self.pool().fetch(target, &request, buffer) {
            Ok(Reply::Data { bytes, .. }) => {
                buffer[bytes as usize..].fill(0);
                Ok(u64::from(bytes))
            }
            Ok(_) => Err(unexpected("read")),
            Err(error) => Err(of_client(&error)),
        }
    }

    /// As [`FileSystem::read_piece`] for several pieces at once.
    fn read_pieces(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<u64> {
        let wanted = buffer.len() as u64;
        let mut calls = Vec::with_capacity(8);
        let mut rest = buffer;
        for piece in pieces(file.geometry(), offset, wanted) {
            let (part, others) = rest.split_at_mut(piece.bytes as usize);
            rest = others;
            let data = shard(file.oid(), piece.shard);
            let bytes = piece.bytes as u32;
            let request = Request::Read { data, offset: piece.local_offset, bytes };
            let target = self.shard_target(file.oid(), piece.shard);
            calls.push(Call::fetching(target, request, part));
        }
        self.pool().fan_out(&mut calls);
        let mut known_end = 0;
        for (call, piece) in calls.iter_mut().zip(pieces(file.geometry(), offset, wanted)) {
            let got = match call.take_result() {
                Ok(Reply::Data { bytes, .. }) => bytes as usize,
                Ok(_) => return Err(unexpected("read")),
                Err(error) => return Err(of_client(&error)),
            };
            call.bulk_in[got..].fill(0);
            if got > 0 {
                known_end = piece.offset - offset + got as u64;
            }
        }
        Ok(known_end)
    }

    /// Writes at `offset`, or at the end if the handle is in append mode (`offset` does not count
    /// then). Gives how many bytes were written: fewer than given if an error came in between.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `ENOSPC`, `EIO`, also of earlier writes that were answered early.
    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize> {
        if file.flags().contains(OFlags::APPEND) {
            return self.append(file, data).map(|_| data.len());
        }
        file.check_write()?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        self.before_change(file, end)?;
        self.reading().note_change(file.oid());
        let written = if let Some(written) = self.write_behind(file, offset, data)? {
            Ok(written)
        } else {
            let begun = Instant::now();
            let written = self.write_pieces(file, offset, data);
            self.saw_write(file, offset, begun.elapsed());
            written
        };
        self.reading().note_change(file.oid());
        self.after_write(file)?;
        written
    }

    /// What has to happen before data up to `end` come into a file: setuid bits go, and it becomes
    /// wide if the data pass chunk 0.
    pub(crate) fn before_change(&self, file: &OpenFile, end: u64) -> Result<()> {
        let oid = file.oid();
        self.clear_dangerous_bits(file)?;
        if file.needs_wide(end) && !file.is_wide() {
            self.call(oid.home(), &Request::Widen { oid })?;
            file.learn_wide(true);
        }
        Ok(())
    }

    pub(crate) fn clear_dangerous_bits(&self, file: &OpenFile) -> Result<()> {
        let clear_mode_bits = file.take_clear_bits();
        if clear_mode_bits != 0 {
            let oid = file.oid();
            let change = AttrChange { clear_mode_bits, ..AttrChange::default() };
            self.call_attr(oid, &Request::SetAttr { oid, change })?;
        }
        Ok(())
    }

    /// `O_SYNC` and `O_DSYNC`.
    fn after_write(&self, file: &OpenFile) -> Result<()> {
        if file.flags().intersects(OFlags::DSYNC | OFlags::SYNC) {
            self.fsync(file)
        } else {
            Ok(())
        }
    }

    fn write_pieces(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize> {
        let oid = file.oid();
        let mut extents = pieces(file.geometry(), offset, data.len() as u64);
        if let (Some(only), None) = (extents.next(), extents.next()) {
            let request =
                Request::Write { data: shard(oid, only.shard), offset: only.local_offset };
            let target = self.shard_target(oid, only.shard);
            return match self.pool().send(target, &request, data) {
                Ok(_) => Ok(data.len()),
                Err(error) => Err(of_client(&error)),
            };
        }
        let mut calls: Vec<Call<'_>> = pieces(file.geometry(), offset, data.len() as u64)
            .map(|piece| {
                let from = (piece.offset - offset) as usize;
                let bulk = &data[from..from + piece.bytes as usize];
                let request =
                    Request::Write { data: shard(oid, piece.shard), offset: piece.local_offset };
                Call::sending(self.shard_target(oid, piece.shard), request, bulk)
            })
            .collect();
        self.pool().fan_out(&mut calls);
        let mut written = 0;
        for call in &mut calls {
            match call.take_result() {
                Ok(_) => written += call.bulk_out.len(),
                Err(error) if written == 0 => return Err(of_client(&error)),
                Err(error) => {
                    // What was written up to here counts; the next write meets the error.
                    tracing::debug!("a write to {oid} stopped after {written} bytes: {error}");
                    break;
                }
            }
        }
        Ok(written)
    }

    /// Writes at the end of the file and gives back where the data went. Up to 4 MiB go in one
    /// piece, whoever else appends.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn append(&self, file: &OpenFile, data: &[u8]) -> Result<u64> {
        file.check_write()?;
        self.clear_dangerous_bits(file)?;
        let oid = file.oid();
        self.settle(oid, Leases::ReleaseFirst)?;
        let mut start = None;
        self.reading().note_change(oid);
        for part in data.chunks(PIECE as usize) {
            match self.pool().send(oid.home(), &Request::Append { oid }, part) {
                Ok(Reply::Appended { offset }) => {
                    file.learn_wide(file.needs_wide(offset + part.len() as u64));
                    start.get_or_insert(offset);
                }
                Ok(_) => return Err(unexpected("append")),
                Err(error) => return Err(of_client(&error)),
            }
        }
        self.reading().note_change(oid);
        self.after_write(file)?;
        match start {
            Some(offset) => Ok(offset),
            None => Ok(self.getattr(oid)?.size),
        }
    }
}
