//! Whose directory it is: the identity file, the lock, and the layout of a new target. Owns
//! `target.json` and `lock`. It never removes anything from a directory that has an identity.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use azekura_proto::{PoolId, TargetId};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// The newest format version that this release reads, and the one that it writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

const FORMAT_NAME: &str = "azekura-target";
const IDENTITY_NAME: &str = "target.json";
/// Stands in for the identity file until a new target is complete.
const UNFINISHED_NAME: &str = "target.json.unfinished";
const LOCK_NAME: &str = "lock";
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_WAIT: Duration = Duration::from_millis(20);
const IDENTITY_BYTES_MAX: u64 = 64 * 1024;

/// Number of directories that shard files are spread over.
pub(crate) const DATA_DIRS: usize = 256;

#[derive(Serialize, Deserialize)]
struct Identity {
    format: String,
    version: u32,
    pool: String,
    target: u16,
}

/// The part of the identity that every version has.
#[derive(Deserialize)]
struct IdentityHead {
    format: String,
    version: u32,
}

/// The paths of a target's parts.
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    pub(crate) fn kv(&self) -> PathBuf {
        self.dir.join("kv")
    }

    pub(crate) fn kv_front(&self) -> PathBuf {
        self.dir.join("kv-front")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn identity(&self) -> PathBuf {
        self.dir.join(IDENTITY_NAME)
    }

    fn unfinished(&self) -> PathBuf {
        self.dir.join(UNFINISHED_NAME)
    }
}

/// Held as long as the target is open; the kernel releases it with the process.
pub(crate) struct TargetLock {
    _file: File,
}

impl TargetLock {
    pub(crate) fn acquire(layout: &Layout) -> Result<Self, StoreError> {
        let path = layout.dir.join(LOCK_NAME);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| StoreError::system(&path, "open the lock file", error))?;
        for attempt in 0..LOCK_ATTEMPTS {
            // A process that this one's predecessor is just starting holds the lock for a moment
            // more, until it has closed what it inherited.
            if attempt > 0 {
                std::thread::sleep(LOCK_WAIT);
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(StoreError::system(&path, "lock the target", error)),
            }
        }
        Err(StoreError::InUse { path: layout.dir.clone() })
    }
}

/// What a directory is, before anything is changed in it.
enum Found {
    Target,
    /// An earlier creation did not get to its end.
    Unfinished,
    Empty,
}

fn inspect(layout: &Layout) -> Result<Found, StoreError> {
    if read(layout)?.is_some() {
        return Ok(Found::Target);
    }
    if layout.unfinished().exists() {
        return Ok(Found::Unfinished);
    }
    let list = |error| StoreError::system(&layout.dir, "list the directory", error);
    for entry in fs::read_dir(&layout.dir).map_err(list)? {
        let name = entry.map_err(list)?.file_name();
        // A lock alone is left where a creation stopped at its very beginning; `lost+found` is
        // in the root of every fresh ext4.
        if name != LOCK_NAME && name != "lost+found" {
            return Err(StoreError::NotATarget {
                path: layout.dir.clone(),
                detail: "the directory holds other files; give an empty or a new one",
            });
        }
    }
    Ok(Found::Empty)
}

/// The pool and target that the directory belongs to; `None` if there is no identity file.
fn read(layout: &Layout) -> Result<Option<(PoolId, TargetId)>, StoreError> {
    let path = layout.identity();
    let damaged =
        |detail: &str| StoreError::Damaged { path: layout.identity(), detail: detail.to_owned() };
    let failed = |error| StoreError::system(&path, "read the identity file", error);
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() > IDENTITY_BYTES_MAX => {
            return Err(damaged("far too long for an identity file"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let bytes = fs::read(&path).map_err(failed)?;
    let head: IdentityHead =
        serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
    if head.format != FORMAT_NAME {
        return Err(damaged("names another format"));
    }
    if head.version > FORMAT_VERSION {
        let (found, known) = (head.version, FORMAT_VERSION);
        return Err(StoreError::NewerVersion { path, found, known });
    }
    let identity: Identity =
        serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
    let pool = identity.pool.parse().map_err(damaged)?;
    Ok(Some((pool, TargetId(identity.target))))
}

/// Checks that the directory is this target of this pool.
pub(crate) fn check(layout: &Layout, pool: PoolId, target: TargetId) -> Result<(), StoreError> {
    match read(layout)? {
        Some((found_pool, found_target)) => {
            if (found_pool, found_target) == (pool, target) {
                return Ok(());
            }
            let path = layout.dir.clone();
            Err(StoreError::WrongIdentity { path, pool, target, found_pool, found_target })
        }
        None if layout.dir.is_dir() => Err(StoreError::NotATarget {
            path: layout.dir.clone(),
            detail: "there is no target.json in it; create the target first",
        }),
        None => Err(StoreError::NotATarget {
            path: layout.dir.clone(),
            detail: "there is no such directory; create the target first",
        }),
    }
}

/// Makes `dir` a target. `make_kv` fills the key-value directory. A creation that was interrupted
/// is begun anew; a target that is there already is left as it is if it is the same one.
pub(crate) fn create(
    layout: &Layout,
    pool: PoolId,
    target: TargetId,
    make_kv: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    fs::create_dir_all(&layout.dir)
        .map_err(|error| StoreError::system(&layout.dir, "create the directory", error))?;
    if let Found::Target = inspect(layout)? {
        return check(layout, pool, target);
    }
    let lock = TargetLock::acquire(layout)?;
    // Another process may have come first.
    match inspect(layout)? {
        Found::Target => return check(layout, pool, target),
        Found::Unfinished => {
            remove_tree(&layout.kv())?;
            remove_tree(&layout.data())?;
        }
        Found::Empty => {}
    }
    write_unfinished(layout, pool, target)?;
    make_data_dirs(layout)?;
    make_kv(&layout.kv())?;
    fs::rename(layout.unfinished(), layout.identity())
        .map_err(|error| StoreError::system(&layout.identity(), "write", error))?;
    sync_dir(&layout.dir)?;
    if let Some(parent) = layout.dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_dir(parent)?;
    }
    drop(lock);
    Ok(())
}

fn write_unfinished(layout: &Layout, pool: PoolId, target: TargetId) -> Result<(), StoreError> {
    let path = layout.unfinished();
    let identity = Identity {
        format: FORMAT_NAME.to_owned(),
        version: FORMAT_VERSION,
        pool: pool.to_string(),
        target: target.0,
    };
    let write = || -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&identity)?;
        text.push(b'\n');
        let mut file = File::create(&path)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    write().map_err(|error| StoreError::system(&path, "write", error))?;
    sync_dir(&layout.dir)
}

fn make_data_dirs(layout: &Layout) -> Result<(), StoreError> {
    let data = layout.data();
    let make = |path: &Path| {
        fs::create_dir(path).map_err(|error| StoreError::system(path, "create", error))
    };
    make(&data)?;
    for index in 0..DATA_DIRS {
        make(&data.join(format!("{index:02x}")))?;
    }
    sync_dir(&data)
}

fn remove_tree(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::system(path, "clear an interrupted creation", error))
        }
        _ => Ok(()),
    }
}

/// Makes the names in a directory survive a crash of the machine.
pub(crate) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| StoreError::system(path, "sync the directory", error))
}
