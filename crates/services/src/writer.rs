//! A file of a service that is being written. Owns how it comes to its name in one step: by renaming, or where
//! the service does not rename, as one object that is not there before it is complete. Never leaves a part of a
//! file under its own name.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;

use azekura_proto::Timestamp;
use azekura_stage::source::NewFile;
use md5::{Digest as _, Md5};
use opendal::Buffer;
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use crate::address::Kind;
use crate::link::Link;
use crate::naming::partial_of;
use crate::sys;

/// Parts in which a file is given to the service. S3 wants 5 MiB at least, and 10,000 parts at most: so those
/// of long files are longer.
const PART_BYTES: usize = 8 << 20;
const LONG_PART_BYTES: usize = 32 << 20;
const SHORT_PARTS: usize = 1000;
/// What was written is read back in ranges of this length.
const BACK_BYTES: u64 = 4 << 20;

/// A file that has no name yet.
pub(crate) struct Writer {
    link: Arc<Link>,
    path: String,
    /// Where it is written: under its own name where nobody sees it there before it is complete.
    at: String,
    way: Way,
    /// What no part has been made of yet.
    gathered: Vec<u8>,
    bytes: u64,
    hash: Xxh3,
    /// Of S3: what it will call the version.
    parts: Vec<[u8; 16]>,
    stage: Stage,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Empty,
    Begun,
    Complete,
    /// Complete, and not what was sent.
    Wrong,
    Named,
}

/// How the service takes it.
enum Way {
    /// Part by part, as they come.
    Parts(Option<opendal::Writer>),
    /// All at once: until then what is longer than a part is on this host's disk.
    Whole(Option<File>),
    /// The first part as a file, others behind it.
    Appended(Option<opendal::Writer>),
}

impl Writer {
    pub(crate) fn create(link: &Arc<Link>, path: String) -> io::Result<Self> {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let partial = partial_of(&path, u32::from_le_bytes(random));
        let (at, way) = match link.kind() {
            Kind::S3 => (path.clone(), Way::Parts(None)),
            Kind::WebDav => (partial, Way::Whole(None)),
            Kind::WebHdfs => (partial, Way::Appended(None)),
            Kind::Sftp | Kind::Local => (partial, Way::Parts(None)),
        };
        Ok(Self {
            link: Arc::clone(link),
            path,
            at,
            way,
            gathered: Vec::new(),
            bytes: 0,
            hash: Xxh3::new(),
            parts: Vec::new(),
            stage: Stage::Empty,
        })
    }

    fn part_bytes(&self) -> usize {
        if self.parts.len() < SHORT_PARTS { PART_BYTES } else { LONG_PART_BYTES }
    }

    fn told(&self, error: &opendal::Error) -> io::Error {
        self.link.called.told(&format!("write '{}'", self.path), error)
    }

    /// Gives the service what is gathered.
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.gathered);
        let bytes = part.len() as u64;
        self.stage = Stage::Begun;
        if self.link.kind() == Kind::S3 {
            self.parts.push(Md5::digest(&part).into());
        }
        let (link, operator) = (Arc::clone(&self.link), &self.link.operator);
        let sent = match &mut self.way {
            Way::Whole(file) => return spool(file, &part).map_err(|error| spooling(&error)),
            Way::Parts(writer) => {
                let at = &self.at;
                link.wait(bytes, async {
                    if writer.is_none() {
                        // One part after the other: where several are on their way the library keeps the bytes of
                        // all until the file is complete.
                        *writer = Some(operator.writer_with(at).concurrent(1).await?);
                    }
                    write(writer, part).await
                })
            }
            Way::Appended(writer) => {
                let (at, is_first) = (&self.at, self.bytes == bytes);
                link.wait(bytes, async {
                    if is_first {
                        return operator.write(at, part).await.map(drop);
                    }
                    if writer.is_none() {
                        *writer = Some(operator.writer_with(at).append(true).await?);
                    }
                    write(writer, part).await
                })
            }
        };
        sent.map_err(|error| self.told(&error))
    }

    /// Gives the service the rest.
    fn finish(&mut self) -> io::Result<()> {
        if !self.gathered.is_empty() && !matches!(self.way, Way::Whole(None)) {
            self.send()?;
        }
        self.stage = Stage::Begun;
        let (link, operator) = (Arc::clone(&self.link), &self.link.operator);
        let (at, bytes) = (&self.at, self.bytes);
        let closed = match &mut self.way {
            Way::Whole(None) => {
                let whole = std::mem::take(&mut self.gathered);
                link.wait(bytes, operator.write(at, whole)).map(drop)
            }
            Way::Whole(Some(file)) => {
                let whole = sys::bytes_of(file).map_err(|error| spooling(&error))?;
                link.wait(bytes, operator.write(at, whole)).map(drop)
            }
            Way::Parts(Some(writer)) | Way::Appended(Some(writer)) => {
                // It keeps one part back.
                let limit = LONG_PART_BYTES as u64;
                link.wait(limit.min(bytes), writer.close()).map(drop)
            }
            Way::Appended(None) if bytes > 0 => Ok(()),
            // An empty file.
            Way::Parts(None) | Way::Appended(None) => {
                link.wait(0, operator.write(at, Buffer::new())).map(drop)
            }
        };
        closed.map_err(|error| self.told(&error))?;
        self.stage = Stage::Complete;
        Ok(())
    }

    /// Makes sure that the service has what was sent.
    fn verify(&mut self) -> io::Result<()> {
        let Some(what) = self.difference()? else { return Ok(()) };
        self.stage = Stage::Wrong;
        let (kind, address) = (self.link.kind().name(), &self.link.called.address);
        Err(io::Error::other(format!("{kind} ({address}): of '{}' {what}", self.path)))
    }

    /// In what way that which the service has is not what was sent, seen by its name for the version, or by
    /// reading it back.
    fn difference(&self) -> io::Result<Option<String>> {
        let link = &self.link;
        let doing = format!("look at what was written of '{}'", self.path);
        let told = |error| link.called.told(&doing, &error);
        let found = link.wait(0, link.operator.stat(&self.at)).map_err(told)?;
        if found.content_length() != self.bytes {
            let there = found.content_length();
            let sent = self.bytes;
            return Ok(Some(format!("{there} bytes are there, and {sent} were sent")));
        }
        let etag = found.etag().map(|etag| etag.trim_matches('"'));
        if link.kind() == Kind::S3 && etag == Some(etag_of(&self.parts).as_str()) {
            return Ok(None);
        }
        let (mut hash, mut offset) = (Xxh3::new(), 0);
        while offset < self.bytes {
            let end = (offset + BACK_BYTES).min(self.bytes);
            let read = link.operator.read_with(&self.at).range(offset..end);
            let back = link.wait(end - offset, async { read.await }).map_err(told)?;
            back.for_each(|bytes| hash.update(&bytes));
            offset = end;
        }
        let is_same = hash.digest() == self.hash.digest();
        Ok((!is_same).then(|| "other bytes are there than were sent".to_owned()))
    }

    fn rename(&self) -> io::Result<()> {
        if self.at == self.path {
            return Ok(());
        }
        let link = &self.link;
        let renamed = match &link.hdfs {
            Some(hdfs) => link.wait(0, hdfs.rename(&self.at, &self.path)),
            None => link.wait(0, link.operator.rename(&self.at, &self.path)),
        };
        let doing = || format!("rename '{}' to '{}'", self.at, self.path);
        renamed.map_err(|error| link.called.told(&doing(), &error))
    }
}

/// What S3 calls the version of an object that came in these parts.
fn etag_of(parts: &[[u8; 16]]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('?');
    let hex = |bytes: &[u8]| -> String {
        bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    };
    match parts {
        [] => hex(&Md5::digest([])),
        [part] => hex(part),
        parts => format!("{}-{}", hex(&Md5::digest(parts.concat())), parts.len()),
    }
}

async fn write(writer: &mut Option<opendal::Writer>, part: Vec<u8>) -> opendal::Result<()> {
    match writer {
        Some(writer) => writer.write(Buffer::from(part)).await,
        None => Ok(()),
    }
}

fn spool(file: &mut Option<File>, part: &[u8]) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        None => file.insert(tempfile::tempfile()?),
    };
    file.write_all(part)
}

fn spooling(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "cannot keep the file in {} until it is whole: {error}; set TMPDIR to a directory with room",
        std::env::temp_dir().display()
    ))
}

impl NewFile for Writer {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if offset != self.bytes {
            return Err(Errno::INVAL.into());
        }
        self.hash.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.part_bytes() - self.gathered.len();
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.gathered.extend_from_slice(now);
            self.bytes += now.len() as u64;
            rest = later;
            if self.gathered.len() >= self.part_bytes() {
                self.send()?;
            }
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>, _mode: u32, _mtime: Timestamp) -> io::Result<()> {
        self.finish()?;
        self.verify()?;
        self.rename()?;
        self.stage = Stage::Named;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let link = Arc::clone(&self.link);
        let dropped = match (self.stage, &mut self.way) {
            (Stage::Empty | Stage::Named, _) => return,
            // It has its name, and the service has confirmed it: that nobody could look at it makes it no worse.
            (Stage::Complete, _) if self.at == self.path => return,
            // It is not there before it is complete.
            (Stage::Begun, Way::Parts(Some(writer))) if link.kind() == Kind::S3 => {
                link.wait(0, writer.abort())
            }
            (Stage::Begun, Way::Parts(None)) if link.kind() == Kind::S3 => return,
            _ => link.wait(0, link.operator.delete(&self.at)),
        };
        if let Err(error) = dropped {
            // Its name says what it is.
            tracing::warn!("{}", link.called.line(&format!("remove '{}'", self.at), &error));
        }
    }
}
