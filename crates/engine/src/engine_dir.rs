//! The files of an engine's directory: its place in its pool, where its targets lie, and whether
//! clients held locks or open files when it went down. Owns the order in which they are made, so that an engine that
//! is interrupted while it formats its targets can begin anew. It opens no target, and knows no file
//! but through the environment.

use std::io;
use std::path::{Path, PathBuf};

use azekura_proto::{EngineId, PoolMap};
use azekura_store::{Environment, Store};
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, io_error};

const POOL_FILE: &str = "pool.json";
const FORMATTING_FILE: &str = "formatting";
const LOCKS_FILE: &str = "locks-held";
const OPENS_FILE: &str = "opens-held";

/// What clients hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Advisory locks.
    Locks,
    /// Open references.
    Opens,
}

/// An engine's place in its pool, as kept in `pool.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PoolRecord {
    engine: EngineId,
    map: PoolMap,
}

/// The directory of an engine and those of its targets, on the disk of an environment.
#[derive(Clone, Debug)]
pub struct EngineDir {
    environment: Environment,
    path: PathBuf,
    target_dirs: Vec<PathBuf>,
}

impl EngineDir {
    /// What an engine keeps in its directory beside its targets, its record of the pool first.
    pub const FILES: [&str; 4] = [POOL_FILE, FORMATTING_FILE, LOCKS_FILE, OPENS_FILE];

    /// An engine's directory. Targets for which `target_dirs` names no directory of their own lie
    /// in `targets/N` below it.
    pub fn new(environment: Environment, path: PathBuf, target_dirs: Vec<PathBuf>) -> Self {
        Self { environment, path, target_dirs }
    }

    /// Where the directory lies, and what else the engine stands on.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a target.
    pub(crate) fn target_dir(&self, index: usize) -> PathBuf {
        let given = self.target_dirs.get(index).cloned();
        given.unwrap_or_else(|| self.path.join("targets").join(index.to_string()))
    }

    /// Makes the targets of a new pool and remembers the engine's place in it.
    ///
    /// # Errors
    /// If a directory is in use or cannot be written.
    pub fn format(&self, map: &PoolMap, engine: EngineId) -> Result<(), EngineError> {
        self.make_dir(&self.path)?;
        let mark = self.path.join(FORMATTING_FILE);
        if self.environment.has_file(&mark) {
            // Targets that were being made when this was interrupted never held anything.
            for index in 0..map.targets_of(engine).count() {
                self.remove_tree(&self.target_dir(index))?;
            }
        }
        self.environment.replace_file(&mark, b"").map_err(io_error("cannot write", &mark))?;
        for (index, target) in map.targets_of(engine).enumerate() {
            let dir = self.target_dir(index);
            self.make_dir(&dir)?;
            Store::create(&self.environment, &dir, map.pool, target)?;
        }
        self.record_place(map, engine)?;
        self.environment.remove_file(&mark).map_err(io_error("cannot remove", &mark))
    }

    /// Records which engine of which pool this is.
    pub(crate) fn record_place(&self, map: &PoolMap, engine: EngineId) -> Result<(), EngineError> {
        let path = self.path.join(POOL_FILE);
        let record = PoolRecord { engine, map: map.clone() };
        let text = serde_json::to_string_pretty(&record)
            .map_err(|error| io_error("cannot write", &path)(io::Error::other(error)))?;
        let written = self.environment.replace_file(&path, text.as_bytes());
        written.map_err(io_error("cannot write", &path))
    }

    /// Whether making the targets was interrupted: [`EngineDir::format`] begins anew then.
    pub(crate) fn is_half_formatted(&self) -> bool {
        self.has_file(FORMATTING_FILE) && !self.has_file(POOL_FILE)
    }

    /// Forgets that the targets were being made: a crash between the last two steps of
    /// [`EngineDir::format`] leaves that behind.
    pub(crate) fn end_formatting(&self) {
        // It is not there in general.
        let _ = self.environment.remove_file(&self.path.join(FORMATTING_FILE));
    }

    /// Which engine of which pool this is; `None` if it belongs to none yet.
    ///
    /// # Errors
    /// If the file cannot be read or makes no sense.
    pub(crate) fn read_place(&self) -> Result<Option<(EngineId, PoolMap)>, EngineError> {
        let path = self.path.join(POOL_FILE);
        let read = self.environment.read_file(&path).map_err(io_error("cannot read", &path))?;
        let Some(bytes) = read else { return Ok(None) };
        let damaged = |detail: String| EngineError::Damaged { path: path.clone(), detail };
        let record: PoolRecord =
            serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        record.map.validate().map_err(damaged)?;
        Ok(Some((record.engine, record.map)))
    }

    /// Whether an earlier run has left word that clients hold something.
    pub(crate) fn is_noted(&self, held: Held) -> bool {
        self.has_file(note_file(held))
    }

    /// Leaves word whether clients hold something, for [`EngineDir::is_noted`] of the next run.
    pub(crate) fn note(&self, held: Held, is_held: bool) -> Result<(), EngineError> {
        let path = self.path.join(note_file(held));
        if is_held {
            return self.environment.make_file(&path).map_err(io_error("cannot make", &path));
        }
        match self.environment.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("cannot remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn has_file(&self, name: &str) -> bool {
        self.environment.has_file(&self.path.join(name))
    }

    fn make_dir(&self, dir: &Path) -> Result<(), EngineError> {
        self.environment.make_dir(dir).map_err(io_error("cannot make", dir))
    }

    fn remove_tree(&self, dir: &Path) -> Result<(), EngineError> {
        match self.environment.remove_tree(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("cannot remove", dir)(error))
            }
            _ => Ok(()),
        }
    }
}

fn note_file(held: Held) -> &'static str {
    match held {
        Held::Locks => LOCKS_FILE,
        Held::Opens => OPENS_FILE,
    }
}
