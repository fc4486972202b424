//! What the threads of an engine share: its targets, its place in the pool, its peers, sessions,
//! locks and counters. Owns how a request reaches any target of the pool, be it here or at another
//! engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::placement::shard_target;
use azekura_proto::transaction::TransactionId;
use azekura_proto::{EngineId, Incarnation, Oid, PoolMap, Status, TargetId};
use parking_lot::Mutex;

use crate::lock_table::LockTable;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::sessions::Sessions;
use crate::target::Target;

/// Serves a request of another target at a target of this engine.
pub(crate) type LocalCall = fn(&Node, &Target, &Request<'_>) -> Answer;

/// The shared state of an engine that belongs to a pool.
pub(crate) struct Node {
    pub(crate) map: PoolMap,
    pub(crate) engine: EngineId,
    pub(crate) incarnation: Incarnation,
    pub(crate) started: Instant,
    /// By target id; `None` for the targets of other engines.
    pub(crate) targets: Vec<Option<Arc<Target>>>,
    pub(crate) peers: Peers,
    pub(crate) sessions: Sessions,
    pub(crate) locks: LockTable,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: Arc<AtomicBool>,
    /// Transactions that this engine coordinates and has not decided yet.
    pub(crate) undecided: Mutex<HashMap<TransactionId, Instant>>,
    pub(crate) local_call: LocalCall,
}

impl Node {
    /// Number of targets in the pool.
    pub(crate) fn target_count(&self) -> u16 {
        self.map.target_count()
    }

    /// A target of this engine.
    pub(crate) fn local(&self, target: TargetId) -> Option<&Arc<Target>> {
        self.targets.get(usize::from(target.0))?.as_ref()
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
        shard_target(oid, shard, self.target_count())
    }

    /// Number of shards of an object.
    pub(crate) fn shards(&self, oid: Oid) -> u16 {
        oid.class().shards(self.target_count())
    }

    /// Whether the engine is draining.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Asks any target of the pool.
    pub(crate) fn call(&self, target: TargetId, request: &Request<'_>) -> Answer {
        match self.local(target) {
            Some(local) => (self.local_call)(self, local, request),
            None => self.peers.call(&self.map, target, request, &[]),
        }
    }

    /// Asks any target of the pool, with bulk data.
    pub(crate) fn call_remote(
        &self,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer {
        self.peers.call(&self.map, target, request, bulk)
    }

    /// Asks the target of every shard of an object, the remote ones first so that they work while
    /// this engine does its own part. Answers come in shard order.
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
        self.peers.fan_out(self, &wanted).into_iter().collect()
    }
}
