//! Pieces in memory. Owns the buffers, which are used again and again since fresh memory costs more than
//! what is done with it; checksums; and the digest of a content. Knows nothing of files or sockets.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Buffers that wait to be used again, at most.
const IDLE_MAX: usize = 64;

/// Buffers of one process.
#[derive(Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A buffer of this length; what is in it is of no meaning.
    pub(crate) fn take(&self, bytes: usize) -> Buffer {
        let mut memory = self.0.lock().pop().unwrap_or_default();
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
        Buffer { memory, bytes, home: self.clone() }
    }
}

/// Bytes of a piece. Its memory goes back to where it came from.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    bytes: usize,
    home: Buffers,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut idle = self.home.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.memory));
        }
    }
}

/// The checksum of a piece.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The digest of a content: over the checksums of all its pieces.
pub(crate) fn digest(checksums: &[u64]) -> u64 {
    let mut hash = Xxh3::new();
    for checksum in checksums {
        hash.update(&checksum.to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_that_was_asked_for_whatever_it_was_before() {
        let buffers = Buffers::default();
        for bytes in [10, 100, 3, 0, 50] {
            assert_eq!(buffers.take(bytes).len(), bytes);
        }
        assert_eq!(buffers.0.lock().len(), 1, "one is used again and again");
    }

    #[test]
    fn the_order_of_pieces_is_part_of_the_digest() {
        assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
        assert_ne!(digest(&[]), digest(&[0]));
    }
}
