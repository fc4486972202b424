//! Memory that two processes share. Owns that it never shrinks, whoever else has its descriptor: a word that is not
//! there any more would end the process that looks at it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::sys::MappedWords;

/// Words that another process may read and write as well.
#[derive(Debug)]
pub struct SharedMemory {
    mapped: MappedWords,
}

impl SharedMemory {
    /// Makes so many words, all 0, and the descriptor by which another process gets at them.
    ///
    /// # Errors
    /// If the process has no descriptors or no memory left.
    pub fn create(count: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("azekura", flags)?;
        rustix::fs::ftruncate(&file, bytes_of(count))?;
        rustix::fs::fcntl_add_seals(&file, Self::SEALS)?;
        Ok((Self { mapped: MappedWords::map(file.as_fd(), count)? }, file))
    }

    /// The words that another process has made.
    ///
    /// # Errors
    /// If the descriptor is of anything else, or of another number of words.
    pub fn open(file: impl AsFd, count: usize) -> io::Result<Self> {
        let is_sealed =
            rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(Self::SEALS));
        let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if !is_sealed || bytes != bytes_of(count) {
            let reason = "what was passed is no memory to be shared";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(Self { mapped: MappedWords::map(file.as_fd(), count)? })
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }

    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
}

fn bytes_of(count: usize) -> u64 {
    (count * size_of::<AtomicU64>()) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let (one, file) = SharedMemory::create(1000).unwrap();
        let other = SharedMemory::open(&file, 1000).unwrap();
        drop(file);
        assert_eq!(other.words().len(), 1000);
        assert_eq!(other.words()[999].load(Ordering::Relaxed), 0);
        one.words()[999].store(7, Ordering::Relaxed);
        assert_eq!(other.words()[999].load(Ordering::Relaxed), 7);
        drop(one);
        assert_eq!(other.words()[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_could_shrink_or_has_another_size_is_refused() {
        let (_, file) = SharedMemory::create(1000).unwrap();
        assert!(
            SharedMemory::open(&file, 999).is_err() && SharedMemory::open(&file, 1001).is_err()
        );
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "nobody makes it smaller");
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&loose, bytes_of(1000)).unwrap();
        assert!(SharedMemory::open(&loose, 1000).is_err());
        assert!(SharedMemory::open(std::io::stdin(), 1000).is_err());
    }
}
