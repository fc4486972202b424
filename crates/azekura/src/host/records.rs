//! Small records of what this user runs on this host: which directory a pool lies in, which
//! process serves a mount. A record may be old; whoever reads it asks the process too.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::places;

/// A pool that `azekura up` made here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalPool {
    /// Where it lies.
    pub(crate) dir: PathBuf,
    /// In memory-backed storage: gone after a reboot.
    pub(crate) in_memory: bool,
    /// TCP addresses it listens on besides its UNIX socket.
    pub(crate) listen: Vec<String>,
    /// The engine's process, when it was started last.
    pub(crate) pid: u32,
}

/// A mount that a process of this user serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalMount {
    /// The mount point.
    pub(crate) dir: PathBuf,
    /// The process.
    pub(crate) pid: u32,
    /// It is the process of an engine, which goes on when the mount is gone.
    #[serde(default)]
    pub(crate) by_engine: bool,
    /// Tells it from others that the same process has mounted at the same place.
    #[serde(default)]
    pub(crate) serial: u64,
}

/// A kind of record, with the directory that its records live in.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// Name of the directory.
    const KIND: &'static str;
}

impl Record for LocalPool {
    const KIND: &'static str = "local";
}

impl Record for LocalMount {
    const KIND: &'static str = "mounts";
}

fn path_of<R: Record>(key: &str) -> Result<PathBuf> {
    Ok(places::state_dir()?.join(R::KIND).join(format!("{key}.json")))
}

/// The key of a mount point.
pub(crate) fn mount_key(dir: &Path) -> String {
    let hash = azekura_proto::placement::name_hash(dir.as_os_str().as_encoded_bytes());
    format!("{hash:016x}")
}

/// The record under `key`, if there is one.
///
/// # Errors
/// If it is there and cannot be read.
pub(crate) fn load<R: Record>(key: &str) -> Result<Option<R>> {
    let path = path_of::<R>(key)?;
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .with_context(|| format!("{} is damaged: remove it and try again", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes a record; readers see the old one or the new one, never half of one.
pub(crate) fn save<R: Record>(key: &str, record: &R) -> Result<()> {
    write_whole(&path_of::<R>(key)?, &serde_json::to_vec_pretty(record)?)
}

/// Forgets a record; nothing happens if there is none.
pub(crate) fn remove<R: Record>(key: &str) -> Result<()> {
    let path = path_of::<R>(key)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Forgets a mount, unless the record under its key is by now that of another one at its place.
pub(crate) fn remove_mount(mount: &LocalMount) -> Result<()> {
    let key = mount_key(&mount.dir);
    if load::<LocalMount>(&key)?.is_some_and(|found| found != *mount) {
        return Ok(());
    }
    remove::<LocalMount>(&key)
}

/// Replaces a file of mode 0600 in one step.
pub(crate) fn write_whole(path: &Path, contents: &[u8]) -> Result<()> {
    let Some(dir) = path.parent() else { bail!("{} is no file name", path.display()) };
    places::make_private_dir(dir)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let draft = PathBuf::from(draft);
    let write = || {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Keeps every other command away from the same pool while it is started or stopped.
#[derive(Debug)]
pub(crate) struct PoolLock {
    _file: fs::File,
}

impl PoolLock {
    /// Waits until no other command works on the pool `name`.
    pub(crate) fn take(name: &str) -> Result<Self> {
        let dir = places::state_dir()?.join("locks");
        places::make_private_dir(&dir)?;
        let path = dir.join(name);
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self { _file: file })
    }
}
