//! The store of one target: what the rest of the project sees. Owns the lifetime of its parts: the
//! lock is taken first and released last.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Weak};

use azekura_proto::{Dependences, Oid, PoolId, TargetId};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::disk::{Directory, FileStat};
use crate::environment::Environment;
use crate::error::StoreError;
use crate::free_space::{FreeSpace, SpaceInfo};
use crate::identity::{self, TargetLock};
use crate::kv::background::{Applier, Sealer};
use crate::kv::batch::Batch;
use crate::kv::change::Value;
use crate::kv::engine::KV_NAME;
use crate::kv::reliance::Witnesses;
use crate::kv::space::Space;
use crate::kv::{KeyValues, KvSizes};
use crate::shards::{Boot, DATA_DIRS, DATA_NAME, ShardFile, Shards};

const KV_STRIPES: usize = 64;

/// How much memory and how many descriptors a store takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Bound of the cache of inodes and entries, in bytes.
    pub cache_bytes: u64,
    /// Bound of the cache of the database's blocks, in bytes.
    pub block_cache_bytes: u64,
    /// Bound on shard files kept open beyond those in use.
    pub open_files_max: usize,
}

impl Default for StoreConfig {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self { cache_bytes: 24 * MIB, block_cache_bytes: 8 * MIB, open_files_max: 1024 }
    }
}

/// One target's objects. All methods may be called from any number of threads.
pub struct Store {
    // Dropped in this order: the last commits go to the database while it can still make room.
    applier: Applier,
    _sealer: Sealer,
    kv: Arc<KeyValues>,
    shards: Shards,
    kv_stripes: Box<[Mutex<()>]>,
    dir: Arc<dyn Directory>,
    lossless_run: Option<Boot>,
    _lock: TargetLock,
}

/// Another name for the run of a machine each time that commits were taken back in it.
fn lossless_run(mut boot: Boot, taken_back: u64) -> Boot {
    for (byte, number) in boot.iter_mut().zip(taken_back.to_le_bytes()) {
        *byte ^= number;
    }
    boot
}

impl Store {
    /// Makes `dir` a target of a pool; creates the directory if it is not there. Does nothing if
    /// it is this target already.
    ///
    /// # Errors
    /// [`StoreError::NotATarget`] if the directory holds other files,
    /// [`StoreError::WrongIdentity`] if it is another target.
    pub fn create(
        environment: &Environment,
        dir: &Path,
        pool: PoolId,
        target: TargetId,
    ) -> Result<(), StoreError> {
        let disk = &environment.disk;
        disk.create_dir_all(dir)
            .map_err(|error| StoreError::system(dir, "create the directory", error))?;
        let opened = disk.open_dir(dir).map_err(|error| StoreError::system(dir, "open", error))?;
        let parts = [KV_NAME, DATA_NAME];
        identity::create(&*opened, &*environment.platform, (pool, target), &parts, |dir| {
            Shards::make(dir)?;
            environment.engine.create(dir)
        })?;
        let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
            return Ok(());
        };
        disk.open_dir(parent)
            .and_then(|parent| parent.sync())
            .map_err(|error| StoreError::system(parent, "sync the directory", error))
    }

    /// Opens a target. It stays locked against other processes until the store is dropped.
    pub fn open(
        environment: &Environment,
        dir: &Path,
        pool: PoolId,
        target: TargetId,
        config: &StoreConfig,
    ) -> Result<Self, StoreError> {
        let dir = match environment.disk.open_dir(dir) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => {
                let detail = "there is no such directory; create the target first";
                return Err(StoreError::NotATarget { path: dir.to_path_buf(), detail });
            }
            Err(error) => return Err(StoreError::system(dir, "open", error)),
        };
        identity::check(&*dir, pool, target)?;
        let lock = TargetLock::acquire(&*dir, &*environment.platform)?;
        let gauge = FreeSpace::new(Arc::clone(&dir), Arc::clone(&environment.platform));
        let gauge = Arc::new(gauge);
        let sizes = KvSizes {
            value_cache_bytes: config.cache_bytes,
            block_cache_bytes: config.block_cache_bytes,
        };
        let kv = Arc::new(KeyValues::open(environment, (target, Arc::clone(&dir)), sizes, gauge)?);
        let boot = environment.disk.boot().map(|boot| lossless_run(boot, kv.taken_back()));
        let shards = Shards::open(&*dir, config.open_files_max, &kv, boot, target)?;
        let sealer = Sealer::start(&kv)?;
        Ok(Self {
            applier: Applier::start(&kv)?,
            _sealer: sealer,
            kv,
            shards,
            kv_stripes: (0..KV_STRIPES).map(|_| Mutex::new(())).collect(),
            dir,
            lossless_run: boot,
            _lock: lock,
        })
    }

    /// Names the time in which nothing is lost here of what was committed or written: it ends when the machine is
    /// started anew, and when commits are taken back. `None` if it cannot be known.
    pub fn lossless_run(&self) -> Option<[u8; 16]> {
        self.lossless_run
    }

    /// Does on the caller's thread what is due behind the commits. Nothing, where the store has
    /// threads for that.
    pub fn pass(&self) -> Result<(), StoreError> {
        if self.applier.has_thread() {
            return Ok(());
        }
        self.kv.apply_pending(true)?;
        self.kv.seal_full_trees();
        Ok(())
    }

    /// The value under a key.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.kv.get(space, key)
    }

    /// The same for one who may know that there is none: `is_absent` is asked before that is looked for on the disk,
    /// which takes looking through everything.
    pub fn get_unless(
        &self,
        space: Space,
        key: &[u8],
        is_absent: impl FnOnce() -> bool,
    ) -> Result<Option<Value>, StoreError> {
        self.kv.get_unless(space, key, is_absent)
    }

    /// Makes all changes of a batch, or none. On return they are with the operating system, and
    /// survive the end of this process, but not yet a crash of the machine.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when only the reserve of the disk is left and the batch takes
    /// lasting space.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.kv.commit(batch)
    }

    /// As [`Store::commit`], but durable, and kept also where other commits have to be taken back. A
    /// key that is committed this way is never committed the other way.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn commit_aside(&self, batch: Batch) -> Result<(), StoreError> {
        self.kv.commit_aside(batch)
    }

    /// Who makes commits of other targets durable, on which those of this one rely. To be told once,
    /// before the first [`Store::observe`].
    pub fn set_witnesses(&self, witnesses: Weak<dyn Witnesses>) {
        self.kv.set_witnesses(witnesses);
    }

    /// From now on commits rely on these of other targets: they become durable after them, and are
    /// taken back where one of them is lost. False, and nothing is done, if one of them is a commit that
    /// this target lost itself: whoever speaks of it will hear of that, and take its own back.
    #[must_use]
    pub fn observe(&self, heard: &Dependences) -> bool {
        self.kv.front().observe(heard)
    }

    /// What whoever hears of this target's state relies on.
    pub fn position(&self) -> Dependences {
        self.kv.front().position()
    }

    /// Makes a commit of this target durable, but not what it relies on itself. False if the target
    /// lost it with its power, or took it back.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn hold(&self, epoch: u64, seq: u64) -> Result<bool, StoreError> {
        self.kv.hold(epoch, seq)
    }

    /// Whether commits were taken back, since another target lost what they relied on. Nothing can be
    /// committed any more: the store has to be opened anew, by someone who forgets what it read.
    pub fn is_rolled_back(&self) -> bool {
        self.kv.is_rolled_back()
    }

    /// At most `limit` keys of a space that begin with `prefix` and come after `after`, in order,
    /// with their values. A scan costs time for records removed not long ago, too: who empties a
    /// space from its beginning goes on with `after`, rather than from the beginning.
    pub fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Value)>, StoreError> {
        let mut page = Vec::new();
        if limit == 0 {
            return Ok(page);
        }
        self.scan_visit(space, prefix, after, |key, value| {
            page.push((key.to_vec(), value));
            if page.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(page)
    }

    /// Like [`Store::scan`], but gives each key and value to `visit` until that breaks off.
    pub fn scan_visit(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        visit: impl FnMut(&[u8], Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.kv.scan_visit(space, prefix, after, visit)
    }

    /// Brings every commit before the call to stable storage, and what it relies on. After a failure
    /// of the disk every later call fails too.
    ///
    /// # Errors
    /// Whatever the disk says; [`StoreError::Waits`] if another target does not answer.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.kv.sync()
    }

    /// As [`Store::sync`], before the store is closed: what relies on a target that does not answer is
    /// made durable too, and waits for that target after the next opening.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn sync_at_end(&self) -> Result<(), StoreError> {
        self.kv.sync_at_end()
    }

    /// Brings everything that is on the store's file system to stable storage: the files of all
    /// shards, and of whoever shares it.
    pub fn sync_file_system(&self) -> Result<(), StoreError> {
        let synced = self.dir.sync_file_system();
        synced
            .map_err(|error| StoreError::system(self.dir.path(), "sync the file system of", error))
    }

    /// Names the file system below: stores that share one give the same number. 0 if it cannot be
    /// asked.
    pub fn device(&self) -> u64 {
        self.dir.device().unwrap_or(0)
    }

    /// The file of an object's shard, if it exists.
    pub fn shard(&self, oid: Oid, shard: u16) -> Result<Option<Arc<ShardFile>>, StoreError> {
        self.shards.get((oid, shard))
    }

    /// The file of an object's shard, created empty if it does not exist.
    pub fn shard_create(&self, oid: Oid, shard: u16) -> Result<Arc<ShardFile>, StoreError> {
        self.shards.create((oid, shard))
    }

    /// Tells the store that the object was just born and has no data: asking for its shard 0 then
    /// costs no system call. Must come before anybody else knows the object.
    pub fn shard_is_new(&self, oid: Oid) {
        self.shards.note_new((oid, 0));
    }

    /// Length, space and times of an object's shard, if it exists. Does not open the file.
    pub fn shard_stat(&self, oid: Oid, shard: u16) -> Result<Option<FileStat>, StoreError> {
        self.shards.stat((oid, shard))
    }

    /// Removes an object's shard; false if there was none. Who still has the file keeps the
    /// nameless one; lookups from now on find nothing, or what is created anew.
    pub fn shard_remove(&self, oid: Oid, shard: u16) -> Result<bool, StoreError> {
        self.shards.remove((oid, shard), true)
    }

    /// As [`Store::shard_remove`], of an object of which it is durably known that it is gone: nobody
    /// will ever ask for its data.
    pub fn shard_remove_freed(&self, oid: Oid, shard: u16) -> Result<bool, StoreError> {
        self.shards.remove((oid, shard), false)
    }

    /// Puts on record how long the files of shards are that have grown, so that it is known from now on
    /// if one of them is gone or was cut by somebody else. To be called now and then.
    pub fn note_shard_lengths(&self) -> Result<(), StoreError> {
        self.shards.note_lengths()
    }

    /// Looks at up to `limit` shards on record, after `after`, whose object ids begin with `prefix`.
    /// Visits each that has lost data: how long its file must be, and how long it is. Gives the last one
    /// that was looked at, if there may be more.
    pub fn shard_find_lost(
        &self,
        prefix: &[u8],
        after: Option<(Oid, u16)>,
        limit: usize,
        visit: &mut dyn FnMut((Oid, u16), u64, u64),
    ) -> Result<Option<(Oid, u16)>, StoreError> {
        self.shards.find_lost(prefix, after, limit, visit)
    }

    /// Number of directories that hold the shards' files, for [`Store::shard_list_part`].
    pub const SHARD_PARTS: usize = DATA_DIRS;

    /// Visits the shards' files of one directory, in no order.
    ///
    /// # Errors
    /// If the directory cannot be read; nothing for a part that there is not.
    pub fn shard_list_part(
        &self,
        part: usize,
        visit: &mut dyn FnMut(Oid, u16, FileStat),
    ) -> Result<(), StoreError> {
        if part >= Self::SHARD_PARTS { Ok(()) } else { self.shards.list_dir(part, visit) }
    }

    /// Visits every shard on the target, in no order. Shards created or removed meanwhile may or
    /// may not be among them.
    pub fn shard_list(&self, visit: &mut dyn FnMut(Oid, u16, FileStat)) -> Result<(), StoreError> {
        self.shards.list(visit)
    }

    /// Sizes of the file system below.
    pub fn space(&self) -> Result<SpaceInfo, StoreError> {
        self.kv.gauge().info(self.kv.table_bytes()?)
    }

    pub(crate) fn kv_dir(&self) -> &Path {
        self.kv.dir()
    }

    /// Excludes other updates of the same object while conditions are checked.
    pub(crate) fn kv_stripe(&self, oid: Oid) -> &Mutex<()> {
        &self.kv_stripes[usize::from(oid.to_bytes()[15]) % KV_STRIPES]
    }
}
