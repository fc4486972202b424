//! The bulk data of a request and of its answer: in memory, or still on their way. Owns in which
//! pieces they are taken in, so that many busy connections need little memory. It knows no sockets.

use std::fmt::{self, Debug};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use azekura_proto::Status;
use azekura_proto::message::Answer;
use azekura_store::ShardFile;

use crate::records::stored::store_status;

/// Data that are streamed go to disk in pieces of this size, so that 256 busy connections need 64 MiB.
const PIECE_BYTES: usize = 256 * 1024;

/// The bulk data that come with a request.
pub(crate) enum BulkIn<'a> {
    /// All of them are here.
    Bytes(&'a [u8]),
    /// They are taken piece by piece.
    Stream {
        /// How many there are.
        bytes: u32,
        /// Fills a piece; pieces follow one another.
        read: &'a mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    },
}

impl BulkIn<'_> {
    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Bytes(data) => data.len() as u32,
            Self::Stream { bytes, .. } => *bytes,
        }
    }
}

/// A part of a shard's file.
pub(crate) struct FileRange {
    pub(crate) file: Arc<ShardFile>,
    /// Where it begins in the file, in bytes.
    pub(crate) offset: u64,
    /// How long it is. The file may be cut meanwhile: zeros stand for what is missing then.
    pub(crate) bytes: u32,
}

impl Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from {}", self.bytes, self.offset)
    }
}

impl FileRange {
    /// The file, to be sent from without a copy; `None` if it is on a simulated disk.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// Copies the range.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Status> {
        let mut data = vec![0; self.bytes as usize];
        self.read_part(0, &mut data)?;
        Ok(data)
    }

    /// Copies a part of the range, from `at` on in it.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn read_part(&self, at: u64, buffer: &mut [u8]) -> Result<(), Status> {
        let read = self.file.read_at(buffer, self.offset + at).map_err(store_status)?;
        buffer[read..].fill(0);
        Ok(())
    }
}

/// The bulk data that go with an answer.
pub(crate) enum BulkOut<'b> {
    /// None.
    None,
    /// In memory.
    Bytes(&'b [u8]),
    /// In a file.
    File(FileRange),
    /// No data, but a file to read them from.
    Descriptor(OwnedFd),
}

/// What a request gets.
pub(crate) struct Response<'b> {
    /// The answer; `None` for the one request that has none.
    pub(crate) answer: Option<Answer>,
    /// What goes with it.
    pub(crate) bulk: BulkOut<'b>,
}

enum Output {
    None,
    /// So many bytes at the start of the buffer.
    Buffered(usize),
    File(FileRange),
    Descriptor(OwnedFd),
}

/// Bulk data as an operation sees them.
pub(crate) struct Bulk<'i, 'b> {
    input: BulkIn<'i>,
    buffer: &'b mut Vec<u8>,
    output: Output,
    /// Why the input broke off: nobody waits for the answer then.
    broken: Option<io::Error>,
}

impl<'i, 'b> Bulk<'i, 'b> {
    /// `buffer` serves for what has to be copied, and is best used again for the next request.
    pub(crate) fn new(input: BulkIn<'i>, buffer: &'b mut Vec<u8>) -> Self {
        Self { input, buffer, output: Output::None, broken: None }
    }

    /// How many bytes come with the request.
    pub(crate) fn bytes(&self) -> u32 {
        self.input.bytes()
    }

    /// Room for data of the answer.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        &mut self.buffer[..bytes]
    }

    /// The first bytes of the room go with the answer.
    pub(crate) fn send_room(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len(), "what is sent was read into the room");
        self.output = Output::Buffered(bytes);
    }

    /// A part of a file goes with the answer.
    pub(crate) fn send_file(&mut self, range: FileRange) {
        self.output = Output::File(range);
    }

    /// A descriptor goes with the answer.
    pub(crate) fn send_descriptor(&mut self, descriptor: OwnedFd) {
        self.output = Output::Descriptor(descriptor);
    }

    /// Waits until all of the data are here.
    pub(crate) fn take_all(&mut self) -> Result<&[u8], Status> {
        match &mut self.input {
            BulkIn::Bytes(data) => Ok(data),
            BulkIn::Stream { bytes, read } => {
                let bytes = *bytes as usize;
                if self.buffer.len() < bytes {
                    self.buffer.resize(bytes, 0);
                }
                let data = &mut self.buffer[..bytes];
                read(data).map_err(|error| broke_off(&mut self.broken, error))?;
                Ok(data)
            }
        }
    }

    /// Hands the data on as they come, each piece with its place among them.
    pub(crate) fn take_pieces(
        &mut self,
        mut take: impl FnMut(&[u8], u64) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let (bytes, read) = match &mut self.input {
            BulkIn::Bytes(data) => return take(data, 0),
            BulkIn::Stream { bytes, read } => (*bytes as usize, read),
        };
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(PIECE_BYTES);
            if self.buffer.len() < piece {
                self.buffer.resize(piece, 0);
            }
            let data = &mut self.buffer[..piece];
            read(data).map_err(|error| broke_off(&mut self.broken, error))?;
            take(data, done as u64)?;
            done += piece;
        }
        Ok(())
    }

    /// The response, unless the data broke off.
    pub(crate) fn respond(self, answer: Option<Answer>) -> io::Result<Response<'b>> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let bulk = match self.output {
            Output::None => BulkOut::None,
            Output::Buffered(bytes) => BulkOut::Bytes(&self.buffer[..bytes]),
            Output::File(range) => BulkOut::File(range),
            Output::Descriptor(descriptor) => BulkOut::Descriptor(descriptor),
        };
        Ok(Response { answer, bulk })
    }
}

/// What the operation is told is answered to nobody.
fn broke_off(broken: &mut Option<io::Error>, error: io::Error) -> Status {
    *broken = Some(error);
    Status::Io
}
