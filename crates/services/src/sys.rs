//! The one thing that no safe crate offers: a file of one's own as bytes in memory.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::Mmap;

/// The bytes of a file that has no name and no other owner, as long as they are needed.
pub(crate) fn bytes_of(file: &File) -> io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the file has no name and this crate alone has it open, so nobody changes or cuts it while it is
    // mapped.
    Ok(Bytes::from_owner(unsafe { Mmap::map(file) }?))
}
