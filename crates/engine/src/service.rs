//! An engine without sockets and threads: it opens its targets, lets sessions in, and does its
//! background work when it is told to. The listening engine stands on it, and so does whoever calls
//! an engine in the same process. Dropping it and all that is attached to it, without
//! [`Service::finish`], is like a crash.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use azekura_proto::message::{EngineReport, Refusal, Role, Welcome};
use azekura_proto::placement::name_hash;
use azekura_proto::{EngineId, Incarnation, PoolId, PoolMap, SessionId, Status};
use azekura_store::{Store, StoreConfig};
use parking_lot::Mutex;

use crate::background::passes::{self, Settling, Upkeep};
use crate::background::recovery;
use crate::data::owed_bits::OwedBits;
use crate::engine_dir::{EngineDir, Held};
use crate::error::{EngineError, io_error};
use crate::held_note::HeldNote;
use crate::lock_table::LockTable;
use crate::metrics::Metrics;
use crate::node::{CurrentMap, Node, NodeState};
use crate::peers::Peers;
use crate::report;
use crate::requests::attachment::Attachment;
use crate::requests::dispatch::Dispatcher;
use crate::requests::sessions::Sessions;
use crate::target::Target;

/// What an engine is made of.
pub struct ServiceParts {
    /// The engine's directory, formatted, with the clock, random numbers and sleep of the
    /// environment that it is in.
    pub dir: EngineDir,
    /// How it asks the other engines of the pool.
    pub peers: Box<dyn Peers>,
}

/// An engine that can be called.
pub struct Service {
    node: Node,
    upkeep: Mutex<Upkeep>,
    settling: Mutex<Settling>,
}

/// Names the time in which none of the targets has lost anything.
fn lossless_run<'t>(targets: impl IntoIterator<Item = &'t Arc<Target>>) -> Option<u32> {
    let mut all = Vec::new();
    for target in targets {
        all.extend(target.store.lossless_run()?);
    }
    let hash = name_hash(&all);
    Some((hash >> 32) as u32 ^ hash as u32)
}

impl Service {
    /// Opens the targets and brings them into order.
    ///
    /// # Errors
    /// If the directory belongs to no pool, or a target is damaged or in use.
    pub fn open(parts: ServiceParts) -> Result<Self, EngineError> {
        let place = parts.dir.read_place()?.ok_or_else(|| {
            io_error("no pool is recorded in", parts.dir.path())(io::ErrorKind::NotFound.into())
        })?;
        let metrics = Arc::new(Metrics::new(parts.dir.environment().platform().now()));
        Self::open_at(parts, place, metrics, Arc::default())
    }

    /// The same for an engine that has counted, and may have been told to stop, before it had targets.
    pub(crate) fn open_at(
        parts: ServiceParts,
        (engine, map): (EngineId, PoolMap),
        metrics: Arc<Metrics>,
        stopping: Arc<AtomicBool>,
    ) -> Result<Self, EngineError> {
        let ServiceParts { dir, peers } = parts;
        let platform = Arc::clone(dir.environment().platform());
        dir.end_formatting();
        let targets = open_targets(&dir, engine, &map)?;
        let mut drawn = [0; 8];
        platform
            .fill_random(&mut drawn)
            .map_err(io_error("cannot draw random numbers for", dir.path()))?;
        let drawn = u64::from_le_bytes(drawn);
        // Where it cannot be known each run may have lost something.
        let lossless = lossless_run(targets.iter().flatten()).unwrap_or((drawn >> 32) as u32);
        let node = Node::new(NodeState {
            engine,
            incarnation: Incarnation::new(lossless, drawn as u32),
            started: platform.now(),
            targets,
            dispatcher: &Dispatcher,
            peers,
            sessions: Sessions::new(Arc::clone(&platform), HeldNote::of(&dir, Held::Opens)),
            locks: LockTable::new(Arc::clone(&platform), HeldNote::of(&dir, Held::Locks)),
            metrics,
            stopping,
            owed_bits: OwedBits::default(),
            undecided: Mutex::default(),
            current_map: CurrentMap::new(Arc::new(map)),
            place: Mutex::new(dir.clone()),
            platform,
        });
        let upkeep = Mutex::new(Upkeep::new(&*node.platform));
        Ok(Self { node, upkeep, settling: Mutex::default() })
    }

    /// The engine under the pool map that holds now.
    pub(crate) fn node(&self) -> Node {
        let mut node = self.node.clone();
        node.refresh();
        node
    }

    /// Lets a session in. `remote`: over a network, where it may be cut off without having ended.
    ///
    /// # Errors
    /// If the engine is stopping, or knows as many sessions as it can.
    pub fn attach(
        &self,
        session: SessionId,
        role: Role,
        remote: bool,
    ) -> Result<(Attachment, Welcome), Refusal> {
        let node = self.node();
        if node.is_stopping() {
            return Err(Refusal::Stopping);
        }
        let (session, fresh_session) =
            node.sessions.attach(session, remote).ok_or(Refusal::Full)?;
        let welcome = Welcome {
            engine: node.engine,
            incarnation: node.incarnation,
            map_version: node.map.version,
            fresh_session,
        };
        Ok((Attachment::new(node, session, role), welcome))
    }

    /// The pool that the engine belongs to.
    pub(crate) fn pool(&self) -> PoolId {
        self.node.map.pool
    }

    /// The pool map that holds now.
    pub fn map(&self) -> PoolMap {
        PoolMap::clone(&self.node().map)
    }

    /// Takes a newer map of the pool, in which this engine has the targets that it has. Requests
    /// that are being served end under the one before.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is no such map, [`Status::Io`] if it cannot be recorded.
    pub fn install_map(&self, map: PoolMap) -> Result<(), Status> {
        self.node().install_map(map)
    }

    /// What the engine says of itself.
    pub fn report(&self) -> EngineReport {
        report::report(&self.node())
    }

    /// Does the background work that is due; to be called about twenty times a second. Does nothing
    /// while another call is at it.
    pub fn background_pass(&self) {
        self.upkeep_pass();
        self.settling_pass();
    }

    /// The part of it for which no other engine is asked.
    pub(crate) fn upkeep_pass(&self) {
        if let Some(mut upkeep) = self.upkeep.try_lock() {
            upkeep.pass(&self.node());
        }
    }

    /// The part of it that may have to wait for other engines.
    pub(crate) fn settling_pass(&self) {
        if let Some(mut settling) = self.settling.try_lock() {
            settling.pass(&self.node());
        }
    }

    /// Whether some of the last commits were taken back, since another engine lost what they relied on
    /// with its power. The service has to be opened anew.
    pub fn is_rolled_back(&self) -> bool {
        self.node.local_targets().any(|target| target.store.is_rolled_back())
    }

    /// Leaves everything durable and in order for the next run.
    pub fn finish(&self) {
        if !self.is_rolled_back() {
            // What still waits for another engine changes nothing that has to be in order.
            let _upkeep = self.upkeep.lock();
            passes::finish(&self.node());
        }
    }
}

fn open_targets(
    dir: &EngineDir,
    engine: EngineId,
    map: &PoolMap,
) -> Result<Vec<Option<Arc<Target>>>, EngineError> {
    let environment = dir.environment();
    let mut targets: Vec<Option<Arc<Target>>> = map.targets.iter().map(|_| None).collect();
    for (index, id) in map.targets_of(engine).enumerate() {
        let path = dir.target_dir(index);
        let store = Store::open(environment, &path, map.pool, id, &StoreConfig::default())?;
        let failed = |status| EngineError::Recovery { target: id, path: path.clone(), status };
        let target = Target::new(Arc::clone(environment.platform()), id, store, path.clone())
            .map_err(failed)?;
        recovery::recover(&target).map_err(failed)?;
        targets[usize::from(id.0)] = Some(Arc::new(target));
    }
    Ok(targets)
}
