//! One content that comes out of a file or out of memory: how its pieces are read, and how it is noticed that the
//! file has changed. Owns the checksums of what has been read.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ahead::{Ahead, Ready};
use crate::message::ContentDescription;
use crate::piece::{self, Buffers};
use crate::source::{FileState, Source, SourceFile};
use crate::supply::Offer;

/// A content that can be given.
pub(super) struct Stocked {
    pub(super) description: Arc<ContentDescription>,
    /// Of the pieces that have been read.
    pub(super) checksums: Mutex<Vec<Option<u64>>>,
    pub(super) origin: Origin,
}

/// Where its bytes are.
pub(super) enum Origin {
    Memory(Vec<u8>),
    File {
        open: Mutex<Option<Arc<dyn SourceFile>>>,
        before: FileState,
        ahead: Box<Ahead>,
        is_at_hand: bool,
    },
}

/// Why a piece cannot be read.
pub(super) enum Fault {
    Changed,
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Stocked {
    /// The checksums of all pieces; `None` if some have not been read.
    pub(super) fn whole_checksums(&self) -> Option<Vec<u64>> {
        self.checksums.lock().iter().copied().collect()
    }

    pub(super) fn offer_of(&self, all: &[u8], index: u32, buffers: &Buffers) -> Offer {
        if index >= self.description.pieces() {
            let end = |checksums: Vec<u64>| Offer::End { digest: piece::digest(&checksums) };
            return self.whole_checksums().map_or(Offer::Gone, end);
        }
        let mut bytes = buffers.take(self.description.bytes_of(index));
        let (from, length) = (self.description.offset_of(index) as usize, bytes.len());
        bytes.copy_from_slice(&all[from..from + length]);
        let checksum = piece::checksum(&bytes);
        if let Some(known) = self.checksums.lock().get_mut(index as usize) {
            *known = Some(checksum);
        }
        Offer::Piece { checksum, bytes: Arc::new(bytes) }
    }

    /// Reads a piece, or what is at the end.
    pub(super) fn read(
        &self,
        index: u32,
        source: &dyn Source,
        buffers: &Buffers,
    ) -> Result<Option<Ready>, Fault> {
        let pieces = self.description.pieces();
        if index >= pieces {
            // Some of it was asked for and not all: there is no use for its end yet.
            let Some(checksums) = self.whole_checksums() else { return Ok(None) };
            let digest = piece::digest(&checksums);
            self.check_unchanged(source)?;
            return Ok(Some(Ready::End { digest }));
        }
        let mut bytes = buffers.take(self.description.bytes_of(index));
        let offset = self.description.offset_of(index);
        if self.open(source)?.read_at(&mut bytes, offset)? != bytes.len() {
            return Err(Fault::Changed);
        }
        // Programs may read a piece before the last one has been read here.
        if source.tells_changes_at_once() {
            self.check_unchanged(source)?;
        }
        let checksum = piece::checksum(&bytes);
        match self.checksums.lock().get_mut(index as usize) {
            Some(Some(before)) if *before != checksum => return Err(Fault::Changed),
            Some(known) => *known = Some(checksum),
            None => return Ok(None),
        }
        Ok(Some(Ready::Piece { checksum, bytes: Arc::new(bytes) }))
    }

    fn check_unchanged(&self, source: &dyn Source) -> Result<(), Fault> {
        match &self.origin {
            Origin::Memory(_) => Ok(()),
            Origin::File { before, .. } if self.open(source)?.state()? == *before => Ok(()),
            Origin::File { .. } => Err(Fault::Changed),
        }
    }

    /// The file, open. One that was closed must be as it was.
    fn open(&self, source: &dyn Source) -> Result<Arc<dyn SourceFile>, Fault> {
        let (Origin::File { open, before, .. }, [part]) =
            (&self.origin, &self.description.parts[..])
        else {
            return Err(Fault::Changed);
        };
        let mut open = open.lock();
        if let Some(file) = &*open {
            return Ok(Arc::clone(file));
        }
        let file = source.open(&part.place.path)?;
        if file.state()? != *before {
            return Err(Fault::Changed);
        }
        let file: Arc<dyn SourceFile> = Arc::from(file);
        *open = Some(Arc::clone(&file));
        Ok(file)
    }
}
