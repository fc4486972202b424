//! What is gathered of one file. Owns the order of its bytes: what was written later lies above what was
//! written before, and all goes to the engines before anybody looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use azekura_platform::WallTime;
use azekura_posix::{
    Attr, Credentials, Errno, FileSystem, ObjectWrite, Oid, Result, Timestamp, WriteVerifier,
};

use super::chunk::Chunk;

/// For so long a caller who may write is not asked about again.
const ALLOWED: Duration = Duration::from_secs(1);

/// So far from where it is expected a write may come and still belong to those before it.
const DISORDER_BYTES_MAX: u64 = 4 << 20;

/// A file that small writes come to.
#[derive(Debug)]
pub(super) struct GatheredFile {
    oid: Oid,
    chunk_bytes: usize,
    /// Who has written what is gathered, since when that was allowed, and how the engines were then.
    writer: Option<(Credentials, Instant, WriteVerifier)>,
    chunks: BTreeMap<u64, Chunk>,
    /// The attributes of when the writer was allowed to write, with the length of what has come since.
    attr: Option<Attr>,
    /// Behind what was written last.
    end: u64,
    /// When the oldest gathered byte was written, or the last one was gathered if there is none.
    since: Instant,
    /// What became of bytes that are lost; said once.
    error: Option<Errno>,
}

/// What sending gathered bytes has done to the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sent {
    /// Memory that is free again.
    pub(super) freed_bytes: usize,
    /// Something was lost.
    pub(super) is_lost: bool,
}

impl GatheredFile {
    pub(super) fn new(oid: Oid, chunk_bytes: usize, now: Instant) -> Self {
        Self {
            oid,
            chunk_bytes,
            writer: None,
            chunks: BTreeMap::new(),
            attr: None,
            end: 0,
            since: now,
            error: None,
        }
    }

    /// Whether a write goes on with what the same caller has written just before, as far as calls that
    /// are on their way at the same time come in order.
    pub(super) fn is_followed_by(&self, caller: &Credentials, offset: u64) -> bool {
        self.is_of(caller) && offset.abs_diff(self.end) <= DISORDER_BYTES_MAX
    }

    fn is_of(&self, caller: &Credentials) -> bool {
        self.writer.as_ref().is_some_and(|(writer, ..)| writer == caller)
    }

    /// A write was made that others may follow.
    pub(super) fn begin_stream(
        &mut self,
        caller: &Credentials,
        offset: u64,
        written: &ObjectWrite,
        now: Instant,
    ) {
        self.writer = Some((caller.clone(), now, written.verifier));
        self.attr.clone_from(&written.after);
        self.end = offset + written.bytes as u64;
        self.since = now;
    }

    /// Makes sure that the caller may write, and gives the state of the engines from before.
    pub(super) fn allow(
        &mut self,
        fs: &FileSystem,
        caller: &Credentials,
        now: Instant,
    ) -> Result<WriteVerifier> {
        match &self.writer {
            Some((writer, since, verifier))
                if writer == caller && now.saturating_duration_since(*since) < ALLOWED =>
            {
                Ok(*verifier)
            }
            _ => {
                debug_assert!(self.is_of(caller) || self.chunks.is_empty());
                let ObjectWrite { verifier, after, .. } =
                    fs.write_object(caller, self.oid, 0, &[])?;
                self.writer = Some((caller.clone(), now, verifier));
                let gathered_end = self.attr.as_ref().map_or(0, |attr| attr.size);
                self.attr = after;
                if !self.chunks.is_empty() {
                    self.reaches(gathered_end);
                }
                Ok(verifier)
            }
        }
    }

    /// What was known of the file does not hold any more.
    pub(super) fn ask_again(&mut self) {
        self.writer = None;
    }

    fn reaches(&mut self, end: u64) {
        if let Some(attr) = &mut self.attr {
            attr.size = attr.size.max(end);
        }
    }

    /// What the attributes will be once all is sent, but that the times will be a little later.
    pub(super) fn foreseen(&self, now: WallTime) -> Option<Attr> {
        let time = Timestamp { secs: now.secs, nanos: now.nanos };
        self.attr.clone().map(|attr| Attr { mtime: time, ctime: time, ..attr })
    }

    /// Takes bytes in; gives how much more memory that takes, and the chunks that are full now.
    pub(super) fn put(&mut self, offset: u64, mut data: &[u8], now: Instant) -> (usize, Vec<u64>) {
        if self.chunks.is_empty() {
            self.since = now;
        }
        self.end = offset + data.len() as u64;
        self.reaches(self.end);
        let (mut taken_bytes, mut full) = (0, Vec::new());
        let mut offset = offset;
        while !data.is_empty() {
            let index = offset / self.chunk_bytes as u64;
            let at = (offset % self.chunk_bytes as u64) as usize;
            let (here, rest) = data.split_at(data.len().min(self.chunk_bytes - at));
            let chunk = self.chunks.entry(index).or_insert_with(|| {
                taken_bytes += self.chunk_bytes;
                Chunk::new(self.chunk_bytes)
            });
            chunk.put(at, here);
            if chunk.is_full() {
                full.push(index);
            }
            offset += here.len() as u64;
            data = rest;
        }
        (taken_bytes, full)
    }

    /// Sends one chunk to the engines.
    pub(super) fn send(&mut self, fs: &FileSystem, index: u64) -> Sent {
        let Some(chunk) = self.chunks.remove(&index) else { return Sent::default() };
        let start = index * self.chunk_bytes as u64;
        let done =
            chunk.ranges().try_for_each(|(at, bytes)| self.write(fs, start + at as u64, bytes));
        let is_lost = match done {
            // Nobody can miss the bytes of a file that is gone.
            Ok(()) | Err(Errno::STALE) => false,
            Err(errno) => {
                tracing::warn!(%errno, file = ?self.oid, "gathered writes are lost; their clients are told");
                self.error = Some(errno);
                true
            }
        };
        Sent { freed_bytes: chunk.bytes(), is_lost }
    }

    /// Sends all that is gathered.
    pub(super) fn send_all(&mut self, fs: &FileSystem) -> Sent {
        let mut all = Sent::default();
        while let Some((&index, _)) = self.chunks.first_key_value() {
            let sent = self.send(fs, index);
            all.freed_bytes += sent.freed_bytes;
            all.is_lost |= sent.is_lost;
        }
        all
    }

    fn write(&self, fs: &FileSystem, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        let Some((writer, ..)) = &self.writer else { return Err(Errno::IO) };
        while !bytes.is_empty() {
            let written = fs.write_object(writer, self.oid, offset, bytes)?.bytes;
            if written == 0 {
                return Err(Errno::IO);
            }
            offset += written as u64;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// What has to be told of bytes that are lost; then it is told.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    pub(super) fn has_error(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// For how long bytes have been waiting, or none have come.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}
