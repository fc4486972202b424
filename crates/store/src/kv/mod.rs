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
mod history;
mod overlay;
mod record;
mod recovery;
pub(crate) mod reliance;
mod rotation;
mod scan;
mod settling;
pub(crate) mod space;
mod value_cache;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use azekura_platform::{Platform, SharedPlatform};
use azekura_proto::TargetId;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use self::batch::Batch;
use self::change::{Change, Value};
use self::database::{Database, Marker};
use self::engine::{Engine, KV_NAME};
use self::front::{Appended, Front};
use self::history::{TAKEN_BACK_KEY, taken_back};
use self::overlay::{Pending, newest_changes};
use self::record::Changes;
use self::recovery::recover;
use self::reliance::Witnesses;
use self::rotation::Rotation;
use self::space::{Space, Tree, with_stored_key};
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
    /// Commits were taken back, and whoever uses the store knows of them: it has to be opened anew.
    RolledBack,
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
    /// Who makes durable what commits rely on.
    witnesses: OnceLock<Weak<dyn Witnesses>>,
    /// Held while these are asked.
    settling: Mutex<()>,
    cache: ValueCache,
    gauge: Arc<FreeSpace>,
    rotation: Rotation,
    /// How often commits had been taken back when it was opened.
    taken_back: u64,
}

impl KeyValues {
    /// Opens the key-values of the target in `target`.
    pub(crate) fn open(
        environment: &Environment,
        (id, target): (TargetId, Arc<dyn Directory>),
        sizes: KvSizes,
        gauge: Arc<FreeSpace>,
    ) -> Result<Self, StoreError> {
        let dir = target.path().join(KV_NAME);
        let platform = Arc::clone(&environment.platform);
        let engine = environment.engine;
        let live = engine.open(&*target, sizes.block_cache_bytes)?;
        let epoch = draw_epoch(&*platform, &dir)?;
        let front = recover(id, &target, &*live, epoch, Arc::clone(&gauge))?;
        let taken_back = taken_back(live.get(Tree::Passing, TAKEN_BACK_KEY)?);
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
            witnesses: OnceLock::new(),
            settling: Mutex::new(()),
            gauge,
            rotation,
            taken_back,
        })
    }

    /// How often commits had been taken back when it was opened. It is opened anew after each time.
    pub(crate) fn taken_back(&self) -> u64 {
        self.taken_back
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
        self.get_unless(space, key, || false)
    }

    /// The same; the database is not looked through if `is_absent` knows that it has no such key.
    pub(crate) fn get_unless(
        &self,
        space: Space,
        key: &[u8],
        is_absent: impl FnOnce() -> bool,
    ) -> Result<Option<Value>, StoreError> {
        with_stored_key(space, key, |full| {
            // First: what leaves the overlay is in the database and in the cache by then.
            if self.front.overlay.holds(space) {
                match self.front.overlay.lookup(full) {
                    Known::Value(value) => return Ok(Some(value)),
                    Known::Absent => return Ok(None),
                    Known::Nothing => {}
                }
            }
            if space.is_cached() {
                match self.cache.lookup(full) {
                    Known::Value(value) => return Ok(Some(value)),
                    Known::Absent => return Ok(None),
                    Known::Nothing => {}
                }
            }
            if is_absent() {
                return Ok(None);
            }
            let miss = space.is_cached().then(|| self.cache.begin_read(full));
            let value = self.get_stored(space, full)?;
            if let Some(miss) = miss {
                self.cache.finish_read(&miss, full, value.as_ref());
            }
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
                    self.make_room()?;
                }
            }
        }
    }

    fn make_room(&self) -> Result<(), StoreError> {
        let applying = self.front.applying.lock();
        let has_applied = self.apply_oldest()?;
        self.forget_applied()?;
        if has_applied {
            return Ok(());
        }
        drop(applying);
        self.settle()
    }

    /// Commits a batch that cannot go through the front journal, after everything before it.
    #[cold]
    fn commit_straight(&self, changes: &Changes) -> Result<(), StoreError> {
        loop {
            self.drain()?;
            self.settle()?;
            let _applying = self.front.applying.lock();
            self.refuse_unless_good()?;
            self.throttle();
            let mut log = self.front.log();
            loop {
                if log.must_be_kept(self.front.synced()) {
                    self.sync_database()?;
                    self.front.set_synced(log.marker().seq);
                }
                self.front.forget(&mut log);
                let group = log.group(&self.front.reliance);
                let Some(marker) = self.apply(&group)? else { break };
                self.front.set_applied(&mut log, marker);
            }
            if log.has_pending() || !self.front.reliance.is_settled() {
                // There is more to rely on since.
                continue;
            }
            let marker = log.break_off();
            self.commit_changes(newest_changes(&[changes]), marker)?;
            log.follow_on();
            self.front.set_applied(&mut log, marker);
            return Ok(());
        }
    }

    /// Commits a batch durably and past everything that is pending. It is for records that are always
    /// committed this way, of a target whose other commits may have to be taken back.
    pub(crate) fn commit_aside(&self, batch: Batch) -> Result<(), StoreError> {
        let changes = batch
            .into_changes()
            .map_err(|detail| StoreError::argument(&self.dir, "store a key-value", detail))?;
        let applying = self.front.applying.lock();
        self.refuse_unless_good()?;
        let marker = self.front.log().marker();
        self.commit_changes(newest_changes(&[&changes]), marker)?;
        drop(applying);
        self.sync_database()
    }

    /// Brings everything that was committed before the call to the database.
    pub(crate) fn drain(&self) -> Result<(), StoreError> {
        let goal = self.front.log().last_seq();
        loop {
            self.drain_settled(goal)?;
            // Numbers that were lost are never applied, and then there is nothing left.
            if self.front.applied() >= goal || !self.front.has_pending() {
                return Ok(());
            }
            self.settle()?;
        }
    }

    /// The same up to a batch that relies on what is not known to be durable.
    fn drain_settled(&self, goal: u64) -> Result<(), StoreError> {
        while self.front.applied() < goal {
            let _applying = self.front.applying.lock();
            if self.front.applied() < goal && !self.apply_oldest()? {
                break;
            }
            // Else it stays in the journal: whoever needs the room is told.
            let _ = self.forget_applied();
        }
        Ok(())
    }

    /// The same, asking nobody: for the end of the store.
    pub(crate) fn drain_alone(&self) -> Result<(), StoreError> {
        let goal = self.front.log().last_seq();
        self.drain_settled(goal)
    }

    /// As [`KeyValues::drain`], after a try to let the database go on if it gave up. What waits for
    /// other targets is left, unless they are to be asked.
    pub(crate) fn apply_pending(&self, asks_others: bool) -> Result<(), StoreError> {
        if self.health.load(Ordering::Acquire) != Health::Good as u8 {
            self.revive()?;
        }
        if !asks_others {
            self.drain_alone()?;
            return self.forget_applied();
        }
        self.drain()?;
        self.forget_applied()?;
        // Also what no commit relies on yet: what it leads to should not grow.
        self.settle()
    }

    /// Brings the oldest pending batches to the database; false if there are none that may go there.
    /// The caller holds `applying`.
    fn apply_oldest(&self) -> Result<bool, StoreError> {
        let group = self.front.log().group(&self.front.reliance);
        if group.is_empty() {
            return Ok(false);
        }
        self.throttle();
        let applied = self.apply(&group)?;
        if let Some(marker) = applied {
            self.front.set_applied(&mut self.front.log(), marker);
        }
        Ok(applied.is_some())
    }

    /// Gives up the place in the journal of what the database has. Where others rely on it as durable, the
    /// database has to make it so first: if that fails, the journal is all that there is of it.
    fn forget_applied(&self) -> Result<(), StoreError> {
        let mut log = self.front.log();
        while log.must_be_kept(self.front.synced()) {
            let applied = log.marker().seq;
            drop(log);
            self.sync_database()?;
            self.front.set_synced(applied);
            log = self.front.log();
        }
        self.front.forget(&mut log);
        Ok(())
    }

    /// Gives what the database says of the journal then; `None` if there is nothing to apply.
    fn apply(&self, group: &[Arc<Pending>]) -> Result<Option<Marker>, StoreError> {
        let Some(last) = group.last() else { return Ok(None) };
        assert!(last.seq > self.front.applied(), "a batch goes to the database twice");
        self.refuse_unless_good()?;
        let changes: Vec<_> = group.iter().map(|batch| &batch.changes).collect();
        let marker = Marker { epoch: last.epoch, seq: last.seq, end: last.end };
        self.commit_changes(newest_changes(&changes), marker)?;
        self.front.overlay.remove(group);
        Ok(Some(marker))
    }

    /// What a caller is told while the database has given up.
    fn refuse_unless_good(&self) -> Result<(), StoreError> {
        let health = self.health.load(Ordering::Acquire);
        if health == Health::Good as u8 {
            Ok(())
        } else if health == Health::Full as u8 {
            Err(StoreError::NoSpace { path: self.dir.clone() })
        } else if health == Health::RolledBack as u8 {
            Err(StoreError::RolledBack { path: self.dir.clone() })
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
        let health = self.health.load(Ordering::Acquire);
        if health == Health::Broken as u8 || health == Health::RolledBack as u8 {
            return self.refuse_unless_good();
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

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.refuse_unless_good()?;
        self.drain()?;
        // Commits that were taken back meanwhile are pending no more, and were not applied either. Whoever takes
        // them back says so before they are dropped.
        self.refuse_unless_good()?;
        let applied = self.front.applied();
        self.sync_database()?;
        self.front.set_synced(applied);
        Ok(())
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

/// A number for an epoch: none of this target may come twice.
fn draw_epoch(platform: &dyn Platform, dir: &Path) -> Result<u64, StoreError> {
    let mut epoch = [0; 8];
    platform
        .fill_random(&mut epoch)
        .map_err(|error| StoreError::system(dir, "draw a number for", error))?;
    Ok(u64::from_le_bytes(epoch))
}
