//! The real database: one fjall database with two trees. Owns its settings and everything below
//! `kv/`. It never gives a meaning to a key or a value.

use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{CompressionPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{
    AbstractTree as _, CompressionType, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch,
    PersistMode,
};

use super::journal_sync::{JournalSync, journal_number};
use super::{Database, MARKER_KEY, Marker};
use crate::error::StoreError;
use crate::kv::change::{Change, Value};
use crate::kv::space::Tree;

const LASTING_NAME: &str = "lasting";
const PASSING_NAME: &str = "passing";
/// Tables stay small so that merging them never takes much room on the disk.
const TABLE_BYTES: u64 = 16 * 1024 * 1024;
/// The smallest bound that the database takes.
const JOURNALS_BYTES_MAX: u64 = 64 * 1024 * 1024;
const OPEN_TABLES_MAX: usize = 64;
/// The database halts commits, without a way out, at four sealed memtables or thirty runs of
/// tables. Sealing waits before that.
const SEALED_MAX: usize = 2;
const RUNS_MAX: usize = 20;

/// An open database.
pub(crate) struct FjallDatabase {
    dir: PathBuf,
    db: fjall::Database,
    lasting: Keyspace,
    passing: Keyspace,
    journal: JournalSync,
}

impl FjallDatabase {
    /// Makes an empty database in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<(), StoreError> {
        const CACHE_BYTES: u64 = 1024 * 1024;
        let failed = |error| failure(dir, "create the key-values", error);
        let made = Self::open_or_create(dir, CACHE_BYTES).map_err(failed)?;
        made.db.persist(PersistMode::SyncAll).map_err(failed)
    }

    /// Opens a database that must be there: fjall itself would make a new one instead.
    pub(crate) fn open(dir: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let damaged = |detail: &str| StoreError::Damaged {
            path: dir.to_path_buf(),
            detail: format!("{detail} of the key-values is missing"),
        };
        let list = |error| StoreError::system(dir, "list the key-values", error);
        let mut has_journal = false;
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("the directory"));
            }
            entries => entries.map_err(list)?,
        };
        for entry in entries {
            let name = entry.map_err(list)?.file_name();
            has_journal |= name.to_str().and_then(journal_number).is_some();
        }
        if !has_journal {
            return Err(damaged("the journal"));
        }
        // The database's own list of trees, and the two trees.
        let trees = ["keyspaces/0/current", "keyspaces/1/current", "keyspaces/2/current"];
        for part in ["version"].into_iter().chain(trees) {
            if !dir.join(part).try_exists().map_err(list)? {
                return Err(damaged(part));
            }
        }
        Self::open_or_create(dir, cache_bytes)
            .map_err(|error| failure(dir, "open the key-values", error))
    }

    fn open_or_create(dir: &Path, cache_bytes: u64) -> fjall::Result<Self> {
        let db = fjall::Database::builder(dir)
            .cache_size(cache_bytes)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .max_journaling_size(JOURNALS_BYTES_MAX)
            .max_cached_files(Some(OPEN_TABLES_MAX))
            .worker_threads(1)
            .open()?;
        let lasting = db.keyspace(LASTING_NAME, tree_options)?;
        let passing = db.keyspace(PASSING_NAME, tree_options)?;
        let dir = dir.to_path_buf();
        Ok(Self { journal: JournalSync::new(dir.clone()), dir, db, lasting, passing })
    }

    fn tree(&self, tree: Tree) -> &Keyspace {
        match tree {
            Tree::Lasting => &self.lasting,
            Tree::Passing => &self.passing,
        }
    }

    fn refuse_if_given_up(&self) -> Result<(), StoreError> {
        if self.has_given_up() { Err(StoreError::given_up(&self.dir, "sync")) } else { Ok(()) }
    }
}

fn tree_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        // Memtables are sealed by this crate's own thread, never by the database: its requests can
        // fill the queue of its only worker, which then waits for itself.
        .max_memtable_size(u64::MAX)
        // Filters and indexes take some six bytes an inode in memory; a lookup then reads one
        // block. The database's levels count from the last one, so policies by level do not
        // tell small trees from large ones.
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .data_block_compression_policy(CompressionPolicy::disabled())
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES)))
}

impl Database for FjallDatabase {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let found = self.tree(tree).get(key);
        found.map_err(|error| failure(&self.dir, "read a key-value", error))
    }

    fn scan(
        &self,
        tree: Tree,
        start: Bound<&[u8]>,
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        for item in self.tree(tree).range::<&[u8], _>((start, Bound::Excluded(end))) {
            let (key, value) =
                item.into_inner().map_err(|error| failure(&self.dir, "list key-values", error))?;
            if visit(&key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, changes: Vec<Change>, marker: Marker) -> Result<(), StoreError> {
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), changes.len() + 1)
            .durability(Some(PersistMode::Buffer));
        for Change { space, key, value } in changes {
            let tree = self.tree(space.tree());
            match value {
                Some(value) => batch.insert(tree, key, value),
                None => batch.remove(tree, key),
            }
        }
        batch.insert(self.tree(Tree::Passing), MARKER_KEY, marker.to_bytes());
        batch.commit().map_err(|error| failure(&self.dir, "commit key-values", error))
    }

    fn note(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 1)
            .durability(Some(PersistMode::Buffer));
        batch.insert(self.tree(Tree::Passing), key, value);
        batch.commit().map_err(|error| failure(&self.dir, "note", error))
    }

    fn sync(&self) -> Result<(), StoreError> {
        // Asked on both sides: the database may have met, and thereby used up, the error that the
        // disk reports only once.
        self.refuse_if_given_up()?;
        self.journal.sync()?;
        self.refuse_if_given_up()
    }

    fn has_failed_sync(&self) -> bool {
        self.journal.has_failed()
    }

    fn has_given_up(&self) -> bool {
        self.db.persist(PersistMode::Buffer).is_err()
    }

    fn table_bytes(&self) -> u64 {
        self.lasting.disk_space() + self.passing.disk_space()
    }

    fn memtable_bytes(&self, tree: Tree) -> u64 {
        self.tree(tree).tree.active_memtable().size()
    }

    fn may_seal(&self, tree: Tree) -> bool {
        let tree = self.tree(tree);
        tree.sealed_memtable_count() < SEALED_MAX && tree.l0_table_count() < RUNS_MAX
    }

    fn seal(&self, tree: Tree) -> Result<(), StoreError> {
        let sealed = self.tree(tree).rotate_memtable();
        sealed.map(|_| ()).map_err(|error| failure(&self.dir, "seal a memtable", error))
    }
}

/// What an error of the database in `dir` means for a caller of the store.
fn failure(dir: &Path, what: &'static str, error: fjall::Error) -> StoreError {
    let damaged = |detail: String| StoreError::Damaged { path: dir.to_path_buf(), detail };
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            match source.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::InvalidData
                | io::ErrorKind::NotFound => damaged(format!("cannot {what}: {source}")),
                _ => StoreError::system(dir, what, source),
            }
        }
        fjall::Error::Poisoned => StoreError::given_up(dir, what),
        fjall::Error::Locked => StoreError::InUse { path: dir.to_path_buf() },
        other => damaged(format!("cannot {what}: {other}")),
    }
}
