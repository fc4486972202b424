//! The key-values of a target: one database with two trees, the front and the value cache before
//! it, and the guard that keeps it from a full disk. Owns the database and everything below `kv/`.
//! It never gives a meaning to a key or a value.

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{CompressionPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{
    AbstractTree as _, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch,
    PersistMode,
};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};

use crate::batch::{Batch, Change, Space, Tree, Value, stored_key, with_stored_key};
use crate::error::StoreError;
use crate::free_space::{Draw, FreeSpace};
use crate::front::{Appended, Front, Marker};
use crate::journal_sync::{JournalSync, journal_number};
use crate::overlay::{Pending, newest_changes};
use crate::record::Changes;
use crate::recovery::{MARKER_KEY, recover};
use crate::rotation::Rotation;
use crate::value_cache::{Known, ValueCache};

const LASTING_NAME: &str = "lasting";
const PASSING_NAME: &str = "passing";
/// Tables stay small so that merging them never takes much room on the disk.
const TABLE_BYTES: u64 = 16 * 1024 * 1024;
/// The smallest bound that the database takes.
const JOURNALS_BYTES_MAX: u64 = 64 * 1024 * 1024;
const OPEN_TABLES_MAX: usize = 64;
const REOPEN_WAIT: Duration = Duration::from_millis(500);

/// An open database.
pub(crate) struct Live {
    db: Database,
    lasting: Keyspace,
    passing: Keyspace,
}

impl Live {
    pub(crate) fn tree(&self, tree: Tree) -> &Keyspace {
        match tree {
            Tree::Lasting => &self.lasting,
            Tree::Passing => &self.passing,
        }
    }

    /// Whether the database has given up after an error.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.db.persist(PersistMode::Buffer).is_err()
    }

    /// Bytes of the tables of both trees.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.lasting.disk_space() + self.passing.disk_space()
    }
}

/// Whether the database takes writes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Health {
    Good,
    /// It gave up because the disk was full, and is opened anew when there is room again. What
    /// was committed and is not in it stays in the front.
    Full,
    /// It gave up for another reason, for good.
    Broken,
}

/// Sizes of the caches, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct KvSizes {
    pub(crate) value_cache_bytes: u64,
    pub(crate) block_cache_bytes: u64,
}

/// The key-values of one target.
pub(crate) struct KeyValues {
    dir: PathBuf,
    sizes: KvSizes,
    /// Empty only while the database is opened anew, or after that failed.
    live: RwLock<Option<Live>>,
    health: AtomicU8,
    front: Front,
    cache: ValueCache,
    gauge: Arc<FreeSpace>,
    journal: JournalSync,
    pub(crate) rotation: Rotation,
}

impl KeyValues {
    /// Makes an empty database in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<(), StoreError> {
        let sizes = KvSizes { value_cache_bytes: 0, block_cache_bytes: 1024 * 1024 };
        let failed = |error| StoreError::database(dir, "create the key-values", error);
        let live = open_database(dir, sizes).map_err(failed)?;
        live.db.persist(PersistMode::SyncAll).map_err(failed)
    }

    /// Opens the database in `dir`.
    pub(crate) fn open(
        dir: PathBuf,
        front_path: PathBuf,
        sizes: KvSizes,
        gauge: Arc<FreeSpace>,
    ) -> Result<Self, StoreError> {
        let live = open_existing(&dir, sizes)?;
        let front = recover(&dir, &live, front_path, Arc::clone(&gauge))?;
        let rotation = Rotation::new();
        for tree in [Tree::Lasting, Tree::Passing] {
            rotation.set_pending(tree, live.tree(tree).tree.active_memtable().size());
        }
        gauge.set_table_bytes(live.table_bytes());
        Ok(Self {
            cache: ValueCache::new(sizes.value_cache_bytes),
            journal: JournalSync::new(dir.clone()),
            dir,
            sizes,
            live: RwLock::new(Some(live)),
            health: AtomicU8::new(Health::Good as u8),
            front,
            gauge,
            rotation,
        })
    }

    pub(crate) fn front(&self) -> &Front {
        &self.front
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn gauge(&self) -> &FreeSpace {
        &self.gauge
    }

    pub(crate) fn live(&self) -> Result<MappedRwLockReadGuard<'_, Live>, StoreError> {
        // Recursive, since a visitor of a scan may read or write as well.
        RwLockReadGuard::try_map(self.live.read_recursive(), Option::as_ref)
            .map_err(|_| StoreError::database(&self.dir, "read or write", fjall::Error::Poisoned))
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        with_stored_key(space, key, |full| {
            // First: what leaves the overlay is in the database and in the cache by then.
            if self.front.overlay.holds(space) {
                match self.front.overlay.lookup(full) {
                    Known::Value(value) => return Ok(Some(value)),
                    Known::Absent => return Ok(None),
                    Known::Nothing => {}
                }
            }
            if !space.is_cached() {
                return self.get_stored(space, full);
            }
            match self.cache.lookup(full) {
                Known::Value(value) => return Ok(Some(value)),
                Known::Absent => return Ok(None),
                Known::Nothing => {}
            }
            let miss = self.cache.begin_read(full);
            let value = self.get_stored(space, full)?;
            self.cache.finish_read(&miss, full, value.as_ref());
            Ok(value)
        })
    }

    fn get_stored(&self, space: Space, full: &[u8]) -> Result<Option<Value>, StoreError> {
        let live = self.live()?;
        live.tree(space.tree())
            .get(full)
            .map_err(|error| StoreError::database(&self.dir, "read a key-value", error))
    }

    pub(crate) fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let draw = if batch.may_use_reserve() { Draw::Passing } else { Draw::Growth };
        let bytes = batch.bytes();
        let mut changes = batch
            .into_changes()
            .map_err(|detail| StoreError::argument(&self.dir, "store a key-value", detail))?;
        self.gauge.draw(bytes, draw)?;
        if self.health.load(Ordering::Acquire) != Health::Good as u8 {
            self.revive()?;
        }
        loop {
            match self.front.append(changes) {
                Appended::Done => return Ok(()),
                Appended::Straight(back) => return self.commit_straight(&back),
                Appended::Full(back) => {
                    changes = back;
                    let _applying = self.front.applying.lock();
                    self.apply_oldest()?;
                }
            }
        }
    }

    /// Commits a batch that cannot go through the front journal, after everything before it.
    #[cold]
    fn commit_straight(&self, changes: &Changes) -> Result<(), StoreError> {
        let _applying = self.front.applying.lock();
        self.apply_oldest()?;
        self.throttle();
        let mut log = self.front.log();
        loop {
            let group = log.group();
            if group.is_empty() {
                break;
            }
            self.apply(&group)?;
            self.front.forget(&mut log, &group);
        }
        let (seq, end) = log.break_off();
        let marker = Marker { epoch: self.front.epoch, seq, end };
        self.commit_changes(newest_changes(&[changes]), marker)?;
        log.follow_on();
        self.front.set_applied(seq);
        Ok(())
    }

    /// Brings everything that was committed before the call to the database.
    pub(crate) fn drain(&self) -> Result<(), StoreError> {
        let goal = self.front.last_seq();
        while self.front.applied() < goal {
            let _applying = self.front.applying.lock();
            // Numbers that were lost are never applied, and then there is nothing left.
            if self.front.applied() < goal && !self.apply_oldest()? {
                break;
            }
        }
        Ok(())
    }

    /// As [`KeyValues::drain`], after a try to let the database go on if it gave up.
    pub(crate) fn apply_pending(&self) -> Result<(), StoreError> {
        if self.health.load(Ordering::Acquire) != Health::Good as u8 {
            self.revive()?;
        }
        self.drain()
    }

    /// Brings the oldest pending batches to the database; false if there are none. The caller
    /// holds `applying`.
    fn apply_oldest(&self) -> Result<bool, StoreError> {
        let group = self.front.log().group();
        if group.is_empty() {
            return Ok(false);
        }
        self.throttle();
        self.apply(&group)?;
        self.front.forget(&mut self.front.log(), &group);
        Ok(true)
    }

    fn apply(&self, group: &[Arc<Pending>]) -> Result<(), StoreError> {
        let Some(last) = group.last() else { return Ok(()) };
        self.refuse_unless_good()?;
        let changes: Vec<_> = group.iter().map(|batch| &batch.changes).collect();
        let marker = Marker { epoch: self.front.epoch, seq: last.seq, end: last.end };
        self.commit_changes(newest_changes(&changes), marker)?;
        self.front.overlay.remove(group);
        Ok(())
    }

    /// What a caller is told while the database has given up.
    fn refuse_unless_good(&self) -> Result<(), StoreError> {
        let health = self.health.load(Ordering::Acquire);
        if health == Health::Good as u8 {
            Ok(())
        } else if health == Health::Full as u8 {
            Err(StoreError::NoSpace { path: self.dir.clone() })
        } else {
            Err(StoreError::database(&self.dir, "commit", fjall::Error::Poisoned))
        }
    }

    fn throttle(&self) {
        self.rotation.throttle(|| self.live().map_or(true, |live| live.is_poisoned()));
    }

    fn commit_changes(&self, changes: Vec<Change>, marker: Marker) -> Result<(), StoreError> {
        let mut bytes = [0u64; 2];
        for change in &changes {
            bytes[change.space.tree() as usize] += change.bytes();
        }
        let writing = self.cache.begin_write(&changes);
        let result = self.live().map(|live| commit_to(&live, changes, marker));
        self.cache.finish_write(writing, matches!(result, Ok(Ok(()))));
        result?.map_err(|error| self.give_up(error))?;
        self.rotation.add(bytes);
        Ok(())
    }

    /// Finds out why the database gave up, and says so.
    #[cold]
    fn give_up(&self, error: fjall::Error) -> StoreError {
        let error = StoreError::database(&self.dir, "commit key-values", error);
        if self.live().is_ok_and(|live| !live.is_poisoned()) {
            return error;
        }
        let torn = matches!(error, StoreError::NoSpace { .. });
        let full = torn || self.gauge.draw(TABLE_BYTES, Draw::Growth).is_err();
        let health = if full && !self.journal.has_failed() { Health::Full } else { Health::Broken };
        tracing::error!(path = %self.dir.display(), %error, full, "key-values stopped");
        self.health.store(health as u8, Ordering::Release);
        if torn && health == Health::Full {
            // Now, while the disk is full: the database keeps the end of the torn batch, would
            // write it when it is closed with space to do so, and the batch that failed was made.
            if let Err(error) = self.reopen() {
                tracing::error!(%error, "cannot open the key-values anew yet");
            }
        }
        if full { StoreError::NoSpace { path: self.dir.clone() } } else { error }
    }

    /// Lets the database go on after it gave up on a full disk.
    #[cold]
    fn revive(&self) -> Result<(), StoreError> {
        if self.health.load(Ordering::Acquire) == Health::Broken as u8 {
            return Err(StoreError::database(&self.dir, "commit", fjall::Error::Poisoned));
        }
        self.gauge.draw(TABLE_BYTES, Draw::Growth)?;
        self.reopen()
    }

    /// Opens the database anew. Everything that was committed is in the journal, which the
    /// database reads when it opens.
    fn reopen(&self) -> Result<(), StoreError> {
        // A visitor of a scan that commits would wait here for itself.
        let Some(mut live) = self.live.try_write_for(REOPEN_WAIT) else {
            return Err(StoreError::NoSpace { path: self.dir.clone() });
        };
        if self.journal.has_failed() {
            self.health.store(Health::Broken as u8, Ordering::Release);
            return Err(StoreError::database(&self.dir, "commit", fjall::Error::Poisoned));
        }
        if live.as_ref().is_some_and(|live| !live.is_poisoned()) {
            // Another thread came first.
            self.health.store(Health::Good as u8, Ordering::Release);
            return Ok(());
        }
        drop(live.take());
        self.cache.clear();
        let opened = open_existing(&self.dir, self.sizes)?;
        for tree in [Tree::Lasting, Tree::Passing] {
            self.rotation.set_pending(tree, opened.tree(tree).tree.active_memtable().size());
        }
        *live = Some(opened);
        self.health.store(Health::Good as u8, Ordering::Release);
        tracing::info!(path = %self.dir.display(), "key-values opened anew after a full disk");
        Ok(())
    }

    /// Visits keys of a space in order: those that begin with `prefix` and come after `after`.
    /// The visitor is given the key without its space.
    pub(crate) fn scan_visit(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let first = stored_key(space, prefix);
        let end = successor(&first);
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(stored_key(space, after)),
            _ => Bound::Included(first),
        };
        if matches!(&start, Bound::Excluded(key) if *key >= end) {
            return Ok(());
        }
        let failed = |error| StoreError::database(&self.dir, "list key-values", error);
        if self.front.overlay.holds(space) {
            self.drain()?;
        }
        let live = self.live()?;
        for item in live.tree(space.tree()).range((start, Bound::Excluded(end))) {
            let (key, value) = item.into_inner().map_err(failed)?;
            if visit(&key[1..], value).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.drain()?;
        self.sync_database()
    }

    /// Brings what the database has to stable storage.
    pub(crate) fn sync_database(&self) -> Result<(), StoreError> {
        let poisoned = || -> Result<(), StoreError> {
            if self.live()?.is_poisoned() {
                return Err(StoreError::database(&self.dir, "sync", fjall::Error::Poisoned));
            }
            Ok(())
        };
        // Asked on both sides: the database may have met, and thereby used up, the error that the
        // disk reports only once.
        poisoned()?;
        self.journal.sync()?;
        poisoned()
    }

    pub(crate) fn table_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.live()?.table_bytes())
    }
}

/// Commits changes together with what they mean for the front journal.
pub(crate) fn commit_to(live: &Live, changes: Vec<Change>, marker: Marker) -> fjall::Result<()> {
    let mut batch = OwnedWriteBatch::with_capacity(live.db.clone(), changes.len() + 1)
        .durability(Some(PersistMode::Buffer));
    for Change { space, key, value } in changes {
        let tree = live.tree(space.tree());
        match value {
            Some(value) => batch.insert(tree, key, value),
            None => batch.remove(tree, key),
        }
    }
    batch.insert(live.tree(Tree::Passing), MARKER_KEY, marker.to_bytes());
    batch.commit()
}

/// The first key after all that begin with `prefix`. Every space's code is below 0xff.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Opens a database that must be there: the database itself would make a new one instead.
fn open_existing(dir: &Path, sizes: KvSizes) -> Result<Live, StoreError> {
    let damaged = |detail: &str| StoreError::Damaged {
        path: dir.to_path_buf(),
        detail: format!("{detail} of the key-values is missing"),
    };
    let list = |error| StoreError::system(dir, "list the key-values", error);
    let mut has_journal = false;
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
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
    for part in ["version", "keyspaces/0/current", "keyspaces/1/current", "keyspaces/2/current"] {
        if !dir.join(part).try_exists().map_err(list)? {
            return Err(damaged(part));
        }
    }
    open_database(dir, sizes)
        .map_err(|error| StoreError::database(dir, "open the key-values", error))
}

fn open_database(dir: &Path, sizes: KvSizes) -> fjall::Result<Live> {
    let db = Database::builder(dir)
        .cache_size(sizes.block_cache_bytes)
        .journal_compression(CompressionType::None)
        .manual_journal_persist(true)
        .max_journaling_size(JOURNALS_BYTES_MAX)
        .max_cached_files(Some(OPEN_TABLES_MAX))
        .worker_threads(1)
        .open()?;
    let options = || {
        KeyspaceCreateOptions::default()
            // Memtables are rotated by `rotation`, never by the database: its requests can fill
            // the queue of its only worker, which then waits for itself.
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
    };
    let lasting = db.keyspace(LASTING_NAME, options)?;
    let passing = db.keyspace(PASSING_NAME, options)?;
    Ok(Live { db, lasting, passing })
}
