//! The key-values of a target: a database, the front and the value cache before it, and the guard
//! that keeps it from a full disk. Owns the order in which these are asked, and what happens after
//! the database has given up. It never gives a meaning to a key or a value.

pub(crate) mod background;
pub(crate) mod batch;
mod call;
pub(crate) mod change;
mod database;
pub(crate) mod engine;
mod front;
mod front_journal;
mod overlay;
mod record;
mod recovery;
mod rotation;
pub(crate) mod space;
mod value_cache;

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use azekura_platform::{Platform, SharedPlatform};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};

use self::batch::Batch;
use self::change::{Change, Value};
use self::database::{Database, Marker};
use self::engine::{Engine, KV_NAME};
use self::front::{Appended, Front};
use self::overlay::{Pending, newest_changes};
use self::record::Changes;
use self::recovery::recover;
use self::rotation::Rotation;
use self::space::{Space, Tree, stored_key, with_stored_key};
use self::value_cache::{Known, ValueCache};
use crate::disk::Directory;
use crate::environment::Environment;
use crate::error::StoreError;
use crate::free_space::{Draw, FreeSpace};

/// Room that the database needs to go on after a full disk: for one more table, in bytes.
const ROOM_BYTES: u64 = 16 * 1024 * 1024;
const REOPEN_WAIT: Duration = Duration::from_millis(500);
/// Between two looks at a database that cannot take one more sealed memtable.
const SEAL_WAIT: Duration = Duration::from_millis(2);

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
    /// The target's directory.
    target: Arc<dyn Directory>,
    /// Where the database is, for messages.
    dir: PathBuf,
    platform: SharedPlatform,
    engine: Engine,
    sizes: KvSizes,
    /// Empty only while the database is opened anew, or after that failed.
    live: RwLock<Option<Box<dyn Database>>>,
    health: AtomicU8,
    front: Front,
    cache: ValueCache,
    gauge: Arc<FreeSpace>,
    rotation: Rotation,
}

impl KeyValues {
    /// Opens the key-values of the target in `target`.
    pub(crate) fn open(
        environment: &Environment,
        target: Arc<dyn Directory>,
        sizes: KvSizes,
        gauge: Arc<FreeSpace>,
    ) -> Result<Self, StoreError> {
        let dir = target.path().join(KV_NAME);
        let platform = Arc::clone(&environment.platform);
        let engine = environment.engine;
        let live = engine.open(&*target, sizes.block_cache_bytes)?;
        let mut epoch = [0; 8];
        platform
            .fill_random(&mut epoch)
            .map_err(|error| StoreError::system(&dir, "draw a number for", error))?;
        let epoch = u64::from_le_bytes(epoch);
        let front = recover(Arc::clone(&target), &*live, epoch, Arc::clone(&gauge))?;
        let rotation = Rotation::new();
        for tree in Tree::ALL {
            rotation.set_pending(tree, live.memtable_bytes(tree));
        }
        gauge.set_table_bytes(live.table_bytes());
        Ok(Self {
            target,
            dir,
            platform,
            engine,
            cache: ValueCache::new(sizes.value_cache_bytes),
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

    pub(crate) fn rotation(&self) -> &Rotation {
        &self.rotation
    }

    pub(crate) fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn gauge(&self) -> &Arc<FreeSpace> {
        &self.gauge
    }

    fn live(&self) -> Result<MappedRwLockReadGuard<'_, dyn Database>, StoreError> {
        // Recursive, since a visitor of a scan may read or write as well.
        RwLockReadGuard::try_map(self.live.read_recursive(), Option::as_deref)
            .map_err(|_| StoreError::given_up(&self.dir, "read or write"))
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
        self.live()?.get(space.tree(), full)
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
        assert!(last.seq > self.front.applied(), "a batch goes to the database twice");
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
            Err(StoreError::given_up(&self.dir, "commit"))
        }
    }

    /// Waits while the memtables are far too large, unless nobody will make them smaller.
    fn throttle(&self) {
        while self.rotation.is_braking() && self.live().is_ok_and(|live| !live.has_given_up()) {
            if self.platform.is_simulated() {
                self.seal_full_trees();
            } else {
                self.rotation.wait_for_relief(&*self.platform);
            }
        }
    }

    fn commit_changes(&self, changes: Vec<Change>, marker: Marker) -> Result<(), StoreError> {
        let mut bytes = [0u64; 2];
        for change in &changes {
            bytes[change.space.tree() as usize] += change.bytes();
        }
        let writing = self.cache.begin_write(&changes);
        let result = self.live().map(|live| live.commit(changes, marker));
        self.cache.finish_write(writing, matches!(result, Ok(Ok(()))));
        result?.map_err(|error| self.give_up(error))?;
        self.rotation.add(bytes);
        Ok(())
    }

    /// Finds out why the database gave up, and says so.
    #[cold]
    fn give_up(&self, error: StoreError) -> StoreError {
        if self.live().is_ok_and(|live| !live.has_given_up()) {
            return error;
        }
        let torn = matches!(error, StoreError::NoSpace { .. });
        let full = torn || self.gauge.draw(ROOM_BYTES, Draw::Growth).is_err();
        let lost = self.live().is_ok_and(|live| live.has_failed_sync());
        let health = if full && !lost { Health::Full } else { Health::Broken };
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
            return Err(StoreError::given_up(&self.dir, "commit"));
        }
        self.gauge.draw(ROOM_BYTES, Draw::Growth)?;
        self.reopen()
    }

    /// Opens the database anew. Everything that was committed is in the journal, which the
    /// database reads when it opens.
    fn reopen(&self) -> Result<(), StoreError> {
        // A visitor of a scan that commits would wait here for itself.
        let Some(mut live) = self.live.try_write_for(REOPEN_WAIT) else {
            return Err(StoreError::NoSpace { path: self.dir.clone() });
        };
        if live.as_ref().is_some_and(|live| live.has_failed_sync()) {
            self.health.store(Health::Broken as u8, Ordering::Release);
            return Err(StoreError::given_up(&self.dir, "commit"));
        }
        if live.as_ref().is_some_and(|live| !live.has_given_up()) {
            // Another thread came first.
            self.health.store(Health::Good as u8, Ordering::Release);
            return Ok(());
        }
        drop(live.take());
        self.cache.clear();
        let opened = self.engine.open(&*self.target, self.sizes.block_cache_bytes)?;
        for tree in Tree::ALL {
            self.rotation.set_pending(tree, opened.memtable_bytes(tree));
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
        if self.front.overlay.holds(space) {
            self.drain()?;
        }
        let start = start.as_ref().map(Vec::as_slice);
        self.live()?.scan(space.tree(), start, &end, &mut |key, value| visit(&key[1..], value))
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.drain()?;
        self.sync_database()
    }

    /// Brings what the database has to stable storage.
    fn sync_database(&self) -> Result<(), StoreError> {
        self.live()?.sync()
    }

    /// Seals the memtables that are full.
    pub(crate) fn seal_full_trees(&self) {
        for tree in Tree::ALL {
            if self.rotation.is_full(tree) {
                self.seal(tree);
            }
        }
    }

    fn seal(&self, tree: Tree) {
        // The database syncs its journal before it writes a table, and lets no commit pass meanwhile.
        // Done here first, that is short. A failure is kept there and fails every later sync.
        let _ = self.sync_database();
        let Ok(live) = self.live() else { return };
        while !live.may_seal(tree) {
            if self.rotation.is_stopping() || live.has_given_up() {
                return;
            }
            self.platform.sleep(SEAL_WAIT);
        }
        self.rotation.set_pending(tree, 0);
        if let Err(error) = live.seal(tree) {
            tracing::error!(%error, "cannot seal a memtable");
        }
        self.gauge.set_table_bytes(live.table_bytes());
    }

    pub(crate) fn table_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.live()?.table_bytes())
    }
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
