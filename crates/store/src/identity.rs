//! Whose directory it is: the identity file, the lock, and the layout of a new target. Owns
//! `target.json` and `lock`. It never removes anything from a directory that has an identity.

use std::path::PathBuf;
use std::time::Duration;

use azekura_platform::Platform;
use azekura_proto::{PoolId, TargetId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::disk::{Access, Directory, File};
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

/// Held as long as the target is open; the kernel releases it with the process.
pub(crate) struct TargetLock {
    _file: Box<dyn File>,
}

impl TargetLock {
    pub(crate) fn acquire(
        dir: &dyn Directory,
        platform: &dyn Platform,
    ) -> Result<Self, StoreError> {
        for attempt in 0..LOCK_ATTEMPTS {
            // A process that this one's predecessor is just starting holds the lock for a moment
            // more, until it has closed what it inherited.
            if attempt > 0 {
                platform.sleep(LOCK_WAIT);
            }
            match dir.lock(LOCK_NAME) {
                Ok(file) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => {
                    return Err(StoreError::system(&dir.path().join(LOCK_NAME), "lock", error));
                }
            }
        }
        Err(StoreError::InUse { path: dir.path().to_path_buf() })
    }
}

/// What a directory is, before anything is changed in it.
enum Found {
    Target,
    /// An earlier creation did not get to its end.
    Unfinished,
    Empty,
}

fn inspect(dir: &dyn Directory) -> Result<Found, StoreError> {
    if read(dir)?.is_some() {
        return Ok(Found::Target);
    }
    if dir.stat(UNFINISHED_NAME.as_ref()).is_ok() {
        return Ok(Found::Unfinished);
    }
    let mut is_foreign = false;
    let listed = dir.list(&mut |name| {
        // A lock alone is left where a creation stopped at its very beginning; `lost+found` is
        // in the root of every fresh ext4.
        is_foreign |= name != LOCK_NAME && name != "lost+found";
        Ok(())
    });
    listed.map_err(|error| StoreError::system(dir.path(), "list the directory", error))?;
    if is_foreign {
        return Err(StoreError::NotATarget {
            path: dir.path().to_path_buf(),
            detail: "the directory holds other files; give an empty or a new one",
        });
    }
    Ok(Found::Empty)
}

/// The pool and target that the directory belongs to; `None` if there is no identity file.
fn read(dir: &dyn Directory) -> Result<Option<(PoolId, TargetId)>, StoreError> {
    let path = identity_path(dir);
    let damaged =
        |detail: &str| StoreError::Damaged { path: identity_path(dir), detail: detail.to_owned() };
    let failed = |error| StoreError::system(&path, "read the identity file", error);
    let file = match dir.open(IDENTITY_NAME, Access::Existing) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let length = file.stat().map_err(failed)?.bytes;
    if length > IDENTITY_BYTES_MAX {
        return Err(damaged("far too long for an identity file"));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_full_at(&mut bytes, 0).map_err(failed)?;
    bytes.truncate(read);
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
pub(crate) fn check(dir: &dyn Directory, pool: PoolId, target: TargetId) -> Result<(), StoreError> {
    let path = dir.path().to_path_buf();
    match read(dir)? {
        Some(found) if found == (pool, target) => Ok(()),
        Some((found_pool, found_target)) => {
            Err(StoreError::WrongIdentity { path, pool, target, found_pool, found_target })
        }
        None => Err(StoreError::NotATarget {
            path,
            detail: "there is no target.json in it; create the target first",
        }),
    }
}

/// Makes `dir` a target. `make` makes the directories `parts` in it, with all that a target needs. A
/// creation that was interrupted is begun anew; a target that is there already is left as it is if it
/// is the same one.
pub(crate) fn create(
    dir: &dyn Directory,
    platform: &dyn Platform,
    (pool, target): (PoolId, TargetId),
    parts: &[&str],
    make: impl FnOnce(&dyn Directory) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if let Found::Target = inspect(dir)? {
        check(dir, pool, target)?;
        // Who made it may have been killed before this.
        return sync_dir(dir);
    }
    let lock = TargetLock::acquire(dir, platform)?;
    // Another process may have come first.
    match inspect(dir)? {
        Found::Target => return check(dir, pool, target),
        Found::Unfinished => {
            for name in parts {
                remove_tree(dir, name)?;
            }
        }
        Found::Empty => {}
    }
    write_unfinished(dir, pool, target)?;
    make(dir)?;
    dir.rename(UNFINISHED_NAME, IDENTITY_NAME)
        .map_err(|error| StoreError::system(&identity_path(dir), "write", error))?;
    sync_dir(dir)?;
    drop(lock);
    Ok(())
}

fn write_unfinished(dir: &dyn Directory, pool: PoolId, target: TargetId) -> Result<(), StoreError> {
    let path = dir.path().join(UNFINISHED_NAME);
    let identity = Identity {
        format: FORMAT_NAME.to_owned(),
        version: FORMAT_VERSION,
        pool: pool.to_string(),
        target: target.0,
    };
    let mut text = serde_json::to_vec_pretty(&identity)
        .map_err(|error| StoreError::system(&path, "write", error))?;
    text.push(b'\n');
    let write = || {
        let file = dir.open(UNFINISHED_NAME, Access::Create)?;
        file.truncate(0)?;
        file.write_all_at(&text, 0)?;
        file.sync(false)
    };
    write().map_err(|error| StoreError::system(&path, "write", error))?;
    sync_dir(dir)
}

fn identity_path(dir: &dyn Directory) -> PathBuf {
    dir.path().join(IDENTITY_NAME)
}

fn remove_tree(dir: &dyn Directory, name: &str) -> Result<(), StoreError> {
    match dir.remove_tree(name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            let path = dir.path().join(name);
            Err(StoreError::system(&path, "clear an interrupted creation", error))
        }
    }
}

/// Makes the names in a directory survive a crash of the machine.
fn sync_dir(dir: &dyn Directory) -> Result<(), StoreError> {
    dir.sync().map_err(|error| StoreError::system(dir.path(), "sync the directory", error))
}
