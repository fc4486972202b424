//! Reading and writing. Owns how a range of a file becomes requests to shards: the data of a file that
//! is not striped are at home; a file is made striped before the first write beyond chunk 0; and where
//! a shard of a striped file ends early, only the size tells a hole from the end.

use azekura_client::{Call, ShardIo, ShardWrite};
use azekura_proto::Oid;
use azekura_proto::limits::{FILE_BYTES_MAX, FRAME_BULK_BYTES_MAX};
use azekura_proto::message::typed::{Append, LeaseFile, Read, SetStriped};
use rustix::fs::OFlags;

use crate::changes::DataChange;
use crate::contents::CONTENTS_BYTES_MAX;
use crate::errno::of_client;
use crate::layout::FileLayout;
use crate::reader::Direct;
use crate::writer::{Settled, WriteLeases, Written};
use crate::{Errno, FileSystem, OpenFile, Result};

/// Most bytes of one request.
const PIECE: u64 = FRAME_BULK_BYTES_MAX as u64;

impl FileSystem {
    /// The data of a file that may have some in every shard.
    pub(super) fn shard_io(&self, layout: &FileLayout) -> ShardIo<'_> {
        ShardIo::new(self.pool(), **layout)
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
        self.check_locks(file.oid(), offset, buffer.len())?;
        if let Some(got) = self.read_own(file.oid(), offset, buffer) {
            return Ok(got);
        }
        let settled = self.writing.settle(file.oid(), WriteLeases::Keep)?;
        let mut read = file.reader.read(&self.reading, &file.layout, offset, buffer);
        if matches!(read, Err(Direct::BeyondKnownEnd))
            && file.reader.has_brought(offset)
            && self.lease_with_others(file)
        {
            read = file.reader.read(&self.reading, &file.layout, offset, buffer);
        }
        match read {
            Ok(got) => Ok(got),
            Err(Direct::BeyondKnownEnd) => {
                let got = self.read_past_end(settled, file, offset, buffer)?;
                file.reader.learn_length(offset + got as u64);
                Ok(got)
            }
            Err(_) => self.read_near(settled, file, offset, buffer),
        }
    }

    /// Reads what only this process can have changed, and knows.
    fn read_own(&self, oid: Oid, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let newborn = self.read_newborn(oid, offset, buffer);
        newborn.or_else(|| self.writing.read_own(oid, offset, buffer))
    }

    /// Reads past the engine, where that goes, or by requests of just these bytes.
    fn read_near(
        &self,
        settled: Settled,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let passes_engines = self.config().descriptors;
        if passes_engines && file.local.read(self.pool(), &file.layout, offset, buffer) {
            return Ok(buffer.len());
        }
        let got = self.read_directly(settled, &file.layout, offset, buffer)?;
        file.local.note_direct(got, buffer.len());
        Ok(got)
    }

    /// Reads past the end that is known of a far file. Where the home tells the end, its lease is brought
    /// along: whoever has read to the end looks there once more, and asks for the attributes.
    fn read_past_end(
        &self,
        settled: Settled,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let layout = &file.layout;
        let room = layout.home_run(offset).min(PIECE).min(buffer.len() as u64) as usize;
        let asked = if room == 0 || layout.is_striped() { None } else { file.reader.ask_attr() };
        let Some(asked) = asked else {
            return self.read_directly(settled, layout, offset, buffer);
        };
        let oid = settled.oid();
        let (part, rest) = buffer.split_at_mut(room);
        let request = Read { data: layout.shard(0), offset, bytes: room as u32 };
        let (leased, read) = {
            let mut lease = Call::new(oid.home(), LeaseFile { oid });
            let mut read = Call::fetching(oid.home(), request, part);
            self.pool().call_both(&mut lease, &mut read)
        };
        let read = read.map_err(|error| of_client(&error))?;
        layout.learn_striped(read.striped);
        if let Ok(leased) = leased {
            file.reader.take_attr(asked, leased);
        }
        let got = read.bytes as usize;
        if got < room && layout.is_striped() {
            // Somebody has made it so: this may be a hole.
            return self.read_directly(settled, layout, offset, buffer);
        }
        if got < room || rest.is_empty() {
            return Ok(got);
        }
        Ok(got + self.read_directly(settled, layout, offset + got as u64, rest)?)
    }

    /// Reads by requests of just these bytes.
    pub(super) fn read_directly(
        &self,
        settled: Settled,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let end = offset + buffer.len() as u64;
        if layout.is_striped() {
            return self.read_striped(settled, layout, offset, buffer);
        }
        if !layout.needs_striping(end) {
            return self.read_home(settled, layout, offset, buffer);
        }
        // Beyond chunk 0 of a file that was not striped when last heard of.
        let chunk_bytes = layout.geometry().chunk_bytes();
        if offset < chunk_bytes {
            let at_home = (chunk_bytes - offset) as usize;
            let got = self.read_home(settled, layout, offset, &mut buffer[..at_home])?;
            if got < at_home || !layout.is_striped() {
                return Ok(got);
            }
            let rest = &mut buffer[at_home..];
            return Ok(at_home + self.read_striped(settled, layout, chunk_bytes, rest)?);
        }
        layout.learn_striped(self.attr_of(settled)?.striped);
        if layout.is_striped() { self.read_striped(settled, layout, offset, buffer) } else { Ok(0) }
    }

    /// Reads what lies in chunk 0, or in the only shard.
    fn read_home(
        &self,
        settled: Settled,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let home = layout.oid().home();
        let mut done = 0;
        while done < buffer.len() {
            let part = (buffer.len() - done).min(PIECE as usize);
            let part = &mut buffer[done..done + part];
            let data = layout.shard(0);
            let bytes = part.len() as u32;
            let request = Read { data, offset: offset + done as u64, bytes };
            let read = self.pool().fetch(home, request, part).map_err(|error| of_client(&error))?;
            layout.learn_striped(read.striped);
            let got = read.bytes as usize;
            let short = got < part.len();
            if short && layout.is_striped() {
                // Somebody has made it so: this may be a hole.
                let (at, rest) = (done + got, &mut buffer[done + got..]);
                return Ok(at + self.read_striped(settled, layout, offset + at as u64, rest)?);
            }
            done += got;
            if short {
                break;
            }
        }
        Ok(done)
    }

    fn read_striped(
        &self,
        settled: Settled,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let wanted = buffer.len() as u64;
        let read = self.shard_io(layout).read(offset, buffer);
        let known_end = read.map_err(|error| of_client(&error))?;
        if known_end == wanted {
            return Ok(known_end as usize);
        }
        // A hole or the end: only the size tells. Everything up to it reads as zeros.
        let size = self.attr_of(settled)?.size;
        Ok(known_end.max(size.saturating_sub(offset).min(wanted)) as usize)
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
        self.check_locks(file.oid(), offset, data.len())?;
        if self.write_in_flight(file, offset, data)? {
            return Ok(data.len());
        }
        self.before_change(file, end)?;
        let change = self.begin_change(file.oid());
        let may_read_back = file.is_readable() && file.reader.bytes_at_open() <= CONTENTS_BYTES_MAX;
        let place = (offset, data);
        let written = match file.writer.write(&self.writing, &file.layout, place, may_read_back)? {
            Written::InFlight(bytes) => Ok(bytes),
            Written::Through(settled) => {
                let begun = file.writer.may_be_far().then(|| self.now());
                let written = self.write_near(&change, settled, file, offset, data);
                if let (Some(begun), Some(first)) = (begun, file.layout.requests(offset, 1).next())
                {
                    let took = self.now().saturating_duration_since(begun);
                    self.writing.saw_round_trip(first.target, took);
                }
                written
            }
        };
        drop(change);
        self.after_write(file)?;
        written
    }

    /// Writes past the engine, where that goes, and what is left by requests.
    fn write_near(
        &self,
        change: &DataChange<'_>,
        settled: Settled,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let here = if self.config().descriptors {
            file.local.write(self.pool(), &file.layout, offset, data)
        } else {
            0
        };
        if here == data.len() {
            return Ok(here);
        }
        let (at, rest) = (offset + here as u64, &data[here..]);
        match self.write_through(change, settled, &file.layout, at, rest) {
            Ok(written) => {
                file.local.note_direct_write(written);
                Ok(here + written)
            }
            // What was written up to here counts; the next write meets the error.
            Err(_) if here > 0 => Ok(here),
            Err(error) => Err(error),
        }
    }

    /// What has to happen before data up to `end` come into a file: privileges go, and it becomes
    /// striped if the data pass chunk 0.
    pub(crate) fn before_change(&self, file: &OpenFile, end: u64) -> Result<()> {
        self.before_write(file)?;
        self.make_striped(&file.layout, end)
    }

    /// What has to happen before any change of the data.
    pub(crate) fn before_write(&self, file: &OpenFile) -> Result<()> {
        self.do_at_first_write(file.oid(), file.take_first_write())
    }

    /// Makes the file striped if data up to `end` need it; also again, where its home may have lost that.
    pub(super) fn make_striped(&self, layout: &FileLayout, end: u64) -> Result<()> {
        if !layout.needs_striping(end) {
            return Ok(());
        }
        let oid = layout.oid();
        let losses = self.pool().losses(oid.home());
        if !layout.is_striped() || layout.is_in_doubt(losses) {
            self.call(oid.home(), SetStriped { oid })?;
            layout.confirm_striped(losses);
        }
        Ok(())
    }

    /// `O_SYNC` and `O_DSYNC`.
    fn after_write(&self, file: &OpenFile) -> Result<()> {
        if !file.is_synchronous() {
            return Ok(());
        }
        if file.flags().contains(OFlags::SYNC) { self.fsync(file) } else { self.fdatasync(file) }
    }

    /// Writes and waits for the answers.
    pub(super) fn write_through(
        &self,
        _change: &DataChange<'_>,
        settled: Settled,
        layout: &FileLayout,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let ShardWrite { bytes, error } = self.shard_io(layout).write(offset, data);
        match error {
            None => Ok(bytes),
            Some(error) if bytes == 0 => Err(of_client(&error)),
            Some(error) => {
                // What was written up to here counts; the next write meets the error.
                let oid = settled.oid();
                tracing::debug!("a write to {oid} stopped after {bytes} bytes: {error}");
                Ok(bytes)
            }
        }
    }

    /// Writes at the end of the file and gives back where the data went. Up to 4 MiB go in one
    /// piece, whoever else appends.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn append(&self, file: &OpenFile, data: &[u8]) -> Result<u64> {
        file.check_write()?;
        self.before_write(file)?;
        let (oid, layout) = (file.oid(), &file.layout);
        // Where it will be is not known: any lock may be meant for it.
        self.check_locks(oid, 0, usize::MAX)?;
        let settled = self.writing.settle(oid, WriteLeases::ReleaseFirst)?;
        let mut start = None;
        let change = self.begin_change(oid);
        for part in data.chunks(PIECE as usize) {
            let appended = self.pool().send(oid.home(), Append { oid }, part);
            let offset = appended.map_err(|error| of_client(&error))?;
            layout.learn_striped(layout.needs_striping(offset + part.len() as u64));
            start.get_or_insert(offset);
        }
        drop(change);
        self.after_write(file)?;
        match start {
            Some(offset) => Ok(offset),
            None => Ok(self.attr_of(settled)?.size),
        }
    }
}
