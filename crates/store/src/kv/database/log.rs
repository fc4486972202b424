//! The database of simulations: one log of batches on the store's disk, and its contents in memory. It
//! keeps the same promises as the real one and needs no thread. Owns the form of its log, which is no
//! one's on-disk format. It never gives room back.
//!
//! A record is a checksum (8 bytes), the length of the rest (4), and the changes: tree (1), length of
//! the key (4), length of the value or all ones for a removal (4), key, value. The checksum of a
//! record covers the one before it, so that nothing after a torn record is ever taken for a successor.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Database, MARKER_KEY, Marker};
use crate::disk::{Access, Directory, File};
use crate::error::StoreError;
use crate::kv::change::{Change, Value};
use crate::kv::space::Tree;

const LOG_NAME: &str = "log";
const HEAD_BYTES: usize = 12;
const REMOVED: u32 = u32::MAX;

/// An open database.
pub(crate) struct LogDatabase {
    path: PathBuf,
    log: Mutex<Log>,
}

struct Log {
    file: Box<dyn File>,
    end: u64,
    /// The checksum of the last record.
    last: u64,
    trees: [BTreeMap<Vec<u8>, Value>; 2],
    /// Set by the first write that failed: some of its record may be there.
    has_given_up: bool,
    has_failed_sync: bool,
}

impl LogDatabase {
    pub(crate) fn create(target: &dyn Directory, name: &str) -> Result<(), StoreError> {
        let make = || {
            target.create_dir(name)?;
            let dir = target.open_dir(name)?;
            dir.open(LOG_NAME, Access::Create)?.sync(false)?;
            dir.sync()
        };
        make().map_err(|error| StoreError::system(&target.path().join(name), "create", error))
    }

    pub(crate) fn open(target: &dyn Directory, name: &str) -> Result<Self, StoreError> {
        let path = target.path().join(name);
        let open = || {
            let file = target.open_dir(name)?.open(LOG_NAME, Access::Existing)?;
            let mut bytes = vec![0; file.stat()?.bytes as usize];
            let read = file.read_full_at(&mut bytes, 0)?;
            bytes.truncate(read);
            Ok((file, bytes))
        };
        let (file, bytes) = open().map_err(|error| match error {
            rustix::io::Errno::NOENT => {
                StoreError::Damaged { path: path.clone(), detail: "the log is missing".to_owned() }
            }
            error => StoreError::system(&path, "open", error),
        })?;
        let mut log = Log {
            file,
            end: 0,
            last: 0,
            trees: [BTreeMap::new(), BTreeMap::new()],
            has_given_up: false,
            has_failed_sync: false,
        };
        while let Some((checksum, changes)) = read_record(&bytes[log.end as usize..], log.last) {
            log.replay(changes);
            log.last = checksum;
            log.end += (HEAD_BYTES + changes.len()) as u64;
        }
        if log.end < bytes.len() as u64 {
            // What comes after a torn record is lost for good. Left there, it would follow on that
            // record when a recovery writes the very same one again.
            let cut = log.file.truncate(log.end).and_then(|()| log.file.sync(true));
            cut.map_err(|error| StoreError::system(&path, "cut off a torn end of", error))?;
        }
        Ok(Self { path, log: Mutex::new(log) })
    }

    /// Writes a record, whose head is still empty, and makes its changes.
    fn append(&self, mut record: Vec<u8>) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        self.refuse_if_given_up(&log, "commit key-values")?;
        let checksum = xxh3_64_with_seed(&record[HEAD_BYTES..], log.last);
        let length = (record.len() - HEAD_BYTES) as u32;
        record[..8].copy_from_slice(&checksum.to_le_bytes());
        record[8..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
        if let Err(error) = log.file.write_all_at(&record, log.end) {
            log.has_given_up = true;
            return Err(StoreError::system(&self.path, "commit key-values", error));
        }
        log.replay(&record[HEAD_BYTES..]);
        log.last = checksum;
        log.end += record.len() as u64;
        Ok(())
    }

    fn refuse_if_given_up(&self, log: &Log, what: &'static str) -> Result<(), StoreError> {
        let is_over = log.has_given_up || log.has_failed_sync;
        if is_over { Err(StoreError::given_up(&self.path, what)) } else { Ok(()) }
    }
}

/// The record at the beginning of `bytes`, if it is whole and follows on the one before.
fn read_record(bytes: &[u8], before: u64) -> Option<(u64, &[u8])> {
    let checksum = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize;
    let changes = bytes.get(HEAD_BYTES..HEAD_BYTES + length)?;
    let is_whole = length > 0 && xxh3_64_with_seed(changes, before) == checksum;
    is_whole.then_some((checksum, changes))
}

fn push_change(record: &mut Vec<u8>, tree: Tree, key: &[u8], value: Option<&[u8]>) {
    record.push(tree as u8);
    record.extend_from_slice(&(key.len() as u32).to_le_bytes());
    let value_bytes = value.map_or(REMOVED, |value| value.len() as u32);
    record.extend_from_slice(&value_bytes.to_le_bytes());
    record.extend_from_slice(key);
    record.extend_from_slice(value.unwrap_or_default());
}

impl Log {
    /// Makes the changes of a record that is known to be whole.
    fn replay(&mut self, mut changes: &[u8]) {
        let mut take = |bytes: usize| {
            let (taken, rest) = changes.split_at(bytes);
            changes = rest;
            (taken, rest.is_empty())
        };
        let number = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 4]));
        loop {
            let (head, _) = take(9);
            let tree = &mut self.trees[usize::from(head[0])];
            let (key, mut is_last) = take(number(&head[1..]) as usize);
            match number(&head[5..]) {
                REMOVED => {
                    tree.remove(key);
                }
                bytes => {
                    let (value, last) = take(bytes as usize);
                    is_last = last;
                    tree.insert(key.to_vec(), Value::from(value));
                }
            }
            if is_last {
                return;
            }
        }
    }
}

impl Database for LogDatabase {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.log.lock().trees[tree as usize].get(key).cloned())
    }

    fn scan(
        &self,
        tree: Tree,
        start: Bound<&[u8]>,
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut start = start.map(<[u8]>::to_vec);
        loop {
            let range = (start.as_ref().map(Vec::as_slice), Bound::Excluded(end));
            // The visitor may read and write: it gets each value without the lock.
            let next = self.log.lock().trees[tree as usize]
                .range::<[u8], _>(range)
                .next()
                .map(|(key, value)| (key.clone(), value.clone()));
            let Some((key, value)) = next else { return Ok(()) };
            if visit(&key, value).is_break() {
                return Ok(());
            }
            start = Bound::Excluded(key);
        }
    }

    fn commit(&self, changes: Vec<Change>, marker: Marker) -> Result<(), StoreError> {
        let mut record = vec![0; HEAD_BYTES];
        for Change { space, key, value } in &changes {
            push_change(&mut record, space.tree(), key, value.as_deref());
        }
        push_change(&mut record, Tree::Passing, MARKER_KEY, Some(&marker.to_bytes()));
        self.append(record)
    }

    fn note(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut record = vec![0; HEAD_BYTES];
        push_change(&mut record, Tree::Passing, key, Some(value));
        self.append(record)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        self.refuse_if_given_up(&log, "sync")?;
        log.file.sync(true).map_err(|error| {
            log.has_failed_sync = true;
            StoreError::system(&self.path, "sync the key-values", error)
        })
    }

    fn has_failed_sync(&self) -> bool {
        self.log.lock().has_failed_sync
    }

    fn has_given_up(&self) -> bool {
        self.log.lock().has_given_up
    }

    fn table_bytes(&self) -> u64 {
        self.log.lock().end
    }

    fn memtable_bytes(&self, _: Tree) -> u64 {
        0
    }

    fn may_seal(&self, _: Tree) -> bool {
        true
    }

    fn seal(&self, _: Tree) -> Result<(), StoreError> {
        Ok(())
    }
}
