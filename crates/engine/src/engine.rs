//! The life of an engine: opening targets, recovering, listening, draining. Owns the layout of an
//! engine's directory and its threads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use azekura_proto::limits::LEASE_MS;
use azekura_proto::message::EngineReport;
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, PoolMap, SessionId, Status, TargetId};
use azekura_store::{Store, StoreConfig, StoreError};
use azekura_wire::{Listener, Secret};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::dispatch::local_call;
use crate::lock_table::LockTable;
use crate::metrics::{self, Gauges, Metrics};
use crate::node::Node;
use crate::peers::Peers;
use crate::reclaim;
use crate::recovery;
use crate::report;
use crate::server::Server;
use crate::sessions::Sessions;
use crate::target::Target;

/// Who had locks before a restart may claim them for this long before others get them.
const GRACE: Duration = Duration::from_secs(5);
/// How long draining waits for requests under way.
const DRAIN: Duration = Duration::from_secs(20);
const POOL_FILE: &str = "pool.json";
const FORMATTING_FILE: &str = "formatting";
const LOCKS_FILE: &str = "locks-held";

/// What an engine needs to know.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The engine's directory: `pool.json`, and `targets/N` where `target_dirs` names none.
    pub dir: PathBuf,
    /// Directories of the targets, in order; missing ones are `dir/targets/N`.
    pub target_dirs: Vec<PathBuf>,
    /// Targets to make when a pool adopts this engine.
    pub target_count: u16,
    /// Where to listen.
    pub listen: Vec<Address>,
    /// The pool's secret.
    pub secret: Secret,
    /// `host:port` for the metrics, if any.
    pub metrics_listen: Option<String>,
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A target cannot be made or opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or socket of the engine.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The engine's record of its pool does not make sense.
    #[error("{}: {detail}; restore the file, or make the pool anew in an empty directory", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// What a target holds could not be brought into order.
    #[error("target {} in {}: recovery failed: {status}", target.0, path.display())]
    Recovery {
        /// The target.
        target: TargetId,
        /// Its directory.
        path: PathBuf,
        /// Why.
        status: Status,
    },
}

/// An engine's place in its pool, as kept in `pool.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    engine: EngineId,
    map: PoolMap,
}

/// What the threads of an engine share, also before it belongs to a pool.
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) node: RwLock<Option<Arc<Node>>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) open_connections: AtomicUsize,
}

/// A running engine. Dropping it without [`Engine::stop`] is like a crash, but for the threads.
pub struct Engine {
    shared: Arc<Shared>,
    server: Server,
    background: Vec<JoinHandle<()>>,
}

/// The directory of a target.
pub(crate) fn target_dir(config: &EngineConfig, index: usize) -> PathBuf {
    let given = config.target_dirs.get(index).cloned();
    given.unwrap_or_else(|| config.dir.join("targets").join(index.to_string()))
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    let path = path.to_owned();
    move |source| EngineError::Io { what, path, source }
}

impl Engine {
    /// Makes the targets of a new pool and remembers the engine's place in it.
    ///
    /// # Errors
    /// If a directory is in use or cannot be written.
    pub fn format(
        config: &EngineConfig,
        map: &PoolMap,
        engine: EngineId,
    ) -> Result<(), EngineError> {
        fs::create_dir_all(&config.dir).map_err(io_error("cannot make", &config.dir))?;
        let mark = config.dir.join(FORMATTING_FILE);
        if mark.exists() {
            // Targets that were being made when this was interrupted never held anything.
            for index in 0..map.targets_of(engine).count() {
                remove_tree(&target_dir(config, index))?;
            }
        }
        write_durably(&mark, b"").map_err(io_error("cannot write", &mark))?;
        for (index, target) in map.targets_of(engine).enumerate() {
            let dir = target_dir(config, index);
            fs::create_dir_all(&dir).map_err(io_error("cannot make", &dir))?;
            Store::create(&dir, map.pool, target)?;
        }
        let path = config.dir.join(POOL_FILE);
        let place = Place { engine, map: map.clone() };
        let text = serde_json::to_string_pretty(&place)
            .map_err(|error| io_error("cannot write", &path)(io::Error::other(error)))?;
        write_durably(&path, text.as_bytes()).map_err(io_error("cannot write", &path))?;
        fs::remove_file(&mark).map_err(io_error("cannot remove", &mark))
    }

    /// Whether making the targets in this directory was interrupted: [`Engine::format`] begins
    /// anew then.
    pub fn is_half_formatted(dir: &Path) -> bool {
        dir.join(FORMATTING_FILE).exists() && !dir.join(POOL_FILE).exists()
    }

    /// The pool map in an engine's directory; `None` if it belongs to no pool yet.
    ///
    /// # Errors
    /// If the file cannot be read or makes no sense.
    pub fn read_place(dir: &Path) -> Result<Option<(EngineId, PoolMap)>, EngineError> {
        let path = dir.join(POOL_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("cannot read", &path)(error)),
        };
        let damaged = |detail: String| EngineError::Damaged { path: path.clone(), detail };
        let place: Place = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        place.map.validate().map_err(damaged)?;
        Ok(Some((place.engine, place.map)))
    }

    /// Opens the targets, recovers, and listens. An engine whose directory has no pool yet waits
    /// to be adopted by one.
    ///
    /// # Errors
    /// If a target is damaged or in use, or an address cannot be listened at.
    pub fn start(config: EngineConfig) -> Result<Self, EngineError> {
        raise_file_limit();
        let shared = Arc::new(Shared {
            node: RwLock::new(None),
            metrics: Arc::new(Metrics::new()),
            stopping: Arc::new(AtomicBool::new(false)),
            open_connections: AtomicUsize::new(0),
            config,
        });
        if let Some((engine, map)) = Self::read_place(&shared.config.dir)? {
            // Left behind by a crash between the last two steps of formatting.
            let _ = fs::remove_file(shared.config.dir.join(FORMATTING_FILE));
            *shared.node.write() = Some(open_node(&shared, engine, map)?);
        }
        let mut background = vec![spawn("reclaim", {
            let shared = Arc::clone(&shared);
            move || run_background(&shared)
        })?];
        if let Some(address) = &shared.config.metrics_listen {
            background.push(start_metrics(&shared, address)?);
        }
        let mut listeners = Vec::new();
        for address in &shared.config.listen {
            let path = PathBuf::from(address.to_string());
            listeners.push(Listener::bind(address).map_err(io_error("cannot listen at", &path))?);
        }
        let server = Server::start(&shared, listeners)
            .map_err(io_error("cannot serve in", &shared.config.dir))?;
        Ok(Self { shared, server, background })
    }

    /// Where the engine listens, with the ports that were taken.
    pub fn addresses(&self) -> Vec<Address> {
        self.server.addresses()
    }

    /// The pool map; `None` before a pool has adopted the engine.
    pub fn map(&self) -> Option<PoolMap> {
        self.shared.node.read().as_ref().map(|node| node.map.clone())
    }

    /// What the engine says of itself; `None` before a pool has adopted it.
    pub fn report(&self) -> Option<EngineReport> {
        self.shared.node.read().as_ref().map(|node| report::report(node))
    }

    /// Drains: takes no more connections, lets requests under way end, makes everything durable.
    pub fn stop(self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.server.stop();
        let deadline = Instant::now() + DRAIN;
        while self.shared.open_connections.load(Ordering::Acquire) > 0 && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        for thread in self.background {
            // A background thread that panicked has said so already.
            let _ = thread.join();
        }
        if let Some(node) = self.shared.node.write().take() {
            note_locks(&self.shared.config.dir, !node.locks.is_empty());
            for target in node.local_targets() {
                write_back(target, true);
                if let Err(error) = target.store.sync() {
                    tracing::error!("{error}");
                }
            }
        }
    }
}

fn remove_tree(dir: &Path) -> Result<(), EngineError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("cannot remove", dir)(error))
        }
        _ => Ok(()),
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, EngineError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(io_error("cannot start a thread for", Path::new(name)))
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(dir) => fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Thousands of clients need thousands of descriptors.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        tracing::warn!("the limit of open files could not be raised");
    }
}

/// Opens the targets of an engine that belongs to a pool.
pub(crate) fn open_node(
    shared: &Shared,
    engine: EngineId,
    map: PoolMap,
) -> Result<Arc<Node>, EngineError> {
    let config = &shared.config;
    let mut targets: Vec<Option<Arc<Target>>> = map.targets.iter().map(|_| None).collect();
    for (index, id) in map.targets_of(engine).enumerate() {
        let dir = target_dir(config, index);
        let store = Store::open(&dir, map.pool, id, &StoreConfig::default())?;
        let failed = |status| EngineError::Recovery { target: id, path: dir.clone(), status };
        let target = Target::new(id, store, dir.clone()).map_err(failed)?;
        recovery::recover(&target).map_err(failed)?;
        targets[usize::from(id.0)] = Some(Arc::new(target));
    }
    let random = |bytes: &mut [u8]| {
        getrandom::fill(bytes)
            .map_err(|error| io_error("cannot draw random numbers for", &config.dir)(error.into()))
    };
    let mut incarnation = [0; 8];
    random(&mut incarnation)?;
    let mut session = [0; 16];
    random(&mut session)?;
    let had_locks = config.dir.join(LOCKS_FILE).exists();
    Ok(Arc::new(Node {
        engine,
        incarnation: Incarnation(u64::from_le_bytes(incarnation)),
        started: Instant::now(),
        targets,
        peers: Peers::new(config.secret.clone(), SessionId(session)),
        sessions: Sessions::default(),
        locks: LockTable::new(had_locks.then_some(GRACE)),
        metrics: Arc::clone(&shared.metrics),
        stopping: Arc::clone(&shared.stopping),
        undecided: parking_lot::Mutex::default(),
        local_call,
        map,
    }))
}

/// Takes a place in a new pool.
pub(crate) fn adopt(shared: &Shared, map: &PoolMap, engine: EngineId) -> Result<(), Status> {
    map.validate().map_err(|_| Status::Invalid)?;
    let mut node = shared.node.write();
    if node.is_some() {
        return Err(Status::Exists);
    }
    if map.targets_of(engine).count() != usize::from(shared.config.target_count) {
        return Err(Status::Invalid);
    }
    let opened = Engine::format(&shared.config, map, engine)
        .and_then(|()| open_node(shared, engine, map.clone()));
    match opened {
        Ok(opened) => {
            *node = Some(opened);
            tracing::info!(pool = %map.pool, name = map.name, "the engine belongs to a pool now");
            Ok(())
        }
        Err(error) => {
            tracing::error!("{error}");
            Err(Status::Io)
        }
    }
}

/// A file that says that locks were held when the engine went down: their owners come first then.
fn note_locks(dir: &Path, held: bool) {
    let path = dir.join(LOCKS_FILE);
    let noted = if held {
        fs::write(&path, b"")
    } else {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    };
    if let Err(error) = noted {
        tracing::warn!("{}: {error}", path.display());
    }
}

fn start_metrics(shared: &Arc<Shared>, address: &str) -> Result<JoinHandle<()>, EngineError> {
    let server = tiny_http::Server::http(address).map_err(|error| {
        io_error("cannot serve metrics at", Path::new(address))(io::Error::other(error))
    })?;
    let shared = Arc::clone(shared);
    spawn("metrics", move || {
        metrics::serve(&server, &shared.metrics, &shared.stopping, || gauges(&shared));
    })
}

fn gauges(shared: &Shared) -> Gauges {
    let Some(node) = shared.node.read().clone() else { return Gauges::default() };
    let sum = |value: fn(&Target) -> u64| node.local_targets().map(|target| value(target)).sum();
    Gauges {
        sessions: node.sessions.len() as u64,
        reclaim_backlog: sum(|target| target.reclaim_backlog.load(Ordering::Relaxed)),
        objects: sum(|target| target.objects.load(Ordering::Relaxed)),
    }
}

/// Reclaim, recovery, leases and rates.
fn run_background(shared: &Shared) {
    let mut round = 0u64;
    let mut orphans_due = Some(Instant::now() + Duration::from_millis(LEASE_MS));
    let mut locks_noted = false;
    while !shared.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        round += 1;
        let node = shared.node.read().clone();
        let Some(node) = node else { continue };
        for target in node.local_targets() {
            // After a restart there may be records that nobody has announced.
            let wanted = target.reclaim_wanted.swap(0, Ordering::Relaxed) > 0;
            if wanted || round % 100 == 1 {
                reclaim_target(shared, &node, target);
            }
            if round.is_multiple_of(5) {
                recovery::settle(&node, target);
                write_back(target, false);
            }
        }
        if round.is_multiple_of(20) {
            shared.metrics.sample();
            for session in node.sessions.take_expired() {
                tracing::info!(session = %session.id, "lease ran out");
                reclaim::end_session(&node, &session);
            }
        }
        if locks_noted == node.locks.is_empty() {
            locks_noted = !locks_noted;
            note_locks(&shared.config.dir, locks_noted);
        }
        if orphans_due.is_some_and(|due| Instant::now() > due) {
            orphans_due = None;
            for target in node.local_targets() {
                let dropped = reclaim::drop_orphans(&node, target)
                    .and_then(|()| reclaim::forget_strangers(&node, target));
                if let Err(status) = dropped {
                    tracing::warn!(target = target.id.0, "leftovers stay: {status}");
                }
            }
        }
    }
}

fn write_back(target: &Target, all: bool) {
    let _state = target.lock();
    if let Err(status) = target.dir_shards.write_back(&target.store, all) {
        tracing::warn!(target = target.id.0, "directory times wait to be written: {status}");
    }
}

fn reclaim_target(shared: &Shared, node: &Node, target: &Target) {
    if let Err(status) = reclaim::reclaim_containers(target) {
        tracing::warn!(target = target.id.0, "a container stays: {status}");
    }
    while !shared.stopping.load(Ordering::Relaxed) {
        match reclaim::reclaim_some(node, target) {
            Ok(true) => {}
            Ok(false) => return,
            Err(status) => {
                tracing::warn!(target = target.id.0, "reclaim waits: {status}");
                return;
            }
        }
    }
}
