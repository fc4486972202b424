//! The front journal: a file of fixed size in which every small batch is kept from its commit until
//! the database has it. Owns the file, and where in it a record goes. Nothing here syncs: what was
//! written survives the end of the process, and that is what a commit promises. Where another target
//! relies on a record, `KeyValues::hold` syncs it.
//!
//! Records follow each other; one that does not fit before the end begins anew at the beginning.
//! So the record after another one lies either behind it or at the beginning, and its epoch and
//! number tell it from everything older.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::record::{Changes, HEAD_BYTES, sealed_bytes};
use crate::disk::{Access, Directory, File};
use crate::error::StoreError;

/// The name of the file in a target's directory.
const NAME: &str = "kv-front";

/// Size of the file, in bytes. Written once, so that a full disk never stops a record.
const CAPACITY_BYTES: u64 = 4 * 1024 * 1024;
/// Beyond this, records go back to the beginning as soon as there is room: a small part of the
/// file that is written over and over stays in the processor's caches.
const HOT_BYTES: u64 = 1024 * 1024;
/// Longest record, in bytes.
pub(crate) const RECORD_BYTES_MAX: usize = 128 * 1024;

/// The open journal.
pub(crate) struct FrontJournal {
    path: PathBuf,
    dir: Arc<dyn Directory>,
    file: Arc<dyn File>,
    /// What is really there: less only if the disk was full when the file was made.
    capacity_bytes: u64,
    /// Where the last record ends.
    end: u64,
}

impl FrontJournal {
    /// Opens the journal in a target's directory, or makes it unless it must be there already.
    pub(crate) fn open(dir: Arc<dyn Directory>, must_exist: bool) -> Result<Self, StoreError> {
        let path = dir.path().join(NAME);
        let access = if must_exist { Access::Existing } else { Access::Create };
        let file: Arc<dyn File> = match dir.open(NAME, access) {
            Ok(file) => Arc::from(file),
            Err(Errno::NOENT) if must_exist => {
                let detail = "the journal of the last commits is missing".to_owned();
                return Err(StoreError::Damaged { path, detail });
            }
            Err(error) => return Err(StoreError::system(&path, "open", error)),
        };
        let capacity_bytes = match file.stat() {
            Ok(stat) => stat.bytes.min(CAPACITY_BYTES),
            Err(error) => return Err(StoreError::system(&path, "open", error)),
        };
        Ok(Self { path, dir, file, capacity_bytes, end: 0 })
    }

    /// Gives the file its size, if it does not have it. On a full disk it may stay smaller. Unless
    /// the file `is_synced` already, it is afterwards: the database's marker will say that it is
    /// there, and without it the target does not open.
    pub(crate) fn allocate(&mut self, is_synced: bool) -> Result<(), StoreError> {
        const STEP: u64 = 256 * 1024;
        if self.capacity_bytes == CAPACITY_BYTES && is_synced {
            return Ok(());
        }
        let mut written = self.capacity_bytes - self.capacity_bytes % STEP;
        while written < CAPACITY_BYTES {
            match self.file.write_all_at(&vec![0; STEP as usize], written) {
                Ok(()) => written += STEP,
                Err(error) => match StoreError::system(&self.path, "write", error) {
                    StoreError::NoSpace { .. } => break,
                    error => return Err(error),
                },
            }
        }
        self.capacity_bytes = written;
        self.file
            .sync(false)
            .and_then(|()| self.dir.sync())
            .map_err(|error| StoreError::system(&self.path, "sync", error))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the last record ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The next record follows on the one that ends here.
    pub(crate) fn go_on_at(&mut self, end: u64) {
        self.end = end;
    }

    /// The file, for whoever makes durable what was written.
    pub(crate) fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    /// The place of the next record of so many bytes, if there is room; `oldest` is where the
    /// oldest record begins that the database does not have yet.
    pub(crate) fn place(&self, bytes: usize, oldest: Option<u64>) -> Option<u64> {
        let bytes = bytes as u64;
        let behind = self.end;
        let Some(oldest) = oldest else {
            let at = if behind < HOT_BYTES && behind + bytes <= self.capacity_bytes {
                behind
            } else {
                0
            };
            return (at + bytes <= self.capacity_bytes).then_some(at);
        };
        if behind <= oldest {
            return (behind + bytes < oldest).then_some(behind);
        }
        // Early only if much fits there: else it would soon be full.
        let early = behind >= HOT_BYTES && oldest >= HOT_BYTES / 4 * 3 && bytes < oldest;
        if !early && behind + bytes <= self.capacity_bytes {
            return Some(behind);
        }
        (bytes < oldest).then_some(0)
    }

    /// Writes a record at its place.
    pub(crate) fn write(&mut self, at: u64, record: &[u8]) -> rustix::io::Result<()> {
        let end = at + record.len() as u64;
        assert!(end <= self.capacity_bytes, "a record beyond the end of the journal");
        assert!(record.len() <= RECORD_BYTES_MAX, "a record that no recovery reads");
        self.file.write_all_at(record, at)?;
        self.end = end;
        Ok(())
    }

    /// The record of this epoch and number, which lies at `at` or at the beginning, and its end.
    pub(crate) fn read(
        &self,
        at: u64,
        epoch: u64,
        seq: u64,
    ) -> Result<Option<(Changes, u64)>, StoreError> {
        for at in [at, 0] {
            let read = self
                .read_at(at, epoch, seq)
                .map_err(|error| StoreError::system(&self.path, "read", error))?;
            if let Some(changes) = read {
                let end = at + changes.record_bytes() as u64;
                return Ok(Some((changes, end)));
            }
        }
        Ok(None)
    }

    fn read_at(&self, at: u64, epoch: u64, seq: u64) -> rustix::io::Result<Option<Changes>> {
        let mut head = [0; HEAD_BYTES];
        if at.saturating_add(HEAD_BYTES as u64) > self.capacity_bytes
            || self.file.read_full_at(&mut head, at)? < HEAD_BYTES
        {
            return Ok(None);
        }
        let bytes = match sealed_bytes(&head, epoch, seq) {
            Some(bytes)
                if bytes <= RECORD_BYTES_MAX && at + bytes as u64 <= self.capacity_bytes =>
            {
                bytes
            }
            _ => return Ok(None),
        };
        let mut record = vec![0; bytes];
        let read = self.file.read_full_at(&mut record, at)?;
        Ok(if read == bytes { Changes::unseal(record) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs::OpenOptions;

    use super::*;
    use crate::disk::{Disk as _, HostDisk};
    use crate::kv::space::Space;

    fn open(dir: &Path, must_exist: bool) -> Result<FrontJournal, StoreError> {
        FrontJournal::open(HostDisk.open_dir(dir).unwrap(), must_exist)
    }

    fn journal(dir: &Path) -> FrontJournal {
        let mut journal = open(dir, false).unwrap();
        journal.allocate(false).unwrap();
        journal
    }

    /// Records of many sizes, with few and with many of them still wanted: none is overwritten.
    #[test]
    fn no_record_that_is_wanted_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        let mut kept: VecDeque<(u64, u64, u64)> = VecDeque::new();
        let mut refused = 0;
        for seq in 1..6000u64 {
            let mut changes = Changes::default();
            changes.push(Space::Kv, b"k", Some(&vec![1; (seq * 7919 % 9000) as usize])).unwrap();
            let bytes = changes.record_bytes();
            let keep = if seq % 3000 < 1500 { 20 } else { 2000 };
            while kept.len() > keep {
                kept.pop_front();
            }
            let at = loop {
                if let Some(at) = journal.place(bytes, kept.front().map(|first| first.1)) {
                    break at;
                }
                refused += 1;
                kept.pop_front().unwrap();
            };
            let end = at + bytes as u64;
            assert!(end <= CAPACITY_BYTES);
            assert!(kept.iter().all(|(_, first, last)| end <= *first || at >= *last), "{seq}");
            journal.write(at, changes.seal(3, seq)).unwrap();
            kept.push_back((seq, at, end));
        }
        assert!(refused > 0);
        let mut at = kept.front().unwrap().1;
        for (seq, _, end) in &kept {
            let found = journal.read(at, 3, *seq).unwrap().unwrap();
            assert_eq!(found.1, *end);
            at = *end;
        }
        assert!(journal.read(at, 3, 6000).unwrap().is_none());
    }

    #[test]
    fn a_short_file_gets_its_size_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = journal(dir.path()).path().to_path_buf();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1_000_000).unwrap();
        let mut journal = open(dir.path(), true).unwrap();
        assert!(journal.read(999_990, 1, 1).unwrap().is_none());
        journal.allocate(true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), CAPACITY_BYTES);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(open(dir.path(), true), Err(StoreError::Damaged { .. })));
    }
}
