//! What the threads of an engine share: its targets, its place in the pool, the way to its peers,
//! sessions, locks and counters. Owns how a request reaches any target of the pool, be it here or at
//! another engine, and which pool map a request is served under.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::frame::encode_nested;
use azekura_proto::limits::PEER_ANSWER_MS;
use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::transaction::TransactionId;
use azekura_proto::{
    EngineId, Incarnation, Layout, Oid, Placement, PoolMap, SessionId, Status, TargetId,
};
use parking_lot::{Mutex, RwLock};

use crate::data::owed_bits::OwedBits;
use crate::engine_dir::EngineDir;
use crate::lock_table::LockTable;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::requests::sessions::Sessions;
use crate::target::Target;

/// An engine that asks others on behalf of a further one leaves it this much time for the answer, in
/// milliseconds.
const PEER_MARGIN_MS: u64 = 500;

/// Serves what one target of this engine asks of another. It stands above this module: an operation
/// that is served may ask further targets.
pub(crate) trait LocalTargets: Send + Sync {
    /// Answers a request of another target of this engine.
    fn serve(&self, node: &Node, target: &Target, request: &Request<'_>) -> Answer;
}

/// The pool map that holds now.
pub(crate) struct CurrentMap {
    map: RwLock<Arc<PoolMap>>,
    /// Its version, so that a request need not take the lock to see that nothing has changed.
    version: AtomicU32,
}

impl CurrentMap {
    pub(crate) fn new(map: Arc<PoolMap>) -> Self {
        Self { version: AtomicU32::new(map.version), map: RwLock::new(map) }
    }

    /// The map that holds now.
    pub(crate) fn get(&self) -> Arc<PoolMap> {
        Arc::clone(&self.map.read())
    }
}

/// The shared state of an engine that belongs to a pool.
pub(crate) struct NodeState {
    pub(crate) platform: SharedPlatform,
    pub(crate) current_map: CurrentMap,
    /// Where the map is recorded.
    pub(crate) place: Mutex<EngineDir>,
    pub(crate) engine: EngineId,
    pub(crate) incarnation: Incarnation,
    pub(crate) started: Instant,
    /// By target id; `None` for the targets of other engines.
    pub(crate) targets: Vec<Option<Arc<Target>>>,
    pub(crate) dispatcher: &'static dyn LocalTargets,
    pub(crate) peers: Box<dyn Peers>,
    pub(crate) sessions: Sessions,
    pub(crate) locks: LockTable,
    pub(crate) owed_bits: OwedBits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: Arc<AtomicBool>,
    /// Transactions that this engine coordinates and has not decided yet.
    pub(crate) undecided: Mutex<HashSet<TransactionId>>,
}

impl NodeState {
    /// A target of this engine.
    pub(crate) fn local(&self, target: TargetId) -> Option<&Arc<Target>> {
        self.targets.get(usize::from(target.0))?.as_ref()
    }
}

/// An engine as one request sees it: what its threads share, and a pool map that stays the same
/// until the request is answered.
#[derive(Clone)]
pub(crate) struct Node {
    state: Arc<NodeState>,
    pub(crate) map: Arc<PoolMap>,
    /// When whoever asks has given up: what others are asked on its behalf ends before.
    deadline: Option<Instant>,
    /// The client for which targets of this engine do their parts of one operation, if that is known.
    client: Option<SessionId>,
}

impl Deref for Node {
    type Target = NodeState;

    fn deref(&self) -> &NodeState {
        &self.state
    }
}

impl Node {
    pub(crate) fn new(state: NodeState) -> Self {
        let map = state.current_map.get();
        let state = Arc::new(state);
        for target in state.targets.iter().flatten() {
            let witnesses = Arc::downgrade(&state);
            target.store.set_witnesses(witnesses);
        }
        Self { state, map, deadline: None, client: None }
    }

    /// Takes up the map that holds now. To be called before each request.
    pub(crate) fn refresh(&mut self) {
        if self.state.current_map.version.load(Ordering::Acquire) != self.map.version {
            self.map = self.state.current_map.get();
        }
    }

    /// The same on behalf of another engine, which waits for the answer no longer than it always does.
    pub(crate) fn on_behalf_of_peer(&self) -> Self {
        let limit = Duration::from_millis(PEER_ANSWER_MS - PEER_MARGIN_MS);
        Self { deadline: Some(self.platform.now() + limit), ..self.clone() }
    }

    /// The same for an operation of a client, none of whose own leases is in its way.
    pub(crate) fn on_behalf_of(&self, client: Option<SessionId>) -> Self {
        Self { client, ..self.clone() }
    }

    /// The client on whose behalf a target of this engine asks another, if that is known.
    pub(crate) fn client(&self) -> Option<SessionId> {
        self.client
    }

    /// How long asking others may take.
    fn peer_limit(&self) -> Duration {
        let limit = Duration::from_millis(PEER_ANSWER_MS);
        let left = |deadline: Instant| deadline.saturating_duration_since(self.platform.now());
        self.deadline.map_or(limit, |deadline| left(deadline).min(limit))
    }

    /// Takes a newer map of the pool, in which this engine has the targets that it has. Requests
    /// that are being served end under the one before.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is no such map, [`Status::Io`] if it cannot be recorded.
    pub(crate) fn install_map(&self, map: PoolMap) -> Result<(), Status> {
        // Held while the map is recorded, so that the record never falls behind what holds.
        let place = self.state.place.lock();
        let current = Arc::clone(&self.state.current_map.map.read());
        let is_next = map.validate().is_ok()
            && map.pool == current.pool
            && map.version > current.version
            && map.targets_of(self.engine).eq(current.targets_of(self.engine));
        if !is_next {
            return Err(Status::Invalid);
        }
        place.record_place(&map, self.engine).map_err(|error| {
            tracing::error!("{error}");
            Status::Io
        })?;
        let mut current = self.state.current_map.map.write();
        self.state.current_map.version.store(map.version, Ordering::Release);
        *current = Arc::new(map);
        Ok(())
    }

    /// What an engine that belongs to a pool answers to one who gives it a place in a pool: it has
    /// heard that before, the pool's map is a newer one, or it is no free engine.
    ///
    /// # Errors
    /// [`Status::Exists`] for a place in another pool, and those of [`Node::install_map`].
    pub(crate) fn adopt_again(&self, map: &PoolMap, engine: EngineId) -> Result<(), Status> {
        let current = Arc::clone(&self.state.current_map.map.read());
        match (map.pool == current.pool && engine == self.engine, *map == *current) {
            (true, true) => Ok(()),
            (true, false) => self.install_map(map.clone()),
            (false, _) => Err(Status::Exists),
        }
    }

    /// Where objects lie.
    pub(crate) fn placement(&self) -> Placement {
        Placement::of(&self.map)
    }

    /// The targets of this engine.
    pub(crate) fn local_targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter().flatten()
    }

    /// Whether every target of the pool is here.
    pub(crate) fn is_alone(&self) -> bool {
        self.map.engines.len() == 1
    }

    /// The home of an object, if it is at this engine.
    pub(crate) fn local_home(&self, oid: Oid) -> Option<&Arc<Target>> {
        self.local(oid.home())
    }

    /// The target of a shard.
    pub(crate) fn shard_target(&self, oid: Oid, shard: u16) -> TargetId {
        self.placement().shard_target(oid, shard)
    }

    /// Which shard of an object a target holds; `None` if the object does not reach it.
    pub(crate) fn shard_on_target(&self, oid: Oid, target: TargetId) -> Option<u16> {
        self.placement().shard_on_target(oid, target)
    }

    /// The target that holds an entry of a directory.
    pub(crate) fn entry_target(&self, dir: Oid, name: &[u8]) -> TargetId {
        self.placement().entry_target(dir, name)
    }

    /// How array data of an object lie on the targets.
    pub(crate) fn layout(&self, oid: Oid, chunk_bytes: u32) -> Layout {
        Layout::of_array(self.placement(), oid, chunk_bytes)
    }

    /// Number of shards of an object.
    pub(crate) fn shards(&self, oid: Oid) -> u16 {
        self.placement().shards(oid)
    }

    /// Whether the engine is draining.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Asks any target of the pool.
    pub(crate) fn call(&self, target: TargetId, request: &Request<'_>) -> Answer {
        if let Some(local) = self.local(target) {
            return self.dispatcher.serve(self, local, request);
        }
        let named = self.naming_the_client(request);
        let request = named.as_ref().unwrap_or(request);
        self.peers.call(&self.map, target, request, &[], self.peer_limit())
    }

    /// What another engine is asked where leases of the client would be in the way of a part of its own
    /// operation.
    fn naming_the_client(&self, request: &Request<'_>) -> Option<Request<'static>> {
        let client = self.client?;
        match request {
            Request::Prepare { .. } | Request::Lookup { .. } => {
                let request = encode_nested(request).ok()?;
                Some(Request::OnBehalf { client, stream: None, request })
            }
            _ => None,
        }
    }

    /// Asks a target of another engine, with bulk data.
    pub(crate) fn call_remote(
        &self,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer {
        self.peers.call(&self.map, target, request, bulk, self.peer_limit())
    }

    /// Asks several targets, the remote ones first so that they work while this engine does its own
    /// part. Answers come in the order of what was wanted.
    pub(crate) fn call_all(&self, wanted: &[(TargetId, Request<'_>)]) -> Vec<Answer> {
        let is_local = |target: &TargetId| self.local(*target).is_some();
        let remote = || wanted.iter().filter(|(target, _)| !is_local(target));
        let named: Vec<_> = remote().map(|(_, request)| self.naming_the_client(request)).collect();
        let remote: Vec<(TargetId, &Request<'_>)> = remote()
            .zip(&named)
            .map(|((target, request), named)| (*target, named.as_ref().unwrap_or(request)))
            .collect();
        let mut own = Vec::with_capacity(wanted.len() - remote.len());
        let mut do_own_part = || {
            let local = wanted.iter().filter(|(target, _)| is_local(target));
            own.extend(local.map(|(target, request)| self.call(*target, request)));
        };
        let told = if remote.is_empty() {
            do_own_part();
            Vec::new()
        } else {
            self.peers.call_all(&self.map, &remote, &mut do_own_part, self.peer_limit())
        };
        assert_eq!(told.len(), remote.len(), "each request has one answer");
        let (mut own, mut told) = (own.into_iter(), told.into_iter());
        let in_order = wanted
            .iter()
            .filter_map(|(target, _)| if is_local(target) { own.next() } else { told.next() });
        in_order.collect()
    }

    /// Asks the target of every shard of an object. Answers come in shard order.
    pub(crate) fn call_shards(
        &self,
        oid: Oid,
        request: impl Fn(u16) -> Request<'static>,
    ) -> Result<Vec<Reply>, Status> {
        let shards = self.shards(oid);
        if self.is_alone() {
            return (0..shards)
                .map(|shard| self.call(self.shard_target(oid, shard), &request(shard)))
                .collect();
        }
        let wanted: Vec<_> =
            (0..shards).map(|shard| (self.shard_target(oid, shard), request(shard))).collect();
        self.call_all(&wanted).into_iter().collect()
    }
}
