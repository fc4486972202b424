//! A content on its way home: how much of it has come, and where its bytes are. Checks nothing.

use xxhash_rust::xxh3::Xxh3;

use crate::message::ContentDescription;
use crate::source::NewFile;

/// A content that comes.
pub(crate) struct Arrival {
    pub(crate) description: ContentDescription,
    pub(crate) bytes: Bytes,
    pub(crate) checksums: Vec<u64>,
    /// Wrong pieces since the last right one.
    pub(crate) wrong: u32,
}

/// Where its bytes are.
pub(crate) enum Bytes {
    /// Of small files, one behind the other.
    Memory(Vec<u8>),
    /// Of a large file, with the hash of what is written.
    File(Box<dyn NewFile>, Box<Xxh3>),
}

impl Arrival {
    pub(crate) fn new(description: ContentDescription, file: Option<Box<dyn NewFile>>) -> Self {
        let bytes = match file {
            Some(file) => Bytes::File(file, Box::new(Xxh3::new())),
            None => Bytes::Memory(Vec::with_capacity(description.bytes() as usize)),
        };
        Self { description, bytes, checksums: Vec::new(), wrong: 0 }
    }

    pub(crate) fn put(&mut self, index: u32, piece: &[u8]) -> std::io::Result<()> {
        match &mut self.bytes {
            Bytes::Memory(bytes) => bytes.extend_from_slice(piece),
            Bytes::File(file, hash) => {
                file.write_at(piece, self.description.offset_of(index))?;
                hash.update(piece);
            }
        }
        Ok(())
    }
}
