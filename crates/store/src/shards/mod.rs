//! The shard files of a target as a set: opening, creating, removing, listing. While a shard
//! exists it is open at most once: lookups, creation and removal of one shard exclude each other, and so
//! does putting its length on record. Whoever takes both has `Lengths::order` before a stripe.

mod file;
mod lengths;
mod names;
mod open_files;
mod path;

use std::sync::Arc;

use azekura_proto::{Oid, TargetId};
use parking_lot::Mutex;
use rustix::io::Errno;

pub use file::{HeldShard, ShardFile};
pub(crate) use path::{DATA_DIRS, DATA_NAME};

pub(crate) use self::lengths::Boot;
use self::lengths::{Lengths, Noted};
use self::names::ShardDir;
use self::open_files::OpenFiles;
use self::path::{ShardKey, dir_index, dir_name, parse_name, relative_path};
use crate::disk::{Access, Directory, FileStat};
use crate::error::StoreError;
use crate::kv::KeyValues;
use crate::kv::batch::Batch;

const STRIPES: usize = 64;
/// Lengths of so many shards are put on record in one batch.
const NOTED_AT_ONCE: usize = 256;

/// The shard files of one target.
pub(crate) struct Shards {
    dir: Arc<ShardDir>,
    stripes: Box<[Mutex<OpenFiles>]>,
    stripe_files_max: usize,
}

impl Shards {
    /// Makes the empty directories of a new target.
    pub(crate) fn make(target: &dyn Directory) -> Result<(), StoreError> {
        let make = |dir: &dyn Directory, name: &str| {
            dir.create_dir(name)
                .map_err(|error| StoreError::system(&dir.path().join(name), "create", error))
        };
        make(target, DATA_NAME)?;
        let path = target.path().join(DATA_NAME);
        let data =
            target.open_dir(DATA_NAME).map_err(|error| StoreError::system(&path, "open", error))?;
        for index in 0..DATA_DIRS {
            make(&*data, &dir_name(index))?;
        }
        data.sync().map_err(|error| StoreError::system(&path, "sync the directory", error))
    }

    /// Opens the set in the directory `data` of a target.
    pub(crate) fn open(
        target: &dyn Directory,
        open_files_max: usize,
        kv: &Arc<KeyValues>,
        boot: Option<Boot>,
        id: TargetId,
    ) -> Result<Self, StoreError> {
        let path = || target.path().join(DATA_NAME);
        let dir = match target.open_dir(DATA_NAME) {
            Ok(dir) => {
                let lengths = Lengths::new(Arc::clone(kv), boot);
                ShardDir::new(dir, Arc::clone(kv.gauge()), lengths, id)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let detail = "the data directory is missing".to_owned();
                return Err(StoreError::Damaged { path: path(), detail });
            }
            Err(error) => return Err(StoreError::system(&path(), "open", error)),
        };
        Ok(Self {
            dir: Arc::new(dir),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            stripe_files_max: (open_files_max / STRIPES).max(1),
        })
    }

    fn stripe_of((oid, shard): ShardKey) -> usize {
        // The serial number counts up: its low bits spread well.
        (dir_index(oid) ^ usize::from(shard)) % STRIPES
    }

    fn stripe(&self, key: ShardKey) -> &Mutex<OpenFiles> {
        &self.stripes[Self::stripe_of(key)]
    }

    pub(crate) fn get(&self, key: ShardKey) -> Result<Option<Arc<ShardFile>>, StoreError> {
        match self.open_shard(key, Access::Existing)? {
            Ok(file) => Ok(Some(file)),
            // An empty file stands for one that is gone, so that it can be read as lost, and be cut.
            Err(Errno::NOENT) if self.noted_bytes(key)? > 0 => self.create(key).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(StoreError::system(&self.dir.path_of(key), "open", error)),
        }
    }

    /// How long the file of a shard must be.
    fn noted_bytes(&self, key: ShardKey) -> Result<u64, StoreError> {
        if self.stripe(key).lock().absent.contains(&key) {
            return Ok(0);
        }
        Ok(self.dir.lengths.load(key)?.unwrap_or_default().bytes())
    }

    pub(crate) fn create(&self, key: ShardKey) -> Result<Arc<ShardFile>, StoreError> {
        self.open_shard(key, Access::Create)?.map_err(|error| {
            let path = self.dir.path_of(key);
            match error {
                Errno::NOENT => {
                    StoreError::Damaged { path, detail: "its directory is missing".to_owned() }
                }
                error => StoreError::system(&path, "create", error),
            }
        })
    }

    fn open_shard(
        &self,
        key: ShardKey,
        access: Access,
    ) -> Result<rustix::io::Result<Arc<ShardFile>>, StoreError> {
        let mut open_files = self.stripe(key).lock();
        if let Some(file) = open_files.get(key) {
            return Ok(Ok(file));
        }
        if access != Access::Create && open_files.absent.contains(&key) {
            return Ok(Err(Errno::NOENT));
        }
        // What has no file is on record only if its file is lost; that is never taken for absent.
        let is_new = open_files.absent.remove(&key);
        let noted = if is_new { None } else { self.dir.lengths.load(key)? }.unwrap_or_default();
        let path = relative_path(key);
        let open = || self.dir.dir.open(&path, access);
        let file = match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                drop(open_files);
                self.close_unused();
                open_files = self.stripe(key).lock();
                if let Some(file) = open_files.get(key) {
                    return Ok(Ok(file));
                }
                open()
            }
            opened => opened,
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                if error == Errno::NOENT && noted.bytes() == 0 {
                    open_files.note_absent(key);
                }
                return Ok(Err(error));
            }
        };
        if access == Access::Create {
            self.dir.note_created(key.0);
        }
        let names = self.dir.names(key.0);
        let file = Arc::new(ShardFile::new(Arc::clone(&self.dir), key, file, names, noted));
        let evicted = open_files.insert(&file, self.stripe_files_max);
        drop(open_files);
        drop(evicted);
        Ok(Ok(file))
    }

    /// Closes every file that nobody uses, when the process has too many open.
    fn close_unused(&self) {
        for stripe in &self.stripes {
            let mut closing = Vec::new();
            let mut open_files = stripe.lock();
            while let Some(file) = open_files.evict() {
                closing.push(file);
            }
            drop(open_files);
        }
    }

    /// The shard belongs to an object that was just born: there is no file yet.
    pub(crate) fn note_new(&self, key: ShardKey) {
        self.stripe(key).lock().note_absent(key);
    }

    pub(crate) fn stat(&self, key: ShardKey) -> Result<Option<FileStat>, StoreError> {
        let mut open_files = self.stripe(key).lock();
        if let Some(file) = open_files.get(key) {
            drop(open_files);
            return file.stat().map(Some);
        }
        if open_files.absent.contains(&key) {
            return Ok(None);
        }
        let noted = self.dir.lengths.load(key)?.unwrap_or_default().bytes();
        match self.dir.dir.stat(relative_path(key).as_ref()) {
            Ok(stat) => Ok(Some(FileStat { bytes: stat.bytes.max(noted), ..stat })),
            Err(Errno::NOENT) if noted > 0 => {
                Ok(Some(FileStat { bytes: noted, ..FileStat::default() }))
            }
            Err(Errno::NOENT) => {
                open_files.note_absent(key);
                Ok(None)
            }
            Err(error) => Err(StoreError::system(&self.dir.path_of(key), "stat", error)),
        }
    }

    /// `durably`: the object lives on, so that after a loss of power its data must not be missed.
    pub(crate) fn remove(&self, key: ShardKey, durably: bool) -> Result<bool, StoreError> {
        let _shared = self.dir.lengths.order.read();
        let mut open_files = self.stripe(key).lock();
        if !open_files.absent.contains(&key) {
            if let Some(file) = open_files.get(key) {
                file.note_removal();
            }
            self.dir.lengths.forget(key, durably)?;
        }
        let removed = match self.dir.dir.remove(&relative_path(key)) {
            Ok(()) => true,
            Err(Errno::NOENT) => false,
            Err(error) => {
                return Err(StoreError::system(&self.dir.path_of(key), "remove", error));
            }
        };
        let closing = open_files.remove(key);
        self.dir.forget_failure(key);
        drop(open_files);
        // The last close of a large file takes its time, so it is done without the lock.
        drop(closing);
        Ok(removed)
    }

    /// Puts on record how long those files are that have grown. One of which that fails keeps no other from it.
    pub(crate) fn note_lengths(&self) -> Result<(), StoreError> {
        let mut grown = self.dir.lengths.take_grown();
        if !self.dir.lengths.knows_boot() {
            return Ok(());
        }
        grown.sort_unstable_by_key(|key| Self::stripe_of(*key));
        let mut result = Ok(());
        for keys in grown.chunk_by(|a, b| Self::stripe_of(*a) == Self::stripe_of(*b)) {
            for some in keys.chunks(NOTED_AT_ONCE) {
                if let Err(error) = self.note_some(some) {
                    // For the next time: nobody else lists them once more.
                    for key in some {
                        self.dir.lengths.push_grown(*key);
                    }
                    result = result.and(Err(error));
                }
            }
        }
        result
    }

    /// The shards are of one stripe.
    fn note_some(&self, keys: &[ShardKey]) -> Result<(), StoreError> {
        let lengths = &self.dir.lengths;
        let _alone = lengths.order.write();
        let Some(first) = keys.first() else { return Ok(()) };
        let mut open_files = self.stripe(*first).lock();
        let mut batch = Batch::new();
        for &key in keys {
            if let Some(file) = open_files.get(key) {
                file.note_written(&mut batch)?;
                continue;
            }
            let Ok(stat) = self.dir.dir.stat(relative_path(key).as_ref()) else { continue };
            let noted = lengths.load(key)?.unwrap_or_default();
            if stat.bytes > noted.bytes() {
                lengths.put(&mut batch, key, Noted { written: stat.bytes, ..noted });
            }
        }
        lengths.commit(batch)
    }

    /// Looks at a page of the shards on record whose object ids begin with `prefix`: visits each of
    /// which something is lost, and gives the last one that was looked at, if there may be more.
    pub(crate) fn find_lost(
        &self,
        prefix: &[u8],
        after: Option<ShardKey>,
        limit: usize,
        visit: &mut dyn FnMut(ShardKey, u64, u64),
    ) -> Result<Option<ShardKey>, StoreError> {
        let page = self.dir.lengths.page(prefix, after, limit)?;
        for &key in &page {
            if let Some((noted, found)) = self.lost_bytes(key)? {
                visit(key, noted, found);
            }
        }
        Ok(page.last().copied().filter(|_| page.len() == limit))
    }

    /// How long the file must be and how long it is, if that is less.
    fn lost_bytes(&self, key: ShardKey) -> Result<Option<(u64, u64)>, StoreError> {
        // Alone: a file that is cut on purpose is lowered on record first.
        let _alone = self.dir.lengths.order.write();
        let noted = self.dir.lengths.load(key)?.unwrap_or_default().bytes();
        let found = match self.dir.dir.stat(relative_path(key).as_ref()) {
            Ok(stat) => stat.bytes,
            Err(Errno::NOENT) => 0,
            Err(error) => return Err(StoreError::system(&self.dir.path_of(key), "stat", error)),
        };
        Ok((found < noted).then_some((noted, found)))
    }

    pub(crate) fn list(&self, visit: &mut dyn FnMut(Oid, u16, FileStat)) -> Result<(), StoreError> {
        for index in 0..DATA_DIRS {
            self.list_dir(index, visit)?;
        }
        Ok(())
    }

    pub(crate) fn list_dir(
        &self,
        index: usize,
        visit: &mut dyn FnMut(Oid, u16, FileStat),
    ) -> Result<(), StoreError> {
        let name = dir_name(index);
        let path = self.dir.dir.path().join(&name);
        let failed = |error: Errno| match error {
            Errno::NOENT => StoreError::Damaged {
                path: path.clone(),
                detail: "the directory is missing".to_owned(),
            },
            error => StoreError::system(&path, "list", error),
        };
        let dir = self.dir.dir.open_dir(&name).map_err(failed)?;
        let listed = dir.list(&mut |name| {
            let Some(key) = name.to_str().and_then(|name| parse_name(index, name)) else {
                let path = path.join(name);
                tracing::warn!(path = %path.display(), "a file that no object names; it is left alone");
                return Ok(());
            };
            match dir.stat(name) {
                Ok(stat) => visit(key.0, key.1, stat),
                // Removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        });
        listed.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use azekura_proto::{ContainerId, ObjectClass};

    use super::*;
    use crate::disk::{Disk as _, HostDisk};
    use crate::environment::Environment;
    use crate::free_space::FreeSpace;
    use crate::kv::KvSizes;

    /// The shards of a target that has the data directory 05 alone.
    fn shards(path: &Path, open_files_max: usize) -> Shards {
        std::fs::create_dir_all(path.join("data/05")).unwrap();
        let target = HostDisk.open_dir(path).unwrap();
        let environment = Environment::system();
        environment.engine.create(&*target).unwrap();
        let gauge = FreeSpace::new(Arc::clone(&target), azekura_platform::system());
        let sizes = KvSizes { value_cache_bytes: 1 << 20, block_cache_bytes: 1 << 20 };
        let kv = KeyValues::open(
            &environment,
            (TargetId(0), Arc::clone(&target)),
            sizes,
            Arc::new(gauge),
        )
        .unwrap();
        Shards::open(&*target, open_files_max, &Arc::new(kv), None, TargetId(0)).unwrap()
    }

    #[test]
    fn a_failed_sync_is_never_retried_into_success() {
        let dir = tempfile::tempdir().unwrap();
        let shards = shards(dir.path(), 1);
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
        let file = shards.create((oid, 0)).unwrap();
        file.sync(false).unwrap();
        shards.dir.set_failed((oid, 0));
        assert!(file.sync(false).is_err());
        drop(file);
        shards.close_unused();
        assert!(shards.get((oid, 0)).unwrap().unwrap().sync(true).is_err());
        shards.create((oid, 1)).unwrap().sync(true).unwrap();
        // What was lost went with the shard.
        shards.remove((oid, 0), false).unwrap();
        shards.create((oid, 0)).unwrap().sync(true).unwrap();
    }

    #[test]
    fn the_name_of_a_new_file_is_synced_with_its_first_sync() {
        let dir = tempfile::tempdir().unwrap();
        let shards = shards(dir.path(), 9);
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
        let synced = || shards.dir.synced(oid);
        for shard in 0..3 {
            let before = synced();
            let file = shards.create((oid, shard)).unwrap();
            file.sync(true).unwrap();
            assert!(synced() > before);
            let after = synced();
            file.sync(true).unwrap();
            assert_eq!(synced(), after);
        }
    }
}
