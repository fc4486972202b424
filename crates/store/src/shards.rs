//! The shard files of a target as a set: opening, creating, removing, listing. Owns the bounded
//! table of open files, and the record of failed syncs and of names not yet synced. While a shard
//! exists it is open at most once: lookups, creation and removal of one shard exclude each other.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura_proto::Oid;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::free_space::FreeSpace;
use crate::identity::{DATA_DIRS, sync_dir};
use crate::shard_file::{ShardFile, ShardStat};
use crate::shard_path::{ShardKey, dir_index, parse_name, relative_path};

const STRIPES: usize = 64;
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// What all shard files of a target share.
pub(crate) struct ShardDir {
    path: PathBuf,
    fd: OwnedFd,
    pub(crate) gauge: Arc<FreeSpace>,
    /// By data directory: files created so far, and how many of those names are synced. The first
    /// starts at one, since nothing is known of names from before the target was opened.
    created: Box<[AtomicU64]>,
    synced: Box<[AtomicU64]>,
    has_failed: AtomicBool,
    failed: Mutex<HashSet<ShardKey>>,
}

impl ShardDir {
    pub(crate) fn path_of(&self, key: ShardKey) -> PathBuf {
        self.path.join(relative_path(key))
    }

    /// Number of names that have to be synced so that the newest file of the directory is.
    fn names(&self, oid: Oid) -> u64 {
        self.created[dir_index(oid)].load(Ordering::Acquire)
    }

    /// Syncs the directory of `oid` unless its first `names` names are synced already.
    pub(crate) fn sync_names(&self, oid: Oid, names: u64) -> Result<(), StoreError> {
        let index = dir_index(oid);
        if self.synced[index].load(Ordering::Acquire) >= names {
            return Ok(());
        }
        let covered = self.created[index].load(Ordering::Acquire);
        sync_dir(&self.path.join(format!("{index:02x}")))?;
        self.synced[index].fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a sync of the shard has failed since it was created.
    pub(crate) fn has_failed(&self, key: ShardKey) -> bool {
        self.has_failed.load(Ordering::Acquire) && self.failed.lock().contains(&key)
    }

    pub(crate) fn set_failed(&self, key: ShardKey) {
        self.failed.lock().insert(key);
        self.has_failed.store(true, Ordering::Release);
    }

    fn forget_failure(&self, key: ShardKey) {
        if self.has_failed.load(Ordering::Acquire) {
            self.failed.lock().remove(&key);
        }
    }
}

struct Slot {
    file: Arc<ShardFile>,
    used: bool,
}

/// Open files of one stripe, evicted by second chance.
#[derive(Default)]
struct OpenFiles {
    index: HashMap<ShardKey, usize>,
    slots: Vec<Slot>,
    hand: usize,
    /// Shards known to have no file: a file without data costs no system call.
    absent: HashSet<ShardKey>,
}

/// Absences remembered by one stripe. When there are more it starts anew.
const STRIPE_ABSENT_MAX: usize = 2048;

impl OpenFiles {
    fn note_absent(&mut self, key: ShardKey) {
        if self.absent.len() >= STRIPE_ABSENT_MAX {
            self.absent.clear();
        }
        self.absent.insert(key);
    }

    fn get(&mut self, key: ShardKey) -> Option<Arc<ShardFile>> {
        let slot = &mut self.slots[*self.index.get(&key)?];
        slot.used = true;
        Some(Arc::clone(&slot.file))
    }

    fn remove(&mut self, key: ShardKey) -> Option<Arc<ShardFile>> {
        let at = self.index.remove(&key)?;
        let slot = self.slots.swap_remove(at);
        if let Some(moved) = self.slots.get(at) {
            self.index.insert(moved.file.key(), at);
        }
        Some(slot.file)
    }

    /// Adds a file; gives back one that has to go, to be closed without the lock.
    fn insert(&mut self, file: &Arc<ShardFile>, capacity: usize) -> Option<Arc<ShardFile>> {
        let evicted = if self.slots.len() >= capacity { self.evict() } else { None };
        self.index.insert(file.key(), self.slots.len());
        self.slots.push(Slot { file: Arc::clone(file), used: false });
        evicted
    }

    /// Takes out a file that nobody uses. One in use stays, above the bound if need be: opened
    /// a second time, it would be there twice.
    fn evict(&mut self) -> Option<Arc<ShardFile>> {
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if Arc::strong_count(&slot.file) > 1 {
                continue;
            }
            if std::mem::take(&mut slot.used) {
                continue;
            }
            let key = slot.file.key();
            return self.remove(key);
        }
        None
    }
}

/// The shard files of one target.
pub(crate) struct Shards {
    dir: Arc<ShardDir>,
    stripes: Box<[Mutex<OpenFiles>]>,
    stripe_files_max: usize,
}

impl Shards {
    pub(crate) fn open(
        path: PathBuf,
        open_files_max: usize,
        gauge: Arc<FreeSpace>,
    ) -> Result<Self, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(CWD, &path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let detail = "the data directory is missing".to_owned();
                return Err(StoreError::Damaged { path, detail });
            }
            Err(error) => return Err(StoreError::system(&path, "open", error)),
        };
        let dir = ShardDir {
            path,
            fd,
            gauge,
            created: (0..DATA_DIRS).map(|_| AtomicU64::new(1)).collect(),
            synced: (0..DATA_DIRS).map(|_| AtomicU64::new(0)).collect(),
            has_failed: AtomicBool::new(false),
            failed: Mutex::default(),
        };
        Ok(Self {
            dir: Arc::new(dir),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            stripe_files_max: (open_files_max / STRIPES).max(1),
        })
    }

    fn stripe(&self, (oid, shard): ShardKey) -> &Mutex<OpenFiles> {
        // The serial number counts up: its low bits spread well.
        let spread = dir_index(oid) ^ usize::from(shard);
        &self.stripes[spread % STRIPES]
    }

    pub(crate) fn get(&self, key: ShardKey) -> Result<Option<Arc<ShardFile>>, StoreError> {
        match self.open_shard(key, OFlags::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(StoreError::system(&self.dir.path_of(key), "open", error)),
        }
    }

    pub(crate) fn create(&self, key: ShardKey) -> Result<Arc<ShardFile>, StoreError> {
        self.open_shard(key, OFlags::CREATE).map_err(|error| {
            let path = self.dir.path_of(key);
            match error {
                Errno::NOENT => {
                    StoreError::Damaged { path, detail: "its directory is missing".to_owned() }
                }
                error => StoreError::system(&path, "create", error),
            }
        })
    }

    fn open_shard(&self, key: ShardKey, extra: OFlags) -> rustix::io::Result<Arc<ShardFile>> {
        let mut open_files = self.stripe(key).lock();
        if let Some(file) = open_files.get(key) {
            return Ok(file);
        }
        if extra.contains(OFlags::CREATE) {
            open_files.absent.remove(&key);
        } else if open_files.absent.contains(&key) {
            return Err(Errno::NOENT);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | extra;
        let path = relative_path(key);
        let open = || rustix::fs::openat(&self.dir.fd, path.as_str(), flags, FILE_MODE);
        let fd = match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                drop(open_files);
                self.close_unused();
                open_files = self.stripe(key).lock();
                if let Some(file) = open_files.get(key) {
                    return Ok(file);
                }
                open()?
            }
            opened => opened?,
        };
        if extra.contains(OFlags::CREATE) {
            self.dir.created[dir_index(key.0)].fetch_add(1, Ordering::AcqRel);
        }
        let names = self.dir.names(key.0);
        let file = Arc::new(ShardFile::new(Arc::clone(&self.dir), key, fd, names));
        let evicted = open_files.insert(&file, self.stripe_files_max);
        drop(open_files);
        drop(evicted);
        Ok(file)
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

    pub(crate) fn stat(&self, key: ShardKey) -> Result<Option<ShardStat>, StoreError> {
        let mut open_files = self.stripe(key).lock();
        if let Some(file) = open_files.get(key) {
            drop(open_files);
            return file.stat().map(Some);
        }
        if open_files.absent.contains(&key) {
            return Ok(None);
        }
        match rustix::fs::statat(
            &self.dir.fd,
            relative_path(key).as_str(),
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            Ok(stat) => Ok(Some(ShardStat::from(&stat))),
            Err(Errno::NOENT) => {
                open_files.note_absent(key);
                Ok(None)
            }
            Err(error) => Err(StoreError::system(&self.dir.path_of(key), "stat", error)),
        }
    }

    pub(crate) fn remove(&self, key: ShardKey) -> Result<bool, StoreError> {
        let mut open_files = self.stripe(key).lock();
        let path = relative_path(key);
        let removed = match rustix::fs::unlinkat(&self.dir.fd, path.as_str(), AtFlags::empty()) {
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

    pub(crate) fn list(
        &self,
        visit: &mut dyn FnMut(Oid, u16, ShardStat),
    ) -> Result<(), StoreError> {
        for index in 0..DATA_DIRS {
            self.list_dir(index, visit)?;
        }
        Ok(())
    }

    pub(crate) fn list_dir(
        &self,
        index: usize,
        visit: &mut dyn FnMut(Oid, u16, ShardStat),
    ) -> Result<(), StoreError> {
        let path = self.dir.path.join(format!("{index:02x}"));
        let failed = |error: Errno| match error {
            Errno::NOENT => StoreError::Damaged {
                path: path.clone(),
                detail: "the directory is missing".to_owned(),
            },
            error => StoreError::system(&path, "list", error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, &path, flags, Mode::empty()).map_err(failed)?;
        for entry in rustix::fs::Dir::read_from(&fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let Some(key) = std::str::from_utf8(name).ok().and_then(|n| parse_name(index, n))
            else {
                warn_foreign(&path, name);
                continue;
            };
            match rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => visit(key.0, key.1, ShardStat::from(&stat)),
                // Removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn warn_foreign(dir: &Path, name: &[u8]) {
    let path = dir.join(OsStr::from_bytes(name));
    tracing::warn!(path = %path.display(), "a file that no object names; it is left alone");
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn a_failed_sync_is_never_retried_into_success() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("05")).unwrap();
        let gauge = Arc::new(FreeSpace::new(dir.path().to_path_buf()));
        let shards = Shards::open(dir.path().to_path_buf(), 1, gauge).unwrap();
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
        shards.remove((oid, 0)).unwrap();
        shards.create((oid, 0)).unwrap().sync(true).unwrap();
    }

    #[test]
    fn the_name_of_a_new_file_is_synced_with_its_first_sync() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("05")).unwrap();
        let gauge = Arc::new(FreeSpace::new(dir.path().to_path_buf()));
        let shards = Shards::open(dir.path().to_path_buf(), 9, gauge).unwrap();
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
        let synced = || shards.dir.synced[5].load(Ordering::Acquire);
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
