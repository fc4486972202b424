//! How much memory connections take with what has not come completely or is not sent. One bound for all
//! of them: whoever would go beyond loses its connection, and none of the others notices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of all connections.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    taken_bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// What one connection takes of it; given back with the connection.
#[derive(Debug)]
pub(super) struct Share {
    memory: Memory,
    bytes: usize,
}

impl Memory {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { taken_bytes: Arc::default(), bytes_max }
    }

    pub(super) fn share(&self) -> Share {
        Share { memory: self.clone(), bytes: 0 }
    }
}

impl Share {
    /// Takes so much from now on.
    ///
    /// # Errors
    /// If that is more than before, and too much with what others take.
    pub(super) fn set(&mut self, bytes: usize) -> io::Result<()> {
        let taken = &self.memory.taken_bytes;
        if bytes <= self.bytes {
            taken.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            if taken.fetch_add(more, Ordering::Relaxed) + more > self.memory.bytes_max {
                taken.fetch_sub(more, Ordering::Relaxed);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_have_one_bound() {
        let memory = Memory::new(100);
        let (mut one, mut other) = (memory.share(), memory.share());
        one.set(60).unwrap();
        other.set(41).unwrap_err();
        other.set(40).unwrap();
        one.set(10).unwrap();
        other.set(90).unwrap();
        drop(other);
        one.set(100).unwrap();
        assert_eq!(memory.taken_bytes.load(Ordering::Relaxed), 100);
    }
}
